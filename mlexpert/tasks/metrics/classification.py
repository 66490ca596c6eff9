"""One label per row: accuracy and its errors, the F family, kappas, and what is built on recalls.

The task's whole label set is always passed, so a class that the test rows happen to miss still counts where the mean
is over classes. The last label is the positive one where two classes are not alike.

    accuracy, error_rate         share of rows hit, missed
    balanced_accuracy, g_mean    arithmetic and geometric mean of the classes' recalls
    f1, f_beta, jaccard          binary: of the positive class; macro: mean over all labels, one that occurs in neither
                                 truth nor prediction counts 0; micro: of the pooled counts; weighted: by support
    macro_f1                     the same; where the answers cannot hold every label, the task may say that labels which
                                 occur in neither truth nor prediction leave the mean (absent: seen)
    kappa, qwk                   agreement beyond chance; qwk over the whole rating range, quadratic weights
    mcc                          0 for constant predictions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import metrics

from mlexpert.tasks.metrics.record import (
    InvalidPrediction,
    Metric,
    Needs,
    Setting,
    UndefinedMetric,
    one_of,
    positive,
    whole,
)

reference: Any = metrics  # the stubs know only words where numbers and None are allowed
AVERAGES = ("binary", "macro", "micro", "weighted")


# ---------------------------------------------------------------- values
def _accuracy(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int, *, weight: Any = None) -> float:
    return float(reference.accuracy_score(truth_R, codes_R, sample_weight=weight))


def _error_rate(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int) -> float:
    return float(np.mean(truth_R != codes_R))


def _recalls(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int) -> np.ndarray:
    return np.asarray(
        reference.recall_score(truth_R, codes_R, labels=np.arange(n_labels), average=None, zero_division=np.nan)
    )


def _balanced_accuracy(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int) -> float:
    return float(_recalls(truth_R, codes_R, n_labels).mean())


def _g_mean(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int) -> float:
    return float(np.prod(_recalls(truth_R, codes_R, n_labels)) ** (1.0 / n_labels))


def _macro_f1(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int, *, absent: str) -> float:
    true_C, found_C = (np.bincount(codes, minlength=n_labels) for codes in (truth_R, codes_R))
    hits_C = np.bincount(truth_R[truth_R == codes_R], minlength=n_labels)
    scores_C = 2.0 * hits_C / np.maximum(true_C + found_C, 1)
    return float(scores_C[true_C + found_C > 0].mean() if absent == "seen" else scores_C.mean())


def _f_beta(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int, *, beta: float, average: str) -> float:
    return float(
        reference.fbeta_score(
            truth_R,
            codes_R,
            beta=beta,
            labels=None if average == "binary" else np.arange(n_labels),
            average=average,
            zero_division=0,
        )
    )


def _jaccard(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int, *, average: str) -> float:
    labels = None if average == "binary" else np.arange(n_labels)
    return float(reference.jaccard_score(truth_R, codes_R, labels=labels, average=average, zero_division=0))


def _kappa(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int, *, weights: str) -> float:
    rule = None if weights == "none" else weights
    return float(reference.cohen_kappa_score(truth_R, codes_R, labels=np.arange(n_labels), weights=rule))


def _qwk(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int, *, low: int, high: int, outside: str) -> float:
    values_R = _ratings(values_R, low, high, outside)
    range_K = np.arange(low, high + 1)
    return float(reference.cohen_kappa_score(truth_R.astype(int), values_R, labels=range_K, weights="quadratic"))


def _ratings(values_R: np.ndarray, low: int, high: int, outside: str) -> np.ndarray:
    if len(bad := np.flatnonzero(values_R != np.floor(values_R))):
        raise InvalidPrediction(f"{values_R[bad[0]]:.6g} is not a whole number", int(bad[0]))
    if outside == "clip":
        return np.clip(values_R, low, high).astype(int)
    if len(bad := np.flatnonzero((values_R < low) | (values_R > high))):
        raise InvalidPrediction(f"{values_R[bad[0]]:.6g} is outside of {low} to {high}", int(bad[0]))
    return values_R.astype(int)


def _mcc(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int) -> float:
    return float(reference.matthews_corrcoef(truth_R, codes_R))


# ---------------------------------------------------------------- when a value exists
def check_classes(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    if len(labels) < 2 or not truth_R.shape[0]:
        raise UndefinedMetric(f"{len(labels)} labels and {truth_R.shape[0]} answers; a classification needs 2 and 1")
    check_weight(_.get("weight"))


def check_weight(weight_R: np.ndarray | None) -> None:
    if weight_R is not None and (len(weight_R) == 0 or weight_R.min() < 0 or weight_R.sum() == 0):
        raise UndefinedMetric("weights must not be negative, and not all 0")


def check_every_class(name: str) -> Any:
    def check(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
        check_classes(truth_R, labels, **_)
        if len(np.unique(truth_R)) != len(labels):
            raise UndefinedMetric(f"{name} needs every label in the answers, else 1.0 cannot be reached")

    return check


def _check_macro_f1(truth_R: np.ndarray, labels: Sequence[str], *, absent: str, **_: Any) -> None:
    (check_every_class("macro_f1") if absent == "undefined" else check_classes)(truth_R, labels)


def check_several_classes(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    check_classes(truth_R, labels, **_)
    if len(np.unique(truth_R)) < 2:
        raise UndefinedMetric("the answers hold one label only; agreement beyond chance needs two")


def _check_average(truth_R: np.ndarray, labels: Sequence[str], *, average: str, **_: Any) -> None:
    check_classes(truth_R, labels)
    if average == "binary" and (len(labels) != 2 or not (truth_R == 1).any()):
        raise UndefinedMetric("needs two labels and the last one, the positive, in the answers")
    if average == "macro":
        check_every_class("the mean over classes")(truth_R, labels)


def _check_binary(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    _check_average(truth_R, labels, average="binary")


def _check_ratings(truth_R: np.ndarray, labels: Sequence[str], *, low: int, high: int, **_: Any) -> None:
    if high <= low:
        raise UndefinedMetric(f"a rating range from {low} to {high}")
    bad = (truth_R != np.floor(truth_R)) | (truth_R < low) | (truth_R > high)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise UndefinedMetric(f"answer {truth_R[row]:.6g} in row {row + 1} is no whole number from {low} to {high}")
    if len(np.unique(truth_R)) < 2:
        raise UndefinedMetric("the answers hold fewer than two ratings; agreement beyond chance needs two")


# ---------------------------------------------------------------- the table
_AVERAGE = Setting("average", f"one of {', '.join(AVERAGES)}", one_of(*AVERAGES))
_ABSENT = Setting("absent", "undefined or seen", one_of("undefined", "seen"), "undefined")
_BETA = Setting("beta", "a positive weight of recall", positive)
_WEIGHTS = Setting("weights", "none, linear or quadratic", one_of("none", "linear", "quadratic"), "none")
_RATING = (
    Setting("low", "the lowest rating, a whole number", whole),
    Setting("high", "the highest rating, a whole number", whole),
    Setting("outside", "a rating outside of them: invalid or clip", one_of("invalid", "clip"), "invalid"),
)


def _f1(average: str) -> Any:
    def score(truth_R: np.ndarray, codes_R: np.ndarray, n_labels: int) -> float:
        return _f_beta(truth_R, codes_R, n_labels, beta=1.0, average=average)

    return score


METRICS = (
    Metric("accuracy", False, Needs.LABEL, _accuracy, check_classes, roles=("weight",)),
    Metric("error_rate", True, Needs.LABEL, _error_rate, check_classes),
    Metric("balanced_accuracy", False, Needs.LABEL, _balanced_accuracy, check_every_class("balanced_accuracy")),
    Metric("g_mean", False, Needs.LABEL, _g_mean, check_every_class("g_mean")),
    Metric("macro_f1", False, Needs.LABEL, _macro_f1, _check_macro_f1, settings=(_ABSENT,)),
    Metric("f1", False, Needs.LABEL, _f1("binary"), _check_binary),
    Metric("micro_f1", False, Needs.LABEL, _f1("micro"), check_classes),
    Metric("weighted_f1", False, Needs.LABEL, _f1("weighted"), check_classes),
    Metric("f_beta", False, Needs.LABEL, _f_beta, _check_average, settings=(_BETA, _AVERAGE)),
    Metric("jaccard", False, Needs.LABEL, _jaccard, _check_average, settings=(_AVERAGE,)),
    Metric("kappa", False, Needs.LABEL, _kappa, check_several_classes, settings=(_WEIGHTS,)),
    Metric("qwk", False, Needs.RATING, _qwk, _check_ratings, settings=_RATING),
    Metric("mcc", False, Needs.LABEL, _mcc, check_several_classes),
)
