"""Lists in order of preference.

map_at_k       average precision of the first k items: at each hit the share of hits so far, divided by min(k, true
               items); a repeated item never counts twice; fewer than k items are fine, none is worth 0
recall_at_k    share of the true items among the first k, of at most k
ndcg           rows are documents with a score each, a group of rows is one query; gain is the grade itself or
               2^grade - 1, discount 1 / log2(1 + rank); documents with equal scores share the mean of their ranks'
               discounts. A query without a relevant document is skipped, or counts 0 or 1, as the task says
order          the predicted order of a row's items against the true one, over all rows:
               1 - 4 inversions / sum of n (n - 1) (Kendall's tau)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlexpert.tasks.metrics.cells import objects
from mlexpert.tasks.metrics.record import (
    InvalidPrediction,
    Metric,
    Needs,
    Setting,
    UndefinedMetric,
    at_least_one,
    one_of,
)


# ---------------------------------------------------------------- lists of items
def _map_at_k(truth_R: np.ndarray, lists_R: np.ndarray, n_labels: int, *, k: int, empty: str) -> float:
    return float(np.mean([_average_precision(set(truth), items, k) for truth, items in _rows(truth_R, lists_R, empty)]))


def _average_precision(truth: set[str], items: Sequence[str], k: int) -> float:
    if not truth:
        return 0.0
    hits, total, seen = 0, 0.0, set()
    for rank, item in enumerate(items[:k], start=1):
        if item in truth and item not in seen:
            seen.add(item)
            hits += 1
            total += hits / rank
    return total / min(len(truth), k)


def _recall_at_k(truth_R: np.ndarray, lists_R: np.ndarray, n_labels: int, *, k: int, empty: str) -> float:
    rows = _rows(truth_R, lists_R, empty)
    return float(np.mean([len(set(truth) & set(items[:k])) / max(1, min(len(set(truth)), k)) for truth, items in rows]))


def _rows(truth_R: np.ndarray, lists_R: np.ndarray, empty: str) -> list[tuple[Sequence[str], Sequence[str]]]:
    return [pair for pair in zip(truth_R, lists_R, strict=True) if pair[0] or empty == "zero"]


# ---------------------------------------------------------------- graded documents
def _ndcg(
    truth_R: np.ndarray,
    scores_R: np.ndarray,
    n_labels: int,
    *,
    k: int | None,
    gain: str,
    empty: str,
    group: np.ndarray | None = None,
) -> float:
    groups_R = np.zeros(len(truth_R), dtype=np.int64) if group is None else np.unique(group, return_inverse=True)[1]
    gains_R = truth_R if gain == "linear" else 2.0**truth_R - 1.0
    best_G = _gains_by_group(gains_R, gains_R, groups_R, k)
    got_G = _gains_by_group(gains_R, scores_R, groups_R, k)
    some = best_G > 0
    shares_G = np.where(some, got_G / np.where(some, best_G, 1.0), 1.0 if empty == "one" else 0.0)
    return float(shares_G[some].mean() if empty == "skip" else shares_G.mean())


def _gains_by_group(gains_R: np.ndarray, scores_R: np.ndarray, groups_R: np.ndarray, k: int | None) -> np.ndarray:
    """Discounted gain of each group, its rows sorted by falling score; equal scores share their discounts."""
    order_R = np.lexsort((-scores_R, groups_R))
    groups_R, scores_R, gains_R = groups_R[order_R], scores_R[order_R], gains_R[order_R]
    starts_G = np.flatnonzero(np.r_[True, np.diff(groups_R) != 0])
    ranks_R = np.arange(len(groups_R)) - np.repeat(starts_G, np.diff(np.r_[starts_G, len(groups_R)])) + 1
    discounts_R = 1.0 / np.log2(1.0 + ranks_R)
    if k is not None:
        discounts_R[ranks_R > k] = 0.0
    ties_T = np.flatnonzero(np.r_[True, (np.diff(groups_R) != 0) | (np.diff(scores_R) != 0)])
    sizes_T = np.diff(np.r_[ties_T, len(groups_R)])
    total_T = np.add.reduceat(gains_R, ties_T) / sizes_T * np.add.reduceat(discounts_R, ties_T)
    return np.bincount(groups_R[ties_T], total_T)


# ---------------------------------------------------------------- orders
def _order(truth_R: np.ndarray, lists_R: np.ndarray, n_labels: int) -> float:
    inversions, pairs = 0, 0
    for row, (truth, items) in enumerate(zip(truth_R, lists_R, strict=True)):
        place = {item: at for at, item in enumerate(truth)}
        if len(items) != len(truth) or len(set(items)) != len(items) or not place.keys() >= set(items):
            raise InvalidPrediction("not an order of this row's items", row)
        inversions += _inversions([place[item] for item in items])
        pairs += len(truth) * (len(truth) - 1)
    return 1.0 - 4.0 * inversions / pairs


def _inversions(places: Sequence[int]) -> int:
    seen: list[int] = []
    count = 0
    for before, place in enumerate(places):
        count += before - bisect_left(seen, place)
        insort(seen, place)
    return count


# ---------------------------------------------------------------- when a value exists
def _check_lists(truth_R: np.ndarray, labels: Sequence[str], *, empty: str, **_: Any) -> None:
    bare = [row for row, items in enumerate(truth_R) if not items]
    if len(bare) == len(truth_R):
        raise UndefinedMetric("no answer holds an item")
    if bare and empty == "undefined":
        raise UndefinedMetric(f"the answer in row {bare[0] + 1} is empty; drop the row, or set empty to zero or skip")


def _check_grades(
    truth_R: np.ndarray, labels: Sequence[str], *, empty: str, group: np.ndarray | None = None, **_: Any
) -> None:
    if not len(truth_R) or truth_R.min() < 0:
        raise UndefinedMetric("grades are needed, and none may be negative")
    if truth_R.max() > 1000:
        raise UndefinedMetric("a grade above 1000")
    codes_R = np.zeros(len(truth_R), dtype=np.int64) if group is None else np.unique(group, return_inverse=True)[1]
    if (np.bincount(codes_R) < 2).any():
        raise UndefinedMetric("a query with a single document has no order to judge; drop it")
    if not truth_R.any():
        raise UndefinedMetric("no document is relevant")
    if empty == "undefined" and (np.bincount(codes_R, truth_R) == 0).any():
        raise UndefinedMetric("a query has no relevant document; drop it, or set empty to skip, zero or one")


def _check_orders(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    for row, items in enumerate(truth_R):
        if len(set(items)) != len(items):
            raise UndefinedMetric(f"the answer in row {row + 1} repeats an item")
    if not any(len(items) > 1 for items in truth_R):
        raise UndefinedMetric("no row has two items to order")


# ---------------------------------------------------------------- the table
def _distinct(truth_R: np.ndarray, n_labels: int, **_: Any) -> np.ndarray:
    return objects(tuple(dict.fromkeys(items)) for items in truth_R)


_K = Setting("k", "a whole number of at least 1", at_least_one)
_EMPTY = Setting("empty", "rows without a true item: undefined, zero or skip",
                 one_of("undefined", "zero", "skip"), "undefined")  # fmt: skip
_NDCG = (
    Setting("k", "a whole number of at least 1, or null for all", lambda value: value is None or at_least_one(value)),
    Setting("gain", "linear or exponential", one_of("linear", "exponential")),
    Setting("empty", "queries without a relevant document: undefined, skip, zero or one",
            one_of("undefined", "skip", "zero", "one"), "undefined"),
)  # fmt: skip

METRICS = (
    Metric("map_at_k", False, Needs.RANKED, _map_at_k, _check_lists, settings=(_K, _EMPTY), ideal=_distinct),
    Metric("recall_at_k", False, Needs.RANKED, _recall_at_k, _check_lists, settings=(_K, _EMPTY), ideal=_distinct),
    Metric("ndcg", False, Needs.SCORE, _ndcg, _check_grades, truth=Needs.NUMBER, settings=_NDCG, roles=("group",)),
    Metric("order", False, Needs.RANKED, _order, _check_orders),
)
