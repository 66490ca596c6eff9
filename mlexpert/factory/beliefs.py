"""What a solution believes of the test rows -> predictions in the form that the task's metric asks for.

A belief is one array, by the goal that the metric's answers set:

    classes   shares MxTxC: of every class, for each target column
    sets      shares MxL: of every label that may be in the set, or of every item that may be ranked
    numbers   MxT: one value for each target column
    texts     an object array of M texts
    shapes    nothing is believed: a mask or a list of boxes is left empty
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from mlexpert.tasks.metrics import Metric, Needs
from mlexpert.tasks.metrics.cells import Shapes, objects


class Goal(enum.StrEnum):
    CLASSES = "classes"
    SETS = "sets"
    NUMBERS = "numbers"
    TEXTS = "texts"
    SHAPES = "shapes"


_GOALS = {
    Needs.LABEL: Goal.CLASSES,
    Needs.LABELS: Goal.SETS,
    Needs.RANKED: Goal.SETS,
    Needs.TEXT: Goal.TEXTS,
    Needs.RUNS: Goal.SHAPES,
    Needs.POINTS: Goal.SHAPES,
    Needs.BOXES: Goal.SHAPES,
    Needs.CUBOIDS: Goal.SHAPES,
}
RANKED_ITEMS = 10  # where the metric sets no k


def goal_of(metric: Metric) -> Goal:
    """What has to be learnt; a text that must be one of several ranked ones is a text."""
    if metric.needs is Needs.TEXT:
        return Goal.TEXTS
    if metric.needs is Needs.POINTS:
        return Goal.SHAPES
    return _GOALS.get(metric.answers, Goal.NUMBERS)


def predictions(metric: Metric, belief: np.ndarray, names: Sequence[str], residuals_NxT: np.ndarray) -> np.ndarray:
    """Values as `tasks.intake.Predictions.values` holds them, of M rows.

    `names` are the items behind the columns of a belief about sets. `residuals_NxT` are errors of the same solution on
    rows it was not fitted to: they become quantiles and distributions where those are asked for.
    """
    goal = goal_of(metric)
    if goal is Goal.CLASSES:
        return _of_classes(metric, belief)
    if goal is Goal.SETS:
        return _of_sets(metric, belief, names)
    return _of_numbers(metric, belief, residuals_NxT) if goal is Goal.NUMBERS else belief


def nothing(needs: Needs, rows: int) -> np.ndarray:
    """Empty masks or lists of shapes for all rows."""
    if needs is Needs.RUNS:
        return objects([np.zeros((0, 2), dtype=np.int64)] * rows)
    width = 2 if needs is Needs.POINTS else 8 if needs is Needs.CUBOIDS else 5
    return objects([Shapes((), np.zeros((0, width)))] * rows)


def _of_classes(metric: Metric, shares_MxTxC: np.ndarray) -> np.ndarray:
    if metric.needs is Needs.LABEL:
        return shares_MxTxC[:, 0].argmax(axis=1).astype(np.int64)
    n_targets, n_labels = shares_MxTxC.shape[1:]
    if n_targets > 1:
        return shares_MxTxC[:, :, -1]
    return shares_MxTxC[:, 0] if metric.columns(1, n_labels) > 1 else shares_MxTxC[:, 0, -1]


def _of_sets(metric: Metric, shares_MxL: np.ndarray, names: Sequence[str]) -> np.ndarray:
    if metric.needs is Needs.LABELS:
        chosen_MxL = shares_MxL > 0.5
        chosen_MxL[np.arange(len(chosen_MxL)), shares_MxL.argmax(axis=1)] |= ~chosen_MxL.any(axis=1)
        return sparse.csr_matrix(chosen_MxL.astype(np.int64))  # type: ignore[return-value]
    k = metric.chosen.get("k", RANKED_ITEMS)
    order_MxK = np.argsort(-shares_MxL, axis=1, kind="stable")[:, :k]
    return objects(tuple(names[item] for item in row) for row in order_MxK)


def _of_numbers(metric: Metric, numbers_MxT: np.ndarray, residuals_NxT: np.ndarray) -> np.ndarray:
    n_targets = numbers_MxT.shape[1]
    if metric.needs is Needs.RATING:
        return np.clip(np.rint(numbers_MxT[:, 0]), metric.chosen["low"], metric.chosen["high"])
    if metric.needs is Needs.CUMULATIVE:
        reached_N = np.sort(residuals_NxT[:, 0])
        room_MxG = np.array(metric.chosen["grid"], dtype=np.float64) - numbers_MxT
        return np.searchsorted(reached_N, room_MxG, side="right") / len(reached_N)
    if metric.needs is Needs.PROBABILITY:
        shares_MxT = np.clip(numbers_MxT, 1e-6, None)
        return shares_MxT / shares_MxT.sum(axis=1, keepdims=True)
    if "quantiles" in metric.chosen and metric.columns(n_targets, 0) != n_targets:
        return numbers_MxT + np.quantile(residuals_NxT[:, 0], metric.chosen["quantiles"])
    if metric.columns(n_targets, 0) == 2 * n_targets:  # a value and its confidence
        return np.hstack([numbers_MxT, np.broadcast_to(residuals_NxT.std(axis=0), numbers_MxT.shape)])
    values = -numbers_MxT if metric.chosen.get("predicts") == "risk" else numbers_MxT
    return values[:, 0] if n_targets == 1 else values
