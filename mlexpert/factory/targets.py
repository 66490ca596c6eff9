"""The target columns of a task: its labels, what training makes of them, and whether the split left them usable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlexpert.factory.beliefs import Goal, goal_of
from mlexpert.factory.columns import values
from mlexpert.factory.records import Quarantine
from mlexpert.tasks.metrics import METRICS, Metric, Needs, UndefinedMetric, bind, number, read_answers
from mlexpert.tasks.metrics.cells import objects
from mlexpert.tasks.tables import GAPS

MOST_ITEMS = 300  # of a ranked target that solutions consider
_ABSOLUTE = frozenset({"mae", "wmae", "medae", "mase", "mape", "smape", "log_mae", "pinball", "crps"})
_RATIOS = frozenset({"rmsle", "rmspe", "mape", "smape"})
Cells = Sequence[Sequence[str]]  # one sequence of cells per target column


class Learnt(NamedTuple):
    """Training answers as arrays, in the form of `solutions.Problem.answers`."""

    goal: Goal
    values: np.ndarray  # numbers: on the scale on which squared errors suit the metric
    names: tuple[str, ...] = ()  # behind the columns of sets
    back: Callable[[np.ndarray], np.ndarray] = np.asarray  # from that scale to the target's own, inside its range
    absolute: bool = False  # the metric counts absolute errors


def bound(name: str, settings: Mapping[str, Any]) -> Metric:
    """The metric with its settings. Raises Quarantine("plan", ...)."""
    if name not in METRICS:
        raise Quarantine("plan", f"unknown metric {name!r}; known: {', '.join(sorted(METRICS))}")
    try:
        return bind(METRICS[name], settings)
    except UndefinedMetric as error:
        raise Quarantine("plan", f"{error}; set it in `settings`") from error


def kind_of(metric: Metric) -> str:
    """The kind of a target column in `tasks.tables.KINDS`."""
    goal = goal_of(metric)
    return "number" if goal is Goal.NUMBERS else "text" if goal in (Goal.TEXTS, Goal.SHAPES) else "label"


def is_missing(metric: Metric, cell: str) -> bool:
    """Whether a row has no answer. Where an answer may be an empty set, list or text, none is missing."""
    if metric.answers is Needs.LABEL:
        return cell == ""
    return goal_of(metric) is Goal.NUMBERS and cell in GAPS


def labels_of(metric: Metric, targets: Cells) -> tuple[str, ...]:
    """All labels that occur, in the order of numbers or of the alphabet; () where the metric has none."""
    if metric.answers is Needs.LABEL:
        found = {cell for cells in targets for cell in cells}
    elif metric.answers is Needs.LABELS and len(targets) == 1:
        found = {word for cell in targets[0] for word in cell.split()}
    else:
        return ()
    plain = all(np.isfinite(number(label)) for label in found)
    return tuple(sorted(found, key=lambda label: (number(label), label) if plain else (0.0, label)))


def learn(metric: Metric, targets: Cells, labels: Sequence[str]) -> Learnt:
    """The cells of the training rows as arrays."""
    goal = goal_of(metric)
    if goal is Goal.CLASSES:
        codes = {label: code for code, label in enumerate(labels)}
        return Learnt(goal, np.array([[codes[cell] for cell in cells] for cells in targets], dtype=np.int64).T)
    if goal is Goal.NUMBERS:
        return _numbers(metric, np.array([values(cells) for cells in targets]).T)
    if goal is Goal.SETS and len(targets) > 1:
        return Learnt(goal, np.array([[int(cell != "0") for cell in cells] for cells in targets]).T)
    if goal is Goal.SETS:
        return _sets([cell.split() for cell in targets[0]], labels if metric.answers is Needs.LABELS else ())
    first = metric.answers is Needs.RANKED
    return Learnt(goal, objects(next(iter(cell.split()), "") if first else cell for cell in targets[0]))


def _numbers(metric: Metric, values_NxT: np.ndarray) -> Learnt:
    """Logarithms where the metric counts ratios and the values allow it."""
    least, most, absolute = values_NxT.min(axis=0), values_NxT.max(axis=0), metric.name in _ABSOLUTE
    if metric.name in _RATIOS and (least > 0).all():
        return Learnt(Goal.NUMBERS, np.log(values_NxT), (), lambda logs: np.clip(np.exp(logs), least, most), absolute)
    if metric.name in _RATIOS and (least > -1).all():
        return Learnt(
            Goal.NUMBERS, np.log1p(values_NxT), (), lambda logs: np.clip(np.expm1(logs), least, most), absolute
        )
    floor = np.maximum(least, 1e-6) if metric.name == "poisson_deviance" else least
    return Learnt(Goal.NUMBERS, values_NxT, (), lambda values: np.clip(values, floor, most), absolute)


def _sets(rows: Sequence[Sequence[str]], labels: Sequence[str]) -> Learnt:
    names = list(labels)
    if not names:
        counts = Counter(item for row in rows for item in set(row))
        names = sorted(counts, key=lambda item: (-counts[item], item))[:MOST_ITEMS]
    place = {name: at for at, name in enumerate(names)}
    values_NxL = np.zeros((len(rows), len(names)), dtype=np.int64)
    for row, items in enumerate(rows):
        values_NxL[row, [place[item] for item in items if item in place]] = 1
    return Learnt(Goal.SETS, values_NxL, tuple(names))


# ---------------------------------------------------------------- usable?
def check_values(metric: Metric, names: Sequence[str], train: Cells, test: Cells) -> None:
    """There is something to learn, whatever the split. Raises Quarantine("build", ...)."""
    for name, seen, held in zip(names, train, test, strict=True):
        if goal_of(metric) is Goal.NUMBERS:
            _check_numbers(name, [*seen, *held])
        elif len({*seen, *held}) == 1 and goal_of(metric) is not Goal.SHAPES:
            raise Quarantine(
                "build",
                f"target {name!r} is {seen[0][:40]!r} in every row: there is nothing to predict; name another target",
            )


def _check_numbers(name: str, cells: Sequence[str]) -> None:
    values_R = values(cells)
    if not np.isfinite(values_R).all():
        row = int(np.argmax(~np.isfinite(values_R)))
        raise Quarantine(
            "build",
            f"target {name!r} holds {cells[row][:40]!r}, not a number; take a metric of labels or another target",
        )
    if (values_R == values_R[0]).all():
        raise Quarantine(
            "build",
            f"target {name!r} is {values_R[0]:g} in every row: there is nothing to predict; name another target",
        )


def check_split(metric: Metric, names: Sequence[str], train: Cells, test: Cells) -> None:
    """Both sides show the target's variety. Raises Quarantine("split", ...) that `repair` may mend."""
    for name, seen, held in zip(names, train, test, strict=True):
        for side, cells in (("training", seen), ("test", held)):
            if len(set(cells)) == 1 and goal_of(metric) in (Goal.CLASSES, Goal.NUMBERS):
                raise Quarantine(
                    "split",
                    f"all {len(cells)} {side} rows have {name!r} = {cells[0][:40]!r}; stratify or take another recipe",
                    kind="one_class",
                )
        unseen = sorted(set(held) - set(seen))
        if metric.answers is Needs.LABEL and unseen:
            raise Quarantine(
                "split",
                f"{len(unseen)} labels of {name!r} are in no training row, first {unseen[0][:40]!r}; stratify or merge",
                kind="unseen_label",
            )


def check_answers(metric: Metric, test: Cells, labels: Sequence[str], roles: Mapping[str, Sequence[str]]) -> None:
    """The metric has a value for these answers. Raises Quarantine("split", ...) that `repair` may mend."""
    beside: dict[str, list] = {}
    for name, cells in roles.items():
        beside.setdefault(name.partition(":")[0], []).append(cells)
    try:
        read_answers(metric, test, labels, {role: each[0] if len(each) == 1 else each for role, each in beside.items()})
    except UndefinedMetric as error:
        raise Quarantine("split", f"the test rows give {metric.name} no value: {error}", kind="undefined") from error
