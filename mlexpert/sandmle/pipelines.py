"""Reference pipelines: an approach is a feature step plus an estimator, run in process on a task's public tables.

The same feature steps and estimators, printed as source, are the scripts of the teacher; so a script that follows a
reference pipeline scores what the ladder scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.preprocessing import PolynomialFeatures

Estimator = Any  # scikit-learn has no type that promises both fit and predict


@dataclass(frozen=True)
class Hand:
    """What a hand-made feature refers to: columns a and b, a category and a period."""

    a: str
    b: str
    category: str
    period: int


# ---------------------------------------------------------------- features: of the table as read, filled, and scaled
def product(X: pd.DataFrame, hand: Hand) -> pd.DataFrame:
    return X.assign(f=X[hand.a] * X[hand.b])


def ratio(X: pd.DataFrame, hand: Hand) -> pd.DataFrame:
    return X.assign(f=X[hand.a] / X[hand.b])


def cycle(X: pd.DataFrame, hand: Hand) -> pd.DataFrame:
    angle = 2 * np.pi * X[hand.a] / hand.period
    return X.assign(f=np.sin(angle), g=np.cos(angle))


def group(X: pd.DataFrame, hand: Hand) -> pd.DataFrame:
    return X.join(X.filter(like=hand.category).mul(X[hand.a], axis=0).add_suffix("_x"))


def near(X: pd.DataFrame, hand: Hand) -> pd.DataFrame:
    return X.loc[:, [hand.a, hand.b]]


def poly(X: pd.DataFrame, hand: Hand) -> pd.DataFrame:
    return pd.DataFrame(PolynomialFeatures(2).fit_transform(X))


def words(X: pd.DataFrame, hand: Hand) -> pd.DataFrame:
    return X.join(X.pop(hand.category).str.get_dummies(" "))


def shape(X: pd.DataFrame, hand: Hand) -> pd.DataFrame:
    pixels_Nx8x8 = X.to_numpy().reshape(-1, 8, 8)
    return X.assign(f=pixels_Nx8x8.mean(1).max(1) - pixels_Nx8x8.mean(2).max(1))


Step = Callable[[pd.DataFrame, Hand], pd.DataFrame]
READ: Mapping[str, Step] = {"words": words}
FILLED: Mapping[str, Step] = {"ratio": ratio, "cycle": cycle, "shape": shape}
SCALED: Mapping[str, Step] = {"product": product, "group": group, "near": near, "poly": poly}


# ---------------------------------------------------------------- estimators: (regressor, classifier) per variant
LINEAR = ((Ridge(), LogisticRegression()), (Ridge(alpha=5), LogisticRegression(C=0.3)))
TREES = (
    (RandomForestRegressor(12, random_state=0), RandomForestClassifier(12, random_state=0)),
    (ExtraTreesRegressor(12, random_state=0), ExtraTreesClassifier(12, random_state=0)),
    (
        GradientBoostingRegressor(n_estimators=20, learning_rate=0.2, random_state=0),
        GradientBoostingClassifier(n_estimators=20, learning_rate=0.2, random_state=0),
    ),
)
NEAR = (
    (KNeighborsRegressor(7, weights="distance"), KNeighborsClassifier(7, weights="distance")),
    (KNeighborsRegressor(11, weights="distance"), KNeighborsClassifier(11, weights="distance")),
)
ESTIMATORS: Mapping[str, tuple[tuple[Estimator, Estimator], ...]] = {
    "linear": LINEAR,
    "product": LINEAR,
    "ratio": LINEAR,
    "cycle": LINEAR,
    "group": LINEAR,
    "log": LINEAR,
    "poly": ((Ridge(alpha=10), LogisticRegression(C=0.1)),),
    "trees": TREES,
    "near": NEAR,
    "knn": NEAR,
    "words": LINEAR,
    "shape": LINEAR,
}
APPROACHES: Mapping[str, tuple[str, ...]] = {  # what makes sense for each kind of task
    "tabular": ("linear", "product", "ratio", "cycle", "trees", "near", "log", "group", "poly"),
    "series": ("linear", "product", "ratio", "cycle", "trees", "near", "log", "group", "poly"),
    "text": ("linear", "trees", "words"),
    "image": ("linear", "trees", "shape"),
}
REGRESSION_ONLY = ("log",)
NEEDS_CATEGORY = ("group",)


def applicable(kind: str, classification: bool, category: bool) -> tuple[str, ...]:
    """Approaches that make sense for a kind of task with or without classes and a category."""
    out = (REGRESSION_ONLY if classification else ()) + (() if category else NEEDS_CATEGORY)
    return tuple(approach for approach in APPROACHES[kind] if approach not in out)


def estimator(approach: str, variant: int, classification: bool) -> Estimator:
    """A fresh estimator of an approach; `log` is wrapped by its users."""
    return clone(ESTIMATORS[approach][variant][int(classification)])


def prepare(train: pd.DataFrame, test: pd.DataFrame, approach: str, hand: Hand) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Encoded, filled and scaled features of both tables (no id, no target)."""
    X = pd.concat([train, test], ignore_index=True)
    X = READ[approach](X, hand) if approach in READ else X
    X = pd.get_dummies(X, dtype=float)
    X = X.fillna(X.median())
    X = FILLED[approach](X, hand) if approach in FILLED else X
    X = (X - X.mean()) / X.std()
    X = SCALED[approach](X, hand) if approach in SCALED else X
    return X.iloc[: len(train)], X.iloc[len(train) :]


def predict(
    X: np.ndarray, y_N: np.ndarray, Z: np.ndarray, approach: str, variant: int, metric: str, classification: bool
) -> np.ndarray:
    """Fits on (X_NxC, y_N) and predicts for Z_RxC what `metric` wants: numbers, labels or scores of class 1."""
    model: Estimator = estimator(approach, variant, classification)
    if approach == "log":
        model = TransformedTargetRegressor(model, func=np.log1p, inverse_func=np.expm1)
    model.fit(X, y_N)
    if metric != "auc":
        return model.predict(Z)
    return model.predict_proba(Z)[:, 1]
