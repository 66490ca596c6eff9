"""Scripts as text: a pure function of public facts, an approach, its variant and the columns it works on.

Each script reads `train.csv` and `test.csv`, prints `cv <value>` of the task's metric by 3-fold cross-validation and
writes `submission.csv`. Lines are fixed wherever possible and the target is named once, so that a line-wise tokenizer
needs about 60 tokens. The steps are those of `sandmle.pipelines`: a script scores what the ladder's rung scored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlexpert.corpus.facts import Facts
from mlexpert.sandmle import pipelines
from mlexpert.sandmle.data_strategist import PERIODS

WAVES = (("f", "sin"), ("g", "cos"))


@dataclass(frozen=True)
class Plan:
    """One choice: an approach, the variant of its estimator, and what its hand-made feature refers to."""

    approach: str
    variant: int
    hand: pipelines.Hand


def applicable(facts: Facts) -> tuple[str, ...]:
    """Approaches that make sense for the task's columns and metric."""
    return pipelines.applicable(facts.kind, facts.classification, bool(facts.category))


def plan(rng: np.random.Generator, facts: Facts, approach: str) -> Plan:
    """A plan with the columns and the period that the note names, guessed where it names none."""
    others = [str(name) for name in rng.permutation(facts.numeric) if name not in facts.named]
    a, b = (*facts.named, *others, "", "")[:2]  # an image has no names
    period = facts.period or int(rng.choice(PERIODS))
    variant = int(rng.integers(len(pipelines.ESTIMATORS[approach])))
    return Plan(approach, variant, pipelines.Hand(a, b, facts.category, period))


def write(facts: Facts, choice: Plan) -> list[str]:
    """The script's lines, without newlines."""
    a, b = f'X["{choice.hand.a}"]', f'X["{choice.hand.b}"]'
    read = {"words": [f'X = X.join(X.pop("{choice.hand.category}").str.get_dummies(" "))']}
    filled = {
        "ratio": [f'X["f"] = {a} / {b}'],
        "cycle": [f'X["{name}"] = np.{wave}(2 * np.pi * {a} / {choice.hand.period})' for name, wave in WAVES],
        "shape": ["P = X.to_numpy().reshape(-1, 8, 8)", 'X["f"] = P.mean(1).max(1) - P.mean(2).max(1)'],
    }
    scaled = {
        "product": [f'X["f"] = {a} * {b}'],
        "group": [f'X = X.join(X.filter(like="{choice.hand.category}").mul({a}, axis=0).add_suffix("_x"))'],
        "near": [f'X = X[["{choice.hand.a}", "{choice.hand.b}"]]'],
        "poly": ["X = PolynomialFeatures(2).fit_transform(X)"],
    }
    return [
        *imports(facts, choice),
        f't = "{facts.target}"',
        'train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")',
        "y = train.pop(t)",
        'X = pd.concat([train, test], ignore_index=True).drop(columns="id")',
        *read.get(choice.approach, []),
        "X = pd.get_dummies(X, dtype=float)",
        "X = X.fillna(X.median())",
        *filled.get(choice.approach, []),
        "X = (X - X.mean()) / X.std()",
        *scaled.get(choice.approach, []),
        "X, Z = X[: len(y)], X[len(y) :]",
        f"m = {model(facts, choice)}",
        *validate(facts),
        "m.fit(X, y)",
        "p = m.predict_proba(Z)[:, 1]" if facts.metric == "auc" else "p = m.predict(Z)",
        'pd.DataFrame({"id": test["id"], t: p}).to_csv("submission.csv", index=False)',
    ]


def imports(facts: Facts, choice: Plan) -> list[str]:
    estimator = pipelines.estimator(choice.approach, choice.variant, facts.classification)
    module = type(estimator).__module__.split("._")[0]
    return [
        *(["import numpy as np"] if choice.approach in ("cycle", "log") else []),
        "import pandas as pd",
        *(["from sklearn.compose import TransformedTargetRegressor"] if choice.approach == "log" else []),
        f"from {module} import {type(estimator).__name__}",
        *(["from sklearn.metrics import roc_auc_score"] if facts.metric == "auc" else []),
        "from sklearn.model_selection import cross_val_predict",
        *(["from sklearn.preprocessing import PolynomialFeatures"] if choice.approach == "poly" else []),
    ]


def model(facts: Facts, choice: Plan) -> str:
    """The estimator's constructor as scikit-learn prints it."""
    text = repr(pipelines.estimator(choice.approach, choice.variant, facts.classification)).replace("'", '"')
    return (
        f"TransformedTargetRegressor({text}, func=np.log1p, inverse_func=np.expm1)"
        if choice.approach == "log"
        else text
    )


def validate(facts: Facts) -> list[str]:
    """Two lines: out-of-fold predictions, and the metric's value on a line that opens with `cv`."""
    values = {
        "rmse": "((v - y) ** 2).mean() ** 0.5",
        "mae": "(v - y).abs().mean()",
        "accuracy": "(v == y).mean()",
        "auc": "roc_auc_score(y, v[:, 1])",
    }
    method = ', method="predict_proba"' if facts.metric == "auc" else ""
    return [f"v = cross_val_predict(m, X, y, cv=3{method})", f'print("cv", round({values[facts.metric]}, 3))']
