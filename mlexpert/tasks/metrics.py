"""The metrics a task may use, on scikit-learn with the task's full label set passed explicitly.

Truth is an array of class codes (positions in `labels`) for label, ranking and probability metrics, of floats for
regression. What scikit-learn leaves open is fixed here:

    accuracy, macro_f1  a class that occurs in neither truth nor prediction has F1 0 and still counts in the mean
    auc                 two classes, the last label is the positive one; one class in the truth is undefined
    logloss             natural log; probabilities clipped to [1e-15, 1 - 1e-15], so one confident miss costs 34.54;
                        rows of several classes must sum to 1 within 1e-3 and are rescaled
    rmse, mae           unit of the target
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn import metrics as reference

CLIP = 1e-15
SUM_TOLERANCE = 1e-3


class UndefinedMetric(ValueError):
    """These answers give the metric no value, or do not belong to the task's labels."""


class Needs(enum.StrEnum):
    """What one prediction is."""

    LABEL = "label"  # one of the task's labels
    SCORE = "score"  # any finite number, larger for the positive class
    PROBABILITY = "probability"  # of the positive class, or one column per label
    NUMBER = "number"  # any finite number


# Score of predictions: (truth_R, predictions_R or _RxC, number of classes) -> value
Score = Callable[[np.ndarray, np.ndarray, int], float]


@dataclass(frozen=True)
class Metric:
    name: str
    lower_is_better: bool
    needs: Needs
    score: Score
    check: Callable[[np.ndarray, Sequence[str]], None]  # raises UndefinedMetric for answers without a value


# ---------------------------------------------------------------- values
def _accuracy(truth_R: np.ndarray, codes_R: np.ndarray, n_classes: int) -> float:
    return float(reference.accuracy_score(truth_R, codes_R))


def _macro_f1(truth_R: np.ndarray, codes_R: np.ndarray, n_classes: int) -> float:
    counts_CxC = reference.confusion_matrix(truth_R, codes_R, labels=np.arange(n_classes))
    support_C = counts_CxC.sum(axis=0) + counts_CxC.sum(axis=1)
    return float((2.0 * counts_CxC.diagonal() / np.maximum(support_C, 1)).mean())


def _auc(truth_R: np.ndarray, scores_R: np.ndarray, n_classes: int) -> float:
    return float(reference.roc_auc_score(truth_R, scores_R))


def _logloss(truth_R: np.ndarray, probabilities: np.ndarray, n_classes: int) -> float:
    if probabilities.ndim == 1:
        probabilities = np.stack([1.0 - probabilities, probabilities], axis=1)
    rows_RxC = probabilities / probabilities.sum(axis=1, keepdims=True)
    # scikit-learn rescales rows again after the clip, which moves them by less than 1e-14.
    clipped_RxC = np.clip(rows_RxC, CLIP, 1.0 - CLIP)
    return float(-np.log(clipped_RxC[np.arange(len(truth_R)), truth_R]).mean())


def _rmse(truth_R: np.ndarray, values_R: np.ndarray, n_classes: int) -> float:
    return float(reference.root_mean_squared_error(truth_R, values_R))


def _mae(truth_R: np.ndarray, values_R: np.ndarray, n_classes: int) -> float:
    return float(reference.mean_absolute_error(truth_R, values_R))


# ---------------------------------------------------------------- when a value exists
def _check_numbers(truth_R: np.ndarray, labels: Sequence[str]) -> None:
    if labels:
        raise UndefinedMetric("a regression metric with labels")
    if not len(truth_R) or not np.isfinite(truth_R).all():
        raise UndefinedMetric("the answers are empty or not all finite")


def _check_classes(truth_R: np.ndarray, labels: Sequence[str]) -> None:
    if len(labels) < 2 or not len(truth_R):
        raise UndefinedMetric(f"{len(labels)} labels and {len(truth_R)} answers; a classification needs 2 and 1")


def _check_two_classes(truth_R: np.ndarray, labels: Sequence[str]) -> None:
    _check_classes(truth_R, labels)
    if len(labels) != 2 or len(np.unique(truth_R)) != 2:
        raise UndefinedMetric("auc needs exactly two labels and both of them in the answers")


def _check_every_class(truth_R: np.ndarray, labels: Sequence[str]) -> None:
    _check_classes(truth_R, labels)
    if len(np.unique(truth_R)) != len(labels):
        raise UndefinedMetric("macro_f1 needs every label in the answers, else 1.0 cannot be reached")


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", False, Needs.LABEL, _accuracy, _check_classes),
        Metric("macro_f1", False, Needs.LABEL, _macro_f1, _check_every_class),
        Metric("auc", False, Needs.SCORE, _auc, _check_two_classes),
        Metric("logloss", True, Needs.PROBABILITY, _logloss, _check_classes),
        Metric("rmse", True, Needs.NUMBER, _rmse, _check_numbers),
        Metric("mae", True, Needs.NUMBER, _mae, _check_numbers),
    )
}


# ---------------------------------------------------------------- reading values
def encode(metric: Metric, answers: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """Answers as text -> truth_R: int64 class codes or float64 numbers. Raises UndefinedMetric naming the row."""
    if metric.needs is Needs.NUMBER:
        truth_R = np.array([number(text) for text in answers], dtype=np.float64)
        if len(bad := np.flatnonzero(~np.isfinite(truth_R))):
            raise UndefinedMetric(f"answer {answers[bad[0]]!r} in row {bad[0] + 1} is not a finite number")
        return truth_R
    codes = {label: code for code, label in enumerate(labels)}
    for row, text in enumerate(answers, start=1):
        if text not in codes:
            raise UndefinedMetric(f"answer {text!r} in row {row} is not one of the labels {list(labels)}")
    return np.array([codes[text] for text in answers], dtype=np.int64)


def number(text: str) -> float:
    """A decimal number as CSV writers print it; NaN for anything else (`float` would also take '1_0' and '١')."""
    if "_" in text or not text.isascii():
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan
