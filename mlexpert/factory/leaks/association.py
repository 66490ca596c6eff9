"""How much one column tells about a target: learned on some rows, measured on others, so that nothing is flattered.

A column becomes codes (its categories, or bins of a number); what rows of a code have in common is the prediction for
further rows of it. Three measures, each 1 for a column that gives the target away, about 0 for one that says nothing:

    auc           two classes: twice the distance of the area under the ROC curve from a half
    information   several classes: share of the entropy of the target that the prediction removes, 1 - CE / H
    rank          numbers: Spearman's correlation of prediction and target
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from mlexpert.factory.columns import values
from mlexpert.factory.leaks.view import Target, codes_of

MIN_ROWS = 20  # on either side; with fewer rows a measure is chance
MIN_OF_CLASS = 5  # measured rows of either class that an AUC needs
MIN_BINS, BINS = 32, 256  # of a number; in between, eight rows a bin
MAX_CODES = 2048  # rarer categories share one code
CERTAIN = 4.0  # deviations of chance
PRIOR = 0.5  # rows' worth of belief in the frequencies of all rows


@dataclass(frozen=True)
class Strength:
    """`value` in [-1, 1]; `measure` is auc, information or rank. An AUC of a column is (1 + value) / 2."""

    value: float
    measure: str
    noise: float = 0.0  # standard deviation of `value` for a column that says nothing; 0: far below every border

    def exceeds(self, border: float) -> bool:
        """Whether it lies beyond a border, and chance does not explain it."""
        return self.value > max(border, CERTAIN * self.noise)


Codes = tuple[np.ndarray, np.ndarray, int]  # of train and test rows, and how many there are


def binned(train: Sequence[str], test: Sequence[str]) -> Codes:
    """Codes of a column's cells on both sides, and their number: bins if it holds numbers, categories otherwise."""
    known, asked = values(train), values(test)
    filled = np.array([cell != "" for cell in train], dtype=bool)
    if filled.any() and np.isfinite(known[filled]).mean() > 0.99:
        return _bins(known, asked)
    (known_R, asked_R), n_codes = codes_of(train, test)
    if n_codes > MAX_CODES:
        rank_C = rankdata(-np.bincount(known_R, minlength=n_codes), method="ordinal") - 1
        lump_C = np.minimum(rank_C, MAX_CODES - 1).astype(np.int64)
        known_R, asked_R, n_codes = lump_C[known_R], lump_C[asked_R], MAX_CODES
    return known_R, asked_R, n_codes


def _bins(known: np.ndarray, asked: np.ndarray) -> Codes:
    """Each value its own bin if they are few, else bins of equally many rows; 0 is for what is no number."""
    finite = known[np.isfinite(known)]
    distinct, n_bins = np.unique(finite), min(BINS, max(MIN_BINS, len(known) // 8))
    if len(distinct) <= n_bins:
        edges = (distinct[1:] + distinct[:-1]) / 2
    else:
        edges = np.unique(np.quantile(finite, np.linspace(0, 1, n_bins + 1)[1:-1]))

    def code(column: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(column), 1 + np.searchsorted(edges, column), 0).astype(np.int64)

    return code(known), code(asked), len(edges) + 2


def strength(
    known_R: np.ndarray, asked_R: np.ndarray, n_codes: int, target: Target, fit_R: np.ndarray, true_R: np.ndarray
) -> Strength | None:
    """Of codes: learned from `known_R` with target values `fit_R`, measured on `asked_R` with `true_R`.

    None if there are too few rows, or one class, to tell.
    """
    usable_R = fit_R >= 0 if target.is_class else np.isfinite(fit_R)
    known_R, fit_R = known_R[usable_R], fit_R[usable_R]
    scored_R = np.isfinite(true_R.astype(np.float64))
    asked_R, true_R = asked_R[scored_R], true_R[scored_R]
    if min(len(fit_R), len(true_R)) < MIN_ROWS:
        return None
    if not target.is_class:
        return _rank(_means(known_R, fit_R, n_codes)[asked_R], true_R)
    share_CxK = _shares(known_R, fit_R, n_codes, target.n_classes)
    if target.n_classes == 2:
        return _auc(share_CxK[asked_R, 1], true_R)
    return _information(share_CxK[asked_R], true_R, target.n_classes)


def _means(codes_R: np.ndarray, values_R: np.ndarray, n_codes: int) -> np.ndarray:
    count = np.bincount(codes_R, minlength=n_codes)
    total = np.bincount(codes_R, weights=values_R, minlength=n_codes)
    return np.where(count > 0, total / np.maximum(count, 1), np.median(values_R))


def _shares(codes_R: np.ndarray, classes_R: np.ndarray, n_codes: int, n_classes: int) -> np.ndarray:
    count_CxK = np.bincount(codes_R * n_classes + classes_R, minlength=n_codes * n_classes).reshape(n_codes, n_classes)
    prior_K = (np.bincount(classes_R, minlength=n_classes) + PRIOR) / (len(classes_R) + PRIOR * n_classes)
    return (count_CxK + PRIOR * prior_K) / (count_CxK.sum(axis=1, keepdims=True) + PRIOR)


def _auc(score_R: np.ndarray, classes_R: np.ndarray) -> Strength | None:
    positive = int(classes_R.sum())
    negative = len(classes_R) - positive
    if min(positive, negative) < MIN_OF_CLASS:
        return None
    area = (rankdata(score_R)[classes_R == 1].sum() - positive * (positive + 1) / 2) / (positive * negative)
    noise = np.sqrt((len(classes_R) + 1) / (3 * positive * negative))
    return Strength(float(2 * area - 1), "auc", float(noise))


def _information(share_RxK: np.ndarray, classes_R: np.ndarray, n_classes: int) -> Strength | None:
    frequency_K = np.bincount(classes_R, minlength=n_classes) / len(classes_R)
    entropy = -np.sum(frequency_K[frequency_K > 0] * np.log(frequency_K[frequency_K > 0]))
    if entropy <= 0:
        return None
    crossed = -np.mean(np.log(share_RxK[np.arange(len(classes_R)), classes_R]))
    return Strength(float(max(-1.0, 1 - crossed / entropy)), "information")


def _rank(predicted_R: np.ndarray, true_R: np.ndarray) -> Strength | None:
    if np.ptp(true_R) == 0:
        return None
    if np.ptp(predicted_R) == 0:
        return Strength(0.0, "rank")
    correlation = np.corrcoef(rankdata(predicted_R), rankdata(true_R))[0, 1]
    return Strength(float(correlation), "rank", float(1 / np.sqrt(len(true_R) - 1)))


# ---------------------------------------------------------------- the two ways to learn and measure
def across(train: Sequence[str], test: Sequence[str], target: Target) -> Strength | None:
    """Learned on train, measured on test."""
    return across_codes(binned(train, test), target)


def across_codes(codes: Codes, target: Target) -> Strength | None:
    """`across` for a column that is coded already: it serves all targets."""
    if len(codes[0]) != len(target.train_R):
        return None
    return strength(*codes, target, target.train_R, target.test_R)


def within(test: Sequence[str], target: Target) -> Strength | None:
    """Learned on every other test row, measured on the rest: what tells although train does not show it."""
    rows = len(test)
    if rows < 3 * MIN_ROWS:
        return None
    known, asked = list(test[0::2]), list(test[1::2])
    known_R, asked_R, n_codes = binned(known, asked)
    return strength(known_R, asked_R, n_codes, target, target.test_R[0::2], target.test_R[1::2])
