"""Several labels per row: decisions (a set of labels) and rankings (one score per label).

Decisions are written as labels separated by blanks in one cell, or as one 0/1 column per label. A row without any true
and any predicted label is answered perfectly: its F score and its Jaccard index are 1.

    hamming                      share of wrong decisions over all rows and labels
    subset_accuracy              share of rows whose set is exactly right
    multilabel_f, _jaccard       samples: mean over rows; macro: mean over labels, one that occurs in neither counts 0;
                                 micro: of the pooled counts; weighted: by support
    lrap                         mean over rows and true labels of the precision at that label's rank; labels with
                                 equal scores take the worst of their ranks; a row with no or every label counts 1
    lwlrap                       the same with every (row, true label) counting once: rows without labels drop out
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import metrics

from mlexpert.tasks.metrics.record import SEVERAL, Metric, Needs, Setting, UndefinedMetric, one_of, positive

reference: Any = metrics  # the stubs know only words where numbers are allowed
AVERAGES = ("samples", "macro", "micro", "weighted")


def _hamming(truth: Any, sets: Any, n_labels: int) -> float:
    return float(reference.hamming_loss(truth, sets))


def _subset_accuracy(truth: Any, sets: Any, n_labels: int) -> float:
    return float(reference.accuracy_score(truth, sets))


def _f(truth: Any, sets: Any, n_labels: int, *, beta: float, average: str) -> float:
    empty = 1 if average == "samples" else 0
    return float(reference.fbeta_score(truth, sets, beta=beta, average=average, zero_division=empty))


def _jaccard(truth: Any, sets: Any, n_labels: int, *, average: str) -> float:
    empty = 1 if average == "samples" else 0
    return float(reference.jaccard_score(truth, sets, average=average, zero_division=empty))


def _lrap(truth_RxT: np.ndarray, scores_RxT: np.ndarray, n_labels: int) -> float:
    return float(reference.label_ranking_average_precision_score(truth_RxT, scores_RxT))


def _lwlrap(truth_RxT: np.ndarray, scores_RxT: np.ndarray, n_labels: int) -> float:
    labels_R = truth_RxT.sum(axis=1)
    some = labels_R > 0
    return float(
        reference.label_ranking_average_precision_score(
            truth_RxT[some], scores_RxT[some], sample_weight=labels_R[some].astype(float)
        )
    )


# ---------------------------------------------------------------- when a value exists
def _check_sets(truth: Any, labels: Sequence[str], **_: Any) -> None:
    if not truth.shape[0] or truth.shape[1] < 2:
        raise UndefinedMetric(f"{truth.shape[0]} answers over {truth.shape[1]} labels; 1 and 2 are needed")


def _check_average(truth: Any, labels: Sequence[str], *, average: str, **_: Any) -> None:
    _check_sets(truth, labels)
    support_L = np.asarray(truth.sum(axis=0)).ravel()
    if average == "macro" and (support_L == 0).any():
        raise UndefinedMetric("the mean over labels needs every label in the answers, else 1.0 cannot be reached")
    if average != "samples" and not support_L.any():
        raise UndefinedMetric("the answers hold no label at all")


def _check_ranked_labels(truth_RxT: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    _check_sets(truth_RxT, labels)
    if len(labels) != 2 or not truth_RxT.any():
        raise UndefinedMetric("needs columns of two labels, and a positive one in the answers")


# ---------------------------------------------------------------- the table
_AVERAGE = Setting("average", f"one of {', '.join(AVERAGES)}", one_of(*AVERAGES))
_BETA = Setting("beta", "a positive weight of recall", positive, 1.0)

METRICS = (
    Metric("hamming", True, Needs.LABELS, _hamming, _check_sets, targets=SEVERAL),
    Metric("subset_accuracy", False, Needs.LABELS, _subset_accuracy, _check_sets, targets=SEVERAL),
    Metric("multilabel_f", False, Needs.LABELS, _f, _check_average, targets=SEVERAL, settings=(_BETA, _AVERAGE)),
    Metric(
        "multilabel_jaccard", False, Needs.LABELS, _jaccard, _check_average, targets=SEVERAL, settings=(_AVERAGE,)
    ),
    Metric("lrap", False, Needs.SCORE, _lrap, _check_ranked_labels, targets=(2, None)),
    Metric("lwlrap", False, Needs.SCORE, _lwlrap, _check_ranked_labels, targets=(2, None)),
)  # fmt: skip
