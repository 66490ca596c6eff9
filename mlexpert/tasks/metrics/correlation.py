"""Agreement in order or in line: Pearson, Spearman, concordance.

    pearson, spearman   constant predictions correlate with nothing: 0; several target columns are averaged
    concordance         share of comparable pairs in the right order, equal predictions count half. A pair is comparable
                        if the earlier time is an event; at equal times, if one is an event and the other is not. The
                        task says whether predictions are a risk (larger: earlier) or a time (larger: later)

Concordance takes O(n log^2 n): rows sorted by time are halved again and again, and between the halves pairs are counted
by binary search.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from mlexpert.tasks.metrics.record import (
    SEVERAL,
    Metric,
    Needs,
    Setting,
    UndefinedMetric,
    check_columns,
    mean_over_columns,
    one_of,
)
from mlexpert.tasks.metrics.regression import check_varied

SMALL = 64  # pairs among so few rows are compared directly


# ---------------------------------------------------------------- correlation
def _pearson(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int) -> float:
    return _correlation(stats.pearsonr, truth_R, values_R)


def _spearman(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int) -> float:
    return _correlation(stats.spearmanr, truth_R, values_R)


def _correlation(measure: Any, truth_R: np.ndarray, values_R: np.ndarray) -> float:
    if values_R.min() == values_R.max():
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        return float(measure(truth_R, values_R).statistic)


# ---------------------------------------------------------------- concordance
def _concordance(
    truth_R: np.ndarray, values_R: np.ndarray, n_labels: int, *, predicts: str, event: np.ndarray | None = None
) -> float:
    times_R = values_R if predicts == "time" else -values_R
    event_R = np.ones(len(truth_R), dtype=bool) if event is None else event != 0
    # At equal times events come first: then a row can only be the earlier one of pairs with rows behind it.
    order_R = np.lexsort((times_R, ~event_R, truth_R))
    right, equal = _pairs(times_R[order_R], event_R[order_R])
    tied_right, tied_equal = _pairs_of_tied_events(truth_R[order_R], times_R[order_R], event_R[order_R])
    comparable = _comparable(truth_R[order_R], event_R[order_R])
    return (right - tied_right + 0.5 * (equal - tied_equal)) / comparable


def _pairs(times_R: np.ndarray, event_R: np.ndarray) -> tuple[int, int]:
    """Pairs i < j with an event at i: predicted in the right order, and predicted equal."""
    n = len(times_R)
    if n <= SMALL:
        upper_RxR = np.triu(np.ones((n, n), dtype=bool), 1) & event_R[:, None]
        below = (times_R[:, None] < times_R[None, :]) & upper_RxR
        same = (times_R[:, None] == times_R[None, :]) & upper_RxR
        return int(below.sum()), int(same.sum())
    half = n // 2
    first, second = _pairs(times_R[:half], event_R[:half]), _pairs(times_R[half:], event_R[half:])
    later_R = np.sort(times_R[half:])
    events_E = times_R[:half][event_R[:half]]
    up_to_E = np.searchsorted(later_R, events_E, side="right")
    before_E = np.searchsorted(later_R, events_E, side="left")
    right, equal = len(later_R) * len(events_E) - int(up_to_E.sum()), int((up_to_E - before_E).sum())
    return first[0] + second[0] + right, first[1] + second[1] + equal


def _pairs_of_tied_events(truth_R: np.ndarray, times_R: np.ndarray, event_R: np.ndarray) -> tuple[int, int]:
    """What `_pairs` counts among events of one time, which cannot be compared: sorted, they never fall."""
    _, sizes_T = np.unique(truth_R[event_R], return_counts=True)
    _, same_S = np.unique(np.stack([truth_R[event_R], times_R[event_R]]), axis=1, return_counts=True)
    equal = int((same_S * (same_S - 1) // 2).sum())
    return int((sizes_T * (sizes_T - 1) // 2).sum()) - equal, equal


def _comparable(truth_R: np.ndarray, event_R: np.ndarray) -> int:
    """Pairs that have an earlier event; rows in the order of `_concordance`."""
    behind_R = np.arange(len(truth_R))[::-1]
    _, sizes_T = np.unique(truth_R[event_R], return_counts=True)
    return int(behind_R[event_R].sum()) - int((sizes_T * (sizes_T - 1) // 2).sum())


# ---------------------------------------------------------------- when a value exists
def _check_pairs(truth_R: np.ndarray, labels: Sequence[str], *, event: np.ndarray | None = None, **_: Any) -> None:
    if not len(truth_R):
        raise UndefinedMetric("the answers are empty")
    event_R = np.ones(len(truth_R), dtype=bool) if event is None else event != 0
    order_R = np.lexsort((~event_R, truth_R))
    if not _comparable(truth_R[order_R], event_R[order_R]):
        raise UndefinedMetric("no pair of answers can be compared: no event comes before another row")


def _ideal(truth_R: np.ndarray, n_labels: int, *, predicts: str, event: np.ndarray | None = None) -> np.ndarray:
    event_R = np.zeros(len(truth_R)) if event is None else (event == 0).astype(float)
    ranks_R = stats.rankdata(truth_R, method="dense") + 0.5 * event_R
    return ranks_R if predicts == "time" else -ranks_R


_PREDICTS = Setting("predicts", "risk (larger: earlier) or time (larger: later)", one_of("risk", "time"))

METRICS = (
    Metric(
        "pearson", False, Needs.NUMBER, mean_over_columns(_pearson), check_columns(check_varied), targets=SEVERAL
    ),
    Metric(
        "spearman", False, Needs.NUMBER, mean_over_columns(_spearman), check_columns(check_varied), targets=SEVERAL
    ),
    Metric(
        "concordance", False, Needs.SCORE, _concordance, _check_pairs, truth=Needs.NUMBER,
        settings=(_PREDICTS,), roles=("event",), ideal=_ideal,
    ),
)  # fmt: skip
