"""Scores and probabilities against classes: log loss, the AUC family, Gini, and relatives.

    logloss            natural log; probabilities clipped to [1e-15, 1 - 1e-15], so one confident miss costs 34.54;
                       rows of several classes must sum to 1 within 1e-3 and are rescaled
    auc                two classes, the last label is the positive one; equal scores count half
    multiclass_auc     mean over classes of one against the rest (ovr), or over pairs of classes (ovo)
    average_precision  sum over thresholds of (recall gained) x precision
    weighted_auc       area right of the ROC curve, band by band of the true-positive rate, each band with its weight
    gini               normalised: 0 for constant predictions; within equal predictions the mean over their orders,
                       so rows in another order score the same; of two classes it is 2 AUC - 1
    probabilistic_f    F beta with probabilities instead of counts; 0 without any predicted mass
    bias_auc           a quarter each: overall AUC, and power means (exponent -5) over identities of the AUC within the
                       identity, and of its negatives against others' positives and the other way round
    top_k_accuracy     a row hits if fewer than k other labels score at least as high as the true one, so equal scores
                       help nobody

Several target columns of two labels each are scored column by column, and averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import metrics as reference

from mlexpert.tasks.metrics.classification import check_classes, check_every_class
from mlexpert.tasks.metrics.record import (
    SEVERAL,
    Metric,
    Needs,
    Setting,
    UndefinedMetric,
    at_least_one,
    check_columns,
    mean_over_columns,
    nonzero,
    one_of,
    per_label,
    positive,
    rising,
    weights,
)

CLIP = 1e-15


# ---------------------------------------------------------------- log loss and Brier
def _logloss(truth_R: np.ndarray, probabilities: np.ndarray, n_labels: int, *, weight: Any = None) -> float:
    if probabilities.ndim == 1:
        probabilities = np.stack([1.0 - probabilities, probabilities], axis=1)
    rows_RxC = probabilities / probabilities.sum(axis=1, keepdims=True)
    # scikit-learn rescales rows again after the clip, which moves them by less than 1e-14.
    clipped_RxC = np.clip(rows_RxC, CLIP, 1.0 - CLIP)
    losses_R = np.log(clipped_RxC[np.arange(len(truth_R)), truth_R])
    return float(-(losses_R.mean() if weight is None else np.average(losses_R, weights=weight)))


def _brier(truth_R: np.ndarray, shares_R: np.ndarray, n_labels: int) -> float:
    return float(np.mean((shares_R - truth_R) ** 2))


# ---------------------------------------------------------------- ranking of two classes
def _auc(truth_R: np.ndarray, scores_R: np.ndarray, n_labels: int, *, weight: Any = None) -> float:
    return float(reference.roc_auc_score(truth_R, scores_R, sample_weight=weight))


def _average_precision(truth_R: np.ndarray, scores_R: np.ndarray, n_labels: int) -> float:
    return float(reference.average_precision_score(truth_R, scores_R))


def _multiclass_auc(truth_R: np.ndarray, shares_RxC: np.ndarray, n_labels: int, *, mode: str) -> float:
    rows_RxC = shares_RxC / shares_RxC.sum(axis=1, keepdims=True)
    return float(reference.roc_auc_score(truth_R, rows_RxC, multi_class=mode, labels=np.arange(n_labels)))


def _weighted_auc(
    truth_R: np.ndarray, scores_R: np.ndarray, n_labels: int, *, edges: Sequence[float], weights: Sequence[float]
) -> float:
    false_rate_V, true_rate_V, _ = reference.roc_curve(truth_R, scores_R, drop_intermediate=False)
    areas_E = np.array([_area_right_of(true_rate_V, false_rate_V, edge) for edge in edges])
    widths_B = np.diff(edges)
    return float(np.dot(np.diff(areas_E), weights) / np.dot(widths_B, weights))


def _area_right_of(true_rate_V: np.ndarray, false_rate_V: np.ndarray, height: float) -> float:
    """Integral of (1 - false rate) over true rates from 0 to `height`, the curve linear between its vertices."""
    last = int(np.searchsorted(true_rate_V, height, side="right")) - 1
    rises_V = np.diff(true_rate_V[: last + 1])
    area = float((rises_V * (1.0 - (false_rate_V[1 : last + 1] + false_rate_V[:last]) / 2.0)).sum())
    if last + 1 == len(true_rate_V):
        return area
    rest = height - true_rate_V[last]
    slope = (false_rate_V[last + 1] - false_rate_V[last]) / (true_rate_V[last + 1] - true_rate_V[last])
    return area + rest * (1.0 - false_rate_V[last] - slope * rest / 2.0)


def _gini(truth_R: np.ndarray, scores_R: np.ndarray, n_labels: int) -> float:
    return _lift(truth_R, scores_R) / _lift(truth_R, truth_R)


def _lift(truth_R: np.ndarray, scores_R: np.ndarray) -> float:
    """Area between the Lorenz curve of truth, sorted by falling score, and the diagonal."""
    ranks, tie_R = np.unique(-scores_R, return_inverse=True)
    means_T = np.bincount(tie_R, truth_R) / np.bincount(tie_R, minlength=len(ranks))
    sorted_R = means_T[np.sort(tie_R)]
    return float(np.cumsum(sorted_R).sum() / sorted_R.sum() - (len(truth_R) + 1) / 2.0) / len(truth_R)


def _probabilistic_f(truth_R: np.ndarray, shares_R: np.ndarray, n_labels: int, *, beta: float) -> float:
    hits, mass = float(shares_R[truth_R == 1].sum()), float(shares_R.sum())
    if hits == 0.0:
        return 0.0
    precision, recall = hits / mass, hits / float((truth_R == 1).sum())
    return (1.0 + beta**2) * precision * recall / (beta**2 * precision + recall)


# ---------------------------------------------------------------- AUC by identity
def _bias_auc(
    truth_R: np.ndarray, scores_R: np.ndarray, n_labels: int, *, identity: np.ndarray, power: float, overall: float
) -> float:
    parts = [_auc(truth_R, scores_R, n_labels)]
    for subsets in zip(*(_bias_subsets(truth_R, inside_R) for inside_R in _identities(identity)), strict=True):
        aucs_I = np.array([_auc(truth_R[rows_R], scores_R[rows_R], n_labels) for rows_R in subsets])
        # With a negative exponent the mean follows the worst identity; an AUC of 0 makes it 0.
        parts.append(0.0 if power < 0 and aucs_I.min() == 0.0 else float(np.mean(aucs_I**power) ** (1.0 / power)))
    return overall * parts[0] + (1.0 - overall) / 3.0 * math.fsum(parts[1:])


def _identities(identity: np.ndarray) -> list[np.ndarray]:
    columns_RxI = identity.reshape(len(identity), -1) >= 0.5
    return list(columns_RxI.T)


def _bias_subsets(truth_R: np.ndarray, inside_R: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the identity; its negatives with the others' positives; its positives with the others' negatives."""
    positive_R = truth_R == 1
    return inside_R, inside_R != positive_R, inside_R == positive_R


# ---------------------------------------------------------------- several classes
def _top_k_accuracy(truth_R: np.ndarray, scores_RxC: np.ndarray, n_labels: int, *, k: int) -> float:
    own_R = scores_RxC[np.arange(len(truth_R)), truth_R]
    not_below_R = (scores_RxC >= own_R[:, None]).sum(axis=1)
    return float(np.mean(not_below_R <= k))


# ---------------------------------------------------------------- when a value exists
def _check_two_classes(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    check_classes(truth_R, labels, **_)
    if len(labels) != 2 or len(np.unique(truth_R)) != 2:
        raise UndefinedMetric("auc needs exactly two labels and both of them in the answers")


def _check_two_labels(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    check_classes(truth_R, labels)
    if len(labels) != 2:
        raise UndefinedMetric(f"needs two labels, not {len(labels)}")


def _check_positive(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    _check_two_labels(truth_R, labels)
    if not (truth_R == 1).any():
        raise UndefinedMetric("the answers hold no positive row")


def _check_logloss(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    check_classes(truth_R, labels, **_)
    if truth_R.ndim == 2 and len(labels) != 2:
        raise UndefinedMetric(f"several target columns need two labels, not {len(labels)}")


def _check_multiclass(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    check_every_class("multiclass_auc")(truth_R, labels)
    if len(labels) < 3:
        raise UndefinedMetric("two labels have an auc of their own")


def _check_bands(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    _check_two_classes(truth_R, labels)
    edges, weights = _["edges"], _["weights"]
    if edges[0] != 0 or edges[-1] != 1 or len(weights) != len(edges) - 1:
        raise UndefinedMetric("edges must run from 0 to 1, with one weight for each band between them")


def _check_gini(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    if not len(truth_R) or truth_R.min() < 0 or truth_R.min() == truth_R.max():
        raise UndefinedMetric("gini needs answers that are not negative and not all equal")


def _check_bias(truth_R: np.ndarray, labels: Sequence[str], *, identity: np.ndarray, **_: Any) -> None:
    _check_two_classes(truth_R, labels)
    for at, inside_R in enumerate(_identities(identity), start=1):
        for rows_R in _bias_subsets(truth_R, inside_R):
            if len(np.unique(truth_R[rows_R])) != 2:
                raise UndefinedMetric(f"identity {at}: both classes are needed inside and outside of it")


def _check_top_k(truth_R: np.ndarray, labels: Sequence[str], *, k: int, **_: Any) -> None:
    check_classes(truth_R, labels)
    if len(labels) < 3 or k >= len(labels):
        raise UndefinedMetric(f"top {k} of {len(labels)} labels")


# ---------------------------------------------------------------- the table
_MODE = Setting("mode", "ovr or ovo", one_of("ovr", "ovo"))
_K = Setting("k", "a whole number of at least 1", at_least_one)
_BETA = Setting("beta", "a positive weight of recall", positive, 1.0)
_BANDS = (
    Setting("edges", "rising true-positive rates from 0 to 1", rising),
    Setting("weights", "a weight for each band", weights),
)
_BIAS = (
    Setting("power", "a number other than 0: the exponent of the mean over identities", nonzero, -5.0),
    Setting("overall", "the weight of the overall AUC", lambda value: positive(value) and value <= 1, 0.25),
)

METRICS = (
    Metric(
        "logloss", True, Needs.PROBABILITY, mean_over_columns(_logloss), _check_logloss,
        targets=SEVERAL, columns=per_label, roles=("weight",),
    ),
    Metric("brier", True, Needs.PROBABILITY, mean_over_columns(_brier), _check_two_labels, targets=SEVERAL),
    Metric(
        "auc", False, Needs.SCORE, mean_over_columns(_auc), check_columns(_check_two_classes),
        targets=SEVERAL, roles=("weight",),
    ),
    Metric(
        "multiclass_auc", False, Needs.PROBABILITY, _multiclass_auc, _check_multiclass,
        columns=per_label, settings=(_MODE,),
    ),
    Metric(
        "average_precision", False, Needs.SCORE, mean_over_columns(_average_precision), check_columns(_check_positive),
        targets=SEVERAL,
    ),
    Metric("weighted_auc", False, Needs.SCORE, _weighted_auc, _check_bands, settings=_BANDS),
    Metric("gini", False, Needs.SCORE, _gini, _check_gini, truth=Needs.NUMBER),
    Metric("probabilistic_f", False, Needs.PROBABILITY, _probabilistic_f, _check_positive, settings=(_BETA,)),
    Metric(
        "bias_auc", False, Needs.SCORE, _bias_auc, _check_bias,
        settings=_BIAS, roles=("identity",), required=("identity",),
    ),
    Metric("top_k_accuracy", False, Needs.SCORE, _top_k_accuracy, _check_top_k, columns=per_label, settings=(_K,)),
)  # fmt: skip
