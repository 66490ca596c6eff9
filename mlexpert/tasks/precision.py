"""How far a score may be chance: its standard error over the test rows, by the bootstrap.

Rows (whole groups, where the metric works on groups) are drawn with replacement. Of a large test set only `MOST` are
drawn, and the spread is brought to the real size by the square root: the time does not grow with the test set.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlexpert.tasks.metrics import Answers, InvalidPrediction, Metric, UndefinedMetric, evaluate
from mlexpert.tasks.metrics.answers import GROUP, KEEP, own, parts

DRAWS = 30
MOST = 1000


def standard_error(
    metric: Metric, answers: Answers, predictions: Any, labels: Sequence[str], seed: int = 0
) -> float | None:
    """Standard error of `evaluate(metric, answers, predictions, len(labels))`, in the metric's unit.

    Draws whose answers would not make a task (a class is gone that few rows have) do not count. None where more than
    half of them are lost so, or where there is one unit only.
    """
    order_R, starts = _units(answers)
    n_units = len(starts) - 1
    if n_units < 2:
        return None
    rng, size = np.random.default_rng(seed), min(n_units, MOST)
    scores = []
    for _ in range(DRAWS):
        drawn = [order_R[starts[at] : starts[at + 1]] for at in rng.integers(0, n_units, size)]
        score = _score(metric, answers, predictions, labels, drawn)
        if score is not None:
            scores.append(score)
    if len(scores) <= DRAWS // 2:
        return None
    return float(np.std(scores, ddof=1)) * math.sqrt(size / n_units)


def _units(answers: Answers) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows that count, those of a unit (a group, or each row alone) side by side; and at which place
    each unit starts, with the end of the last."""
    rows_R = np.flatnonzero(answers.beside[KEEP]) if KEEP in answers.beside else np.arange(answers.rows)
    if GROUP not in answers.beside:
        return rows_R, np.arange(len(rows_R) + 1)
    order_R = rows_R[np.argsort(answers.beside[GROUP][rows_R], kind="stable")]
    inner = np.flatnonzero(np.diff(answers.beside[GROUP][order_R])) + 1
    return order_R, np.concatenate([[0], inner, [len(order_R)]])


def _score(
    metric: Metric, answers: Answers, predictions: Any, labels: Sequence[str], drawn: list[np.ndarray]
) -> float | None:
    rows_R = np.concatenate(drawn)
    beside = {role: column[rows_R] for role, column in answers.beside.items() if role != KEEP}
    if GROUP in beside:  # a group that is drawn twice is two groups
        beside[GROUP] = np.repeat(np.arange(len(drawn)), [len(part) for part in drawn])
    sample = Answers(answers.values[rows_R], beside)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for rows_G in parts(metric, sample):
                metric.check(sample.values[rows_G], labels, **own(metric, sample, rows_G))
            return evaluate(metric, sample, predictions[rows_R], len(labels))
    except (UndefinedMetric, InvalidPrediction):
        return None
