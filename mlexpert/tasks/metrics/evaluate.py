"""One number for predictions against answers: finite, a Python float, and made of all rows that count.

Whatever a metric would do with a NaN, with missing rows or with numbers that are no probabilities never happens: they
are refused before it is asked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlexpert.tasks.metrics import ideal
from mlexpert.tasks.metrics.answers import Answers, own, parts
from mlexpert.tasks.metrics.record import NUMERIC, SUM_TOLERANCE, InvalidPrediction, Metric, Needs


def evaluate(metric: Metric, answers: Answers, predictions: Any, n_labels: int) -> float:
    """The score of predictions in the order of the answers, settings bound (see `record.bind`).

    Raises InvalidPrediction if it is undefined for these predictions, ValueError if they are of another shape.
    """
    _check_shape(metric, answers, predictions, n_labels)
    _refuse_not_finite(predictions)
    if metric.needs is Needs.PROBABILITY:
        per_row = answers.values.ndim == 1 or metric.answers is Needs.NUMBER
        _refuse_not_shares(predictions, sum_to_one=per_row and predictions.ndim == 2)
    scores = []
    for rows_G in parts(metric, answers):
        beside = own(metric, answers, rows_G)
        try:
            scores.append(float(metric.score(answers.values[rows_G], predictions[rows_G], n_labels, **beside)))
        except InvalidPrediction as error:
            row = None if error.row is None else int(rows_G[error.row])
            raise InvalidPrediction(error.problem, row) from error
    score = scores[0] if len(scores) == 1 else float(np.mean(scores))
    if not math.isfinite(score):
        raise InvalidPrediction("the metric is undefined for these values")
    return score


def perfect(metric: Metric, answers: Answers, n_labels: int) -> Any:
    """Predictions that get the best score there is, for answers that passed their check."""
    if metric.ideal is None:
        return ideal.by_kind(metric.needs, answers.values, metric.columns, n_labels)
    roles = {role: array for role, array in answers.beside.items() if role in metric.roles}
    return metric.ideal(answers.values, n_labels, **roles)


def _check_shape(metric: Metric, answers: Answers, predictions: Any, n_labels: int) -> None:
    if predictions.shape[0] != answers.rows:
        raise ValueError(f"{predictions.shape[0]} predictions for {answers.rows} answers")
    if metric.needs not in NUMERIC:
        return
    n_targets = 1 if answers.values.ndim == 1 else answers.values.shape[1]
    wanted, found = metric.columns(n_targets, n_labels), 1 if predictions.ndim == 1 else predictions.shape[1]
    both = metric.needs is Needs.PROBABILITY and n_targets == 1 and found == n_labels  # of two labels, both columns
    if found != wanted and not both:
        raise ValueError(f"{found} columns of predictions for {metric.name}, which needs {wanted}")


def _refuse_not_finite(predictions: Any) -> None:
    if predictions.dtype.kind != "f":
        return
    bad = ~np.isfinite(predictions)
    rows_R = np.flatnonzero(bad if bad.ndim == 1 else bad.any(axis=1))
    if len(rows_R):
        raise InvalidPrediction("NaN or infinite value", int(rows_R[0]))


def _refuse_not_shares(predictions: np.ndarray, sum_to_one: bool) -> None:
    rows_RxC = predictions.reshape(len(predictions), -1)
    bad_R = ((rows_RxC < 0.0) | (rows_RxC > 1.0)).any(axis=1)
    if bad_R.any():
        raise InvalidPrediction("not a probability", int(np.argmax(bad_R)))
    # The slack lets three shares of .333 pass: their sum is .999 only up to rounding.
    bad_R = np.abs(rows_RxC.sum(axis=1) - 1.0) > SUM_TOLERANCE + 1e-9
    if sum_to_one and bad_R.any():
        row = int(np.argmax(bad_R))
        raise InvalidPrediction(f"probabilities sum to {rows_RxC[row].sum():.6g}, not 1", row)
