"""What a metric is: a name, a direction, what one prediction is, and functions of arrays.

`score(truth, predictions, n_labels, **settings, **beside)` is the value of predictions that are known to be finite;
`check(truth, labels, **settings, **beside)` raises UndefinedMetric for answers that give the metric no value, or with
which perfect predictions could not reach the best value. `beside` are further columns of the answers (a weight, a
group, the size of an image) that the metric reads. Settings are validated and bound by `bind`.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any

import numpy as np


class UndefinedMetric(ValueError):
    """These answers or settings give the metric no value, or do not belong to the task's labels: the task's fault."""


class InvalidPrediction(ValueError):
    """These predictions have no value under the metric; `row` is the first bad one, counted from 0, if one is to blame.

    The problem is told without anything from the answers, so it may be shown to the policy.
    """

    def __init__(self, problem: str, row: int | None = None) -> None:
        super().__init__(problem if row is None else f"row {row + 1}: {problem}")
        self.problem, self.row = problem, row


class Needs(enum.StrEnum):
    """What one prediction (or one answer) is, and how it is written in a cell."""

    LABEL = "label"  # one of the task's labels
    SCORE = "score"  # any finite number, larger for the positive class, or one column per label
    PROBABILITY = "probability"  # of the positive class, or one column per label that sum to 1
    NUMBER = "number"  # any finite number
    RATING = "rating"  # a whole number of the task's range
    CUMULATIVE = "cumulative"  # one column per grid point: P(value <= point), never falling
    LABELS = "labels"  # a set of the task's labels, separated by blanks; may be empty
    RANKED = "ranked"  # items separated by blanks, best first; may be empty
    TEXT = "text"  # any text, compared as it stands; may be empty
    RUNS = "runs"  # a mask as "start length start length ...", pixels counted from 1; empty or "-": no pixel
    POINTS = "points"  # "label x y label x y ..."; may be empty
    BOXES = "boxes"  # "label confidence left top right bottom ..."; may be empty
    CUBOIDS = "cuboids"  # "confidence x y z width length height yaw label ..."; may be empty


NUMERIC = (Needs.SCORE, Needs.PROBABILITY, Needs.NUMBER, Needs.RATING, Needs.CUMULATIVE)
# What answers are when the metric does not say: classes behind scores and probabilities, numbers behind numbers.
_ANSWERS = {
    Needs.SCORE: Needs.LABEL,
    Needs.PROBABILITY: Needs.LABEL,
    Needs.RATING: Needs.NUMBER,
    Needs.CUMULATIVE: Needs.NUMBER,
}
REQUIRED = object()


SUM_TOLERANCE = 1e-3  # by which the sum of a row of probabilities may differ from 1


@dataclass(frozen=True)
class Setting:
    """Something the task decides about a metric; values are JSON."""

    name: str
    meaning: str
    valid: Callable[[Any], bool]
    default: Any = REQUIRED


def per_target(n_targets: int, n_labels: int, **settings: Any) -> int:
    """One column per target column."""
    return n_targets


def per_label(n_targets: int, n_labels: int, **settings: Any) -> int:
    """One column per label when there are more than two; else one per target column, for the last label."""
    return n_labels if n_targets == 1 and n_labels > 2 else n_targets


@dataclass(frozen=True)
class Metric:
    name: str
    lower_is_better: bool
    needs: Needs
    score: Callable[..., float]
    check: Callable[..., None]
    truth: Needs | None = None  # what an answer is; None: what `needs` implies
    targets: tuple[int, int | None] = (1, 1)  # the least and the largest number of target columns; None: any
    columns: Callable[..., int] = per_target  # (target columns, labels, **settings) -> columns of a submission
    settings: tuple[Setting, ...] = ()
    roles: tuple[str, ...] = ()  # further answer columns that `score` reads itself
    required: tuple[str, ...] = ()  # those of `roles` without which there is no score
    ideal: Callable[..., Any] | None = None  # (truth, n_labels, **settings, **beside) -> the best predictions
    chosen: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the settings it was bound with

    @property
    def undecided(self) -> bool:
        """Whether there is a setting that has neither a default nor a value yet."""
        return any(setting.default is REQUIRED and setting.name not in self.chosen for setting in self.settings)

    @property
    def answers(self) -> Needs:
        return self.truth or _ANSWERS.get(self.needs, self.needs)


def rows_sum_to_one(metric: Metric, n_targets: int, n_labels: int) -> bool:
    """Whether a row of predictions is one distribution: one column per label, or shares as answers."""
    several = metric.needs is Needs.PROBABILITY and metric.columns(n_targets, n_labels) > 1
    return several and (n_targets == 1 or metric.answers is Needs.NUMBER)


def bind(metric: Metric, settings: Mapping[str, Any]) -> Metric:
    """The metric with its settings fixed, defaults filled in. Raises UndefinedMetric for a wrong or missing one."""
    known = {setting.name: setting for setting in metric.settings}
    if foreign := sorted(settings.keys() - known.keys()):
        raise UndefinedMetric(f"{metric.name} has no setting {foreign[0]!r}; it has {sorted(known)}")
    chosen = {}
    for name, setting in known.items():
        value = settings.get(name, setting.default)
        if value is REQUIRED:
            raise UndefinedMetric(f"{metric.name} needs the setting {name!r}: {setting.meaning}")
        if not setting.valid(value):
            raise UndefinedMetric(f"{metric.name}: setting {name}={value!r} is not {setting.meaning}")
        chosen[name] = value
    return replace(
        metric,
        score=partial(metric.score, **chosen),
        check=partial(metric.check, **chosen),
        columns=partial(metric.columns, **chosen),
        ideal=metric.ideal and partial(metric.ideal, **chosen),
        chosen=chosen,
    )


# ---------------------------------------------------------------- several target columns
SEVERAL = (1, None)


def mean_over_columns(score: Callable[..., float]) -> Callable[..., float]:
    """Of one column as it is; of several target columns the mean of the columns' scores."""

    @wraps(score)
    def mean(truth: np.ndarray, predictions: np.ndarray, n_labels: int, **keywords: Any) -> float:
        if truth.ndim == 1:
            return score(truth, predictions, n_labels, **keywords)
        columns = range(truth.shape[1])
        return float(np.mean([score(truth[:, c], predictions[:, c], n_labels, **keywords) for c in columns]))

    return mean


def check_columns(check: Callable[..., None]) -> Callable[..., None]:
    """The check of each target column."""

    @wraps(check)
    def each(truth: np.ndarray, labels: Sequence[str], **keywords: Any) -> None:
        if truth.ndim == 1:
            return check(truth, labels, **keywords)
        for c in range(truth.shape[1]):
            try:
                check(truth[:, c], labels, **keywords)
            except UndefinedMetric as error:
                raise UndefinedMetric(f"target column {c + 1}: {error}") from error

    return each


# ---------------------------------------------------------------- values a setting may have
def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def at_least_one(value: Any) -> bool:
    return whole(value) and value >= 1


def positive(value: Any) -> bool:
    return _number(value) and value > 0


def nonzero(value: Any) -> bool:
    return _number(value) and value != 0


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: value in words


def rising(value: Any) -> bool:
    """A list of at least one number, each larger than the one before."""
    return _numbers(value) and all(low < high for low, high in itertools.pairwise(value))


def shares(value: Any) -> bool:
    """A rising list of numbers between 0 and 1, borders excluded."""
    return rising(value) and value[0] > 0 and value[-1] < 1


def weights(value: Any) -> bool:
    """A list of numbers, none negative and not all 0."""
    return _numbers(value) and min(value) >= 0 and max(value) > 0


def _numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(_number(item) for item in value)
