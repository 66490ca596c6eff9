"""MLE Developer: a spec becomes tables, and an executed ladder of reference pipelines locks the thresholds.

Thresholds are places between the best and the median rung: gold, silver and bronze are best - 5, 15 and 30 % of
(best - median). The median rung is the median of the pipelines that know nothing of the note.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlexpert.sandmle import families, pipelines, rules
from mlexpert.sandmle.data_strategist import Spec
from mlexpert.tasks.metrics import METRICS
from mlexpert.tasks.task import Thresholds

BANDS = {"gold": 0.05, "silver": 0.15, "bronze": 0.30}
GENERIC = ("constant", "linear.0", "poly.0", "trees.0", "trees.1", "trees.2", "knn.0")
GAP_RATE = 0.06
OUTLIER_RATE = 0.02


@dataclass(frozen=True)
class Tables:
    train: pd.DataFrame  # id, features, target
    test: pd.DataFrame  # id, features
    answers: pd.DataFrame  # id, target
    sample: pd.DataFrame  # id, target: the constant submission


class Ladder(NamedTuple):
    scores: Mapping[str, float]  # "<approach>.<variant>" -> hidden score
    called_for: str  # the approach that the family calls for
    thresholds: Thresholds
    lower_is_better: bool


# ---------------------------------------------------------------- tables
def tables(spec: Spec) -> Tables:
    """The task's data; the same spec gives the same bytes."""
    rng = np.random.default_rng(spec.entropy)
    n = spec.n_train + spec.n_test
    z = pd.DataFrame(rng.standard_normal((n, len(spec.numeric))), columns=list(spec.numeric))
    codes_N = rng.integers(0, len(spec.levels), n)
    draw = families.FAMILIES[spec.family].rule(rules.Ground(rng, z, spec.named, codes_N, spec.period, spec.category))
    features = raw_columns(rng, spec, z, draw)
    if spec.category:
        features[spec.category] = draw.raw.get(spec.category, np.array(spec.levels)[codes_N])
    signal_N = draw.value_N + spec.noise * draw.value_N.std() * rng.standard_normal(n)
    features = blemish(rng, spec, features)
    features.insert(0, "id", rng.permutation(np.arange(1000, 1000 + n)))
    return split(spec, features, target(rng, spec, signal_N))


def raw_columns(rng: np.random.Generator, spec: Spec, z: pd.DataFrame, draw: rules.Draw) -> pd.DataFrame:
    """Latents in arbitrary units, except for the columns that the rule dictates; four digits after the point."""
    columns = {}
    for name in spec.numeric:
        scale, offset = 10 ** rng.uniform(-0.5, 2.0), rng.uniform(1.0, 5.0)
        columns[name] = draw.raw.get(name, scale * (offset + z[name].to_numpy()))
    return pd.DataFrame(columns).round(4)


def target(rng: np.random.Generator, spec: Spec, signal_N: np.ndarray) -> np.ndarray:
    """Classes cut at the signal's median, or the signal in arbitrary positive units."""
    if spec.classification:
        return (signal_N > np.median(signal_N)).astype(int)
    scale = 10 ** rng.uniform(0.5, 2.0)
    if spec.family == "growth":
        return (scale * signal_N).round(4)
    return (scale * ((signal_N - signal_N.min()) / signal_N.std() + rng.uniform(0.5, 2.0))).round(4)


def blemish(rng: np.random.Generator, spec: Spec, features: pd.DataFrame) -> pd.DataFrame:
    """Gaps and gross outliers in numeric columns."""
    columns = list(spec.numeric)
    values_NxC = features[columns].to_numpy().copy()
    if spec.outliers:
        values_NxC[rng.random(values_NxC.shape) < OUTLIER_RATE / len(columns)] *= 3.0
    if spec.gaps:
        values_NxC[rng.random(values_NxC.shape) < GAP_RATE] = np.nan
    return features.assign(**dict(zip(columns, values_NxC.T, strict=True)))


def split(spec: Spec, features: pd.DataFrame, target_N: np.ndarray) -> Tables:
    n = spec.n_train
    train = features.iloc[:n].assign(**{spec.target: target_N[:n]})
    test = features.iloc[n:].reset_index(drop=True)
    answers = pd.DataFrame({"id": test["id"], spec.target: target_N[n:]})
    return Tables(train, test, answers, answers.assign(**{spec.target: constant(spec, target_N[:n])}))


def constant(spec: Spec, target_N: np.ndarray) -> float:
    """The sample submission's only value: the larger class, or the mean."""
    return int(target_N.mean() > 0.5) if spec.classification else round(float(target_N.mean()), 4)


# ---------------------------------------------------------------- the ladder
def hand(spec: Spec) -> pipelines.Hand:
    """The columns a hand-made feature uses: the named ones, completed by the first others."""
    a, b, *_ = (*spec.named, *(name for name in spec.numeric if name not in spec.named))
    return pipelines.Hand(a, b, spec.category, spec.period)


def rungs(spec: Spec) -> list[tuple[str, int]]:
    """(approach, variant) of every rung: the first variant of each approach that applies, and all kinds of trees."""
    approaches = (*pipelines.applicable(spec.kind, spec.classification, bool(spec.category)), "knn")
    return [
        (approach, variant)
        for approach in approaches
        for variant in (range(len(pipelines.TREES)) if approach == "trees" else (0,))
    ]


def ladder(spec: Spec, data: Tables) -> Ladder:
    """Runs every rung on the hidden rows and locks the thresholds."""
    y_N = data.train[spec.target].to_numpy()
    train, test = data.train.drop(columns=["id", spec.target]), data.test.drop(columns="id")
    metric = METRICS[spec.metric]
    truth_R = data.answers[spec.target].to_numpy()

    def score(predictions_R: np.ndarray) -> float:
        # The last bits of a sum depend on memory alignment and threads: nine digits are the same everywhere.
        return float(f"{metric.score(truth_R, predictions_R, 2):.9g}")

    scores = {"constant": score(data.sample[spec.target].to_numpy())}
    prepared = {}
    for approach, variant in rungs(spec):
        if approach not in prepared:
            X, Z = pipelines.prepare(train, test, approach, hand(spec))
            prepared[approach] = X.to_numpy(), Z.to_numpy()
        X, Z = prepared[approach]
        scores[f"{approach}.{variant}"] = score(
            pipelines.predict(X, y_N, Z, approach, variant, spec.metric, spec.classification)
        )
    return Ladder(scores, families.APPROACH[spec.family], lock(scores, metric.lower_is_better), metric.lower_is_better)


def lock(scores: Mapping[str, float], lower_is_better: bool) -> Thresholds:
    """Thresholds from the rungs' scores."""
    best = min(scores.values()) if lower_is_better else max(scores.values())
    median = statistics.median(scores[name] for name in GENERIC if name in scores)
    at = {medal: best + share * (median - best) for medal, share in BANDS.items()}
    return Thresholds(at["gold"], at["silver"], at["bronze"], median, scores["constant"])
