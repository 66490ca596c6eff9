"""How different the two sides of a split are: per column, and to a model that tries to tell them apart.

    numbers, times   Kolmogorov-Smirnov distance of the values (the largest gap between the two distributions), or the
                     difference of the shares of gaps if that is larger
    labels           total variation distance (half the sum of absolute differences of the shares); labels beyond the
                     most frequent ones count as one
    text             the Kolmogorov-Smirnov distance of the lengths
    ADVERSARIAL      ROC AUC of boosted trees that predict the side from all columns but ids and targets, rows held out
                     in turn; 0.5: the sides are alike

All are between 0 and 1 and 0 for equal samples (ADVERSARIAL: about 0.5). Deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from threadpoolctl import threadpool_limits

from mlexpert.factory.columns import times_of, values
from mlexpert.factory.features import Pair, coded, varied

ADVERSARIAL = "adversarial AUC"
MOST_LABELS = 30
MOST_ROWS = 2_000  # of each side, for the model
MOST_COLUMNS = 60


def drift(
    train: pd.DataFrame, test: pd.DataFrame, kinds: Mapping[str, str], apart: Sequence[str] = ()
) -> dict[str, float]:
    """Distance by column that both sides have, and ADVERSARIAL; four digits.

    `apart` are columns that the model is not shown: the targets, and what the split itself cuts by.
    """
    names = [name for name in train.columns if name in test.columns and kinds.get(name) in _DISTANCES]
    measured = {name: _DISTANCES[kinds[name]](train[name].tolist(), test[name].tolist()) for name in names}
    inputs = [name for name in names if name not in apart][:MOST_COLUMNS]
    measured[ADVERSARIAL] = adversarial(train.loc[:, inputs], test.loc[:, inputs], kinds)
    return {name: round(value, 4) for name, value in measured.items()}


def ks(one_N: np.ndarray, other_M: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance; NaN are gaps (see above)."""
    gaps = abs(float(np.isnan(one_N).mean()) - float(np.isnan(other_M).mean()))
    one_N, other_M = np.sort(one_N[~np.isnan(one_N)]), np.sort(other_M[~np.isnan(other_M)])
    if not len(one_N) or not len(other_M):
        return gaps
    both = np.concatenate([one_N, other_M])
    below_N = np.searchsorted(one_N, both, side="right") / len(one_N)
    below_M = np.searchsorted(other_M, both, side="right") / len(other_M)
    return max(gaps, float(np.abs(below_N - below_M).max()))


def total_variation(one: Sequence[str], other: Sequence[str]) -> float:
    shares = [Counter(one), Counter(other)]
    frequent = {label for label, _ in (shares[0] + shares[1]).most_common(MOST_LABELS)}
    total = 0.0
    left = [1.0, 1.0]
    for label in sorted(frequent):
        parts = [counts[label] / len(cells) for counts, cells in zip(shares, (one, other), strict=True)]
        total += abs(parts[0] - parts[1])
        left = [rest - part for rest, part in zip(left, parts, strict=True)]
    return (total + abs(left[0] - left[1])) / 2


def adversarial(train: pd.DataFrame, test: pd.DataFrame, kinds: Mapping[str, str], seed: int = 0) -> float:
    """Cross-validated AUC of "is this a test row?", at least 0.5; 0.5 without columns or with under 20 rows a side."""
    rng = np.random.default_rng([seed, 2])
    sides = [table.iloc[np.sort(rng.permutation(len(table))[:MOST_ROWS])] for table in (train, test)]
    if not len(train.columns) or min(map(len, sides)) < 20:
        return 0.5
    x_RxF = np.vstack(coded(sides[0], sides[1], kinds))
    x_RxF = varied(Pair(x_RxF, x_RxF)).train_NxF
    if not x_RxF.shape[1]:
        return 0.5
    side_R = np.repeat([0, 1], [len(side) for side in sides])
    shape: dict[str, Any] = dict(max_iter=30, max_leaf_nodes=15, early_stopping=False, random_state=0)
    model = HistGradientBoostingClassifier(**shape)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    with threadpool_limits(1):  # so few rows are slower on several threads
        shares_Rx2 = np.asarray(cross_val_predict(model, x_RxF, side_R, cv=folds, method="predict_proba"))
    return max(0.5, float(roc_auc_score(side_R, shares_Rx2[:, 1])))


def _numbers(one: Sequence[str], other: Sequence[str]) -> float:
    return ks(values(one), values(other))


def _times(one: Sequence[str], other: Sequence[str]) -> float:
    return ks(*times_of(one, other))


def _lengths(one: Sequence[str], other: Sequence[str]) -> float:
    return ks(*(np.array([float(len(cell)) for cell in cells]) for cells in (one, other)))


_DISTANCES = {"number": _numbers, "time": _times, "label": total_variation, "text": _lengths}
