"""Numbers out of a task's own tables, for solutions of ours: what a competent stranger would do with them in a minute.

Everything is learnt from the training rows alone. `coded` suits trees (float64, NaN for gaps, codes by frequency for
labels), `linear` suits linear models and neighbours (medians for gaps, unit spread, one column per frequent label) and
`words` is TF-IDF of the text columns. Widths are bounded, so no table can take much memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from mlexpert.factory.columns import times_of
from mlexpert.tasks.metrics import number

MAX_CODES = 200  # labels of a column that get a code of their own
MAX_INDICATORS = 25  # labels of a column that get an indicator of their own
MAX_WORDS = 20_000
SHRUNK = 10.0
DAY = 86_400.0


class Pair(NamedTuple):
    """The same columns of the training and of the test rows."""

    train_NxF: np.ndarray
    test_MxF: np.ndarray


def coded(train: pd.DataFrame, test: pd.DataFrame, kinds: Mapping[str, str]) -> Pair:
    """One or a few columns per column that both tables have; ids and file names are left out."""
    parts = [Pair(np.empty((len(train), 0)), np.empty((len(test), 0)))]
    for name in (name for name in test.columns if name in train.columns):
        if kinds.get(name) in _CODED:
            parts.append(_CODED[kinds[name]](train[name].tolist(), test[name].tolist()))
    return Pair(np.hstack([part.train_NxF for part in parts]), np.hstack([part.test_MxF for part in parts]))


def linear(train: pd.DataFrame, test: pd.DataFrame, kinds: Mapping[str, str]) -> Pair:
    """Numbers and times in units of their spread, clipped at 5; indicators of gaps and of frequent labels."""
    plain = [name for name in test.columns if kinds.get(name) != "label"]
    dense = scaled(coded(train.filter(plain), test.loc[:, plain], kinds))
    parts = [dense]
    for name in test.columns:
        if kinds.get(name) == "label" and name in train.columns:
            parts.append(_indicators(train[name].tolist(), test[name].tolist()))
    return Pair(np.hstack([part.train_NxF for part in parts]), np.hstack([part.test_MxF for part in parts]))


def scaled(pair: Pair) -> Pair:
    """Standardised by the training rows, gaps filled with the median and marked in columns of their own."""
    train_NxF, test_MxF = pair
    if not train_NxF.shape[1]:
        return pair
    gaps_F = np.isnan(train_NxF).any(axis=0) & ~np.isnan(train_NxF).all(axis=0)
    median_F = np.array(
        [np.median(column[~np.isnan(column)]) if (~np.isnan(column)).any() else 0.0 for column in train_NxF.T]
    )
    filled_NxF = np.where(np.isnan(train_NxF), median_F, train_NxF)
    mean_F, spread_F = filled_NxF.mean(axis=0), filled_NxF.std(axis=0)

    def scale(values_RxF: np.ndarray) -> np.ndarray:
        filled_RxF = np.where(np.isnan(values_RxF), median_F, values_RxF)
        units_RxF = np.clip((filled_RxF - mean_F) / np.where(spread_F > 0, spread_F, 1.0), -5.0, 5.0)
        return np.hstack([units_RxF, np.isnan(values_RxF[:, gaps_F]).astype(np.float64)])

    return Pair(scale(train_NxF), scale(test_MxF))


def words(
    train: pd.DataFrame, test: pd.DataFrame, kinds: Mapping[str, str]
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """TF-IDF of words and pairs of words of all text columns joined, no wider than MAX_WORDS."""
    names = [name for name in test.columns if kinds.get(name) == "text" and name in train.columns]
    texts = [[" ".join(row) for row in zip(*(table[name] for name in names), strict=True)] for table in (train, test)]
    vectorizer = TfidfVectorizer(
        max_features=MAX_WORDS, ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b", min_df=2
    )
    try:
        return sparse.csr_matrix(vectorizer.fit_transform(texts[0])), sparse.csr_matrix(vectorizer.transform(texts[1]))
    except ValueError:  # no word occurs twice
        return sparse.csr_matrix((len(train), 0)), sparse.csr_matrix((len(test), 0))


def target_means(train: Sequence[str], test: Sequence[str], outcomes_NxK: np.ndarray) -> Pair:
    """Mean outcomes of a label's training rows, a row's own left out, SHRUNK rows' worth pulled to the mean of all."""
    codes = {label: code for code, label in enumerate(sorted(set(train)))}
    own_N = np.array([codes[cell] for cell in train])
    counts_C = np.bincount(own_N, minlength=len(codes) + 1)[:, None].astype(np.float64)
    sums_CxK = np.zeros((len(codes) + 1, outcomes_NxK.shape[1]))
    np.add.at(sums_CxK, own_N, outcomes_NxK)
    prior_K = SHRUNK * outcomes_NxK.mean(axis=0)
    left_NxK = (sums_CxK[own_N] - outcomes_NxK + prior_K) / (counts_C[own_N] - 1 + SHRUNK)
    known_M = np.array([codes.get(cell, len(codes)) for cell in test])
    return Pair(left_NxK, ((sums_CxK + prior_K) / (counts_C + SHRUNK))[known_M])


def varied(pair: Pair) -> Pair:
    """Without columns that hold fewer than two values in training: they tell nothing, and boosting fails on them."""
    kept_F = [len(np.unique(column[~np.isnan(column)])) > 1 for column in pair.train_NxF.T]
    return Pair(pair.train_NxF[:, kept_F], pair.test_MxF[:, kept_F])


def strongest(pair: Pair, outcome_N: np.ndarray, most: int) -> Pair:
    """The `most` columns that correlate most with the outcome, in their order."""
    if pair.train_NxF.shape[1] <= most:
        return pair
    units_NxF = scaled(pair).train_NxF[:, : pair.train_NxF.shape[1]]
    strength_F = np.abs(units_NxF.T @ (outcome_N - outcome_N.mean()))
    kept_F = np.sort(np.argsort(-strength_F, kind="stable")[:most])
    return Pair(pair.train_NxF[:, kept_F], pair.test_MxF[:, kept_F])


# ---------------------------------------------------------------- one column
def _number(train: Sequence[str], test: Sequence[str]) -> Pair:
    return _pair(*(np.array([_finite(cell) for cell in cells])[:, None] for cells in (train, test)))


def _finite(cell: str) -> float:
    value = number(cell)
    return value if abs(value) < 1e300 else np.nan


def _label(train: Sequence[str], test: Sequence[str]) -> Pair:
    """Codes by falling frequency; rare and unknown labels share the next one."""
    codes = {label: code for code, (label, _) in enumerate(_frequent(train, MAX_CODES))}
    return _pair(*(np.array([[float(codes.get(cell, len(codes)))] for cell in cells]) for cells in (train, test)))


def _indicators(train: Sequence[str], test: Sequence[str]) -> Pair:
    names = [label for label, _ in _frequent(train, MAX_INDICATORS)]
    place = {label: at for at, label in enumerate(names)}
    eye = np.vstack([np.eye(len(names)), np.zeros(len(names))])
    return _pair(*(eye[[place.get(cell, len(names)) for cell in cells]] for cells in (train, test)))


def _frequent(cells: Sequence[str], limit: int) -> list[tuple[str, int]]:
    return sorted(Counter(cells).items(), key=lambda item: (-item[1], item[0]))[:limit]


def _time(train: Sequence[str], test: Sequence[str]) -> Pair:
    """The time itself, and where it is a date: the time of day, the day of the week and of the year, as circles."""
    return _pair(*map(calendar, times_of(train, test)))


def calendar(times_R: np.ndarray) -> np.ndarray:
    """Rx7: the time, then sine and cosine of its place in the day, the week and the year (of 365.25 days)."""
    columns = [times_R]
    for length in (DAY, 7 * DAY, 365.25 * DAY):
        angle_R = 2 * np.pi * (times_R % length) / length
        columns += [np.sin(angle_R), np.cos(angle_R)]
    return np.stack(columns, axis=1)


def _text(train: Sequence[str], test: Sequence[str]) -> Pair:
    """Characters, words, and the shares of capitals and digits."""
    return _pair(*(np.array([_shape_of(cell) for cell in cells]).reshape(-1, 4) for cells in (train, test)))


def _shape_of(text: str) -> tuple[float, float, float, float]:
    size = max(1, len(text))
    capitals, digits = sum(letter.isupper() for letter in text), sum(letter.isdigit() for letter in text)
    return float(len(text)), float(len(text.split())), capitals / size, digits / size


def _pair(train: np.ndarray, test: np.ndarray) -> Pair:
    return Pair(train.astype(np.float64), test.astype(np.float64))


_CODED = {"number": _number, "label": _label, "time": _time, "text": _text}
