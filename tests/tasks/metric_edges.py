"""What every metric is worth where its definition is silent: a line per case, for the tests and `docs/metrics.md`.

Cells are written as text: columns are separated by " / ", rows by ";" where a cell may hold blanks, else by blanks.
A value is a number, UNDEFINED (the answers are refused when the task is made) or INVALID (the predictions are refused).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mlexpert.tasks.metrics import (
    METRICS,
    BadCell,
    InvalidPrediction,
    Needs,
    UndefinedMetric,
    bind,
    evaluate,
    read,
    read_answers,
    read_indicators,
)

UNDEFINED, INVALID = "undefined", "invalid"
NOTHING: Mapping[str, Any] = {}
BLANKS = (Needs.LABELS, Needs.RANKED, Needs.TEXT, Needs.RUNS, Needs.POINTS, Needs.BOXES, Needs.CUBOIDS)


class Edge(NamedTuple):
    metric: str
    case: str
    answers: str
    predictions: str
    value: float | str
    labels: str = ""
    settings: Mapping[str, Any] = NOTHING
    beside: Mapping[str, str] = NOTHING


def split(text: str, kind: Needs) -> list[list[str]]:
    """Columns of cells."""
    columns = text.split(" / ")
    if kind in BLANKS and (kind is not Needs.LABELS or len(columns) == 1):
        return [[cell.strip() for cell in column.split(";")] for column in columns]
    return [column.split() for column in columns]


def value(edge: Edge) -> float | str:
    """What the metric says."""
    labels = tuple(edge.labels.split())
    try:
        metric = bind(METRICS[edge.metric], edge.settings)
        beside = {role: text.split() for role, text in edge.beside.items()}
        answers = read_answers(metric, split(edge.answers, metric.answers), labels, beside)
    except UndefinedMetric:
        return UNDEFINED
    codes = {label: code for code, label in enumerate(labels)}
    columns = split(edge.predictions, metric.needs)
    try:
        if len(columns) > 1 and metric.needs is Needs.LABELS:
            predictions = read_indicators(columns, {"0": 0, "1": 1})
        elif len(columns) > 1:
            predictions = np.stack([floats(column) for column in columns], axis=1)
        elif metric.needs in (Needs.LABEL, *BLANKS):
            predictions = read(metric.needs, columns[0], codes)
        else:
            predictions = floats(columns[0])
        return evaluate(metric, answers, predictions, len(labels))
    except (BadCell, InvalidPrediction):
        return INVALID


def floats(cells: list[str]) -> np.ndarray:
    """NaN and infinity too: they must be refused by the metric itself."""
    return np.array([float(cell) for cell in cells])


def same(found: float | str, expected: float | str) -> bool:
    """Equal words, or numbers that agree to nine digits."""
    if isinstance(found, str) or isinstance(expected, str):
        return found == expected
    return abs(found - expected) <= 1e-9 * max(1.0, abs(expected))


E = Edge
TAIL = -np.log(1e-15)
EDGES = [
    # ------------------------------------------------------------ one label per row
    E("accuracy", "one of four rows right", "a b b b", "a a a a", 0.25, "a b"),
    E("accuracy", "words for missing values are labels", "NA None", "None NA", 0.0, "NA None null"),
    E("accuracy", "an unknown label", "a b", "a z", INVALID, "a b"),
    E("accuracy", "no answers", " ", " ", UNDEFINED, "a b"),
    E("accuracy", "one label in the task", "a a", "a a", UNDEFINED, "a"),
    E("accuracy", "no row with a weight", "a b", "a b", UNDEFINED, "a b", beside={"weight": "0 0"}),
    E("error_rate", "one of four rows right", "a b b b", "a a a a", 0.75, "a b"),
    E("balanced_accuracy", "a label that no answer has", "a b a b", "a b a b", UNDEFINED, "a b c"),
    E("balanced_accuracy", "constant predictions", "a b b b", "b b b b", 0.5, "a b"),
    E("g_mean", "a class never hit", "a b b b", "b b b b", 0.0, "a b"),
    E("g_mean", "a label that no answer has", "a a", "a a", UNDEFINED, "a b"),
    E("macro_f1", "a label that no answer has", "a b", "a b", UNDEFINED, "a b c"),
    E("macro_f1", "the same, with absent: seen", "a b", "a b", 1.0, "a b c", {"absent": "seen"}),
    E("macro_f1", "a seen label that no answer has", "a b", "a c", 1 / 3, "a b c", {"absent": "seen"}),
    E("macro_f1", "constant predictions", "a b b b", "b b b b", 3 / 7, "a b"),
    E("f1", "no positive answer", "a a a", "a a b", UNDEFINED, "a b"),
    E("f1", "no positive prediction", "a b b", "a a a", 0.0, "a b"),
    E("f1", "three labels", "a b c", "a b c", UNDEFINED, "a b c"),
    E("micro_f1", "accuracy, whatever the labels", "a b c c", "a a a c", 0.5, "a b c d"),
    E("weighted_f1", "a class never predicted counts 0", "a b b b", "a a a a", 0.25 * 0.4, "a b"),
    E("f_beta", "no positive prediction", "a b", "a a", 0.0, "a b", {"beta": 2, "average": "binary"}),
    E("f_beta", "beta 0", "a b", "a b", UNDEFINED, "a b", {"beta": 0, "average": "binary"}),
    E("jaccard", "no positive prediction", "a b", "a a", 0.0, "a b", {"average": "binary"}),
    E("jaccard", "no positive answer", "a a", "a b", UNDEFINED, "a b", {"average": "binary"}),
    E("jaccard", "macro, a label that no answer has", "a b", "a b", UNDEFINED, "a b c", {"average": "macro"}),
    E("kappa", "constant predictions", "a b b", "b b b", 0.0, "a b"),
    E("kappa", "one label in the answers", "b b b", "b b b", UNDEFINED, "a b"),
    E("qwk", "a rating between that nobody gives", "0 1 4 4", "0 4 1 4", 5 / 17, settings={"low": 0, "high": 4}),
    E("qwk", "a wider range", "1 2 3", "1 2 7", 3 / 7, settings={"low": 1, "high": 7}),
    E("qwk", "a rating out of range", "1 2 3", "1 2 7", INVALID, settings={"low": 1, "high": 3}),
    E("qwk", "the same, clipped", "1 2 3", "1 2 7", 1.0, settings={"low": 1, "high": 3, "outside": "clip"}),
    E("qwk", "a fraction", "1 2 3", "1 2.5 3", INVALID, settings={"low": 1, "high": 3}),
    E("qwk", "constant predictions", "1 2 3", "2 2 2", 0.0, settings={"low": 1, "high": 3}),
    E("qwk", "constant answers", "2 2 2", "2 2 2", UNDEFINED, settings={"low": 1, "high": 3}),
    E("qwk", "an answer out of range", "1 2 9", "1 2 3", UNDEFINED, settings={"low": 1, "high": 3}),
    E("qwk", "no range set", "1 2 3", "1 2 3", UNDEFINED),
    E("mcc", "constant predictions", "a b b", "b b b", 0.0, "a b"),
    E("mcc", "one label in the answers", "b b b", "b b b", UNDEFINED, "a b"),
    # ------------------------------------------------------------ probabilities and scores
    E("logloss", "a confident miss and a hit", "1 0", "0 0", TAIL / 2, "0 1"),
    E("logloss", "exact hits", "1 0", "1 0", 0.0, "0 1"),
    E("logloss", "one class in the answers", "1 1", "0.5 0.5", np.log(2), "0 1"),
    E("logloss", "a row within 1e-3 of 1 is rescaled", "a", "0.333 / 0.333 / 0.333", np.log(3), "a b c"),
    E("logloss", "a row of sum 1.5", "a", "0.5 / 0.5 / 0.5", INVALID, "a b c"),
    E("logloss", "a row of sum 0.5", "a", "0.2 / 0.3", INVALID, "a b"),
    E("logloss", "above 1", "1 0", "1.2 0", INVALID, "0 1"),
    E("logloss", "NaN", "1 0", "0.5 nan", INVALID, "0 1"),
    E("logloss", "two target columns", "0 1 / 1 1", "0.5 0.5 / 0.5 1", np.log(2) * 0.75, "0 1"),
    E("brier", "constant 0.5", "0 1", "0.5 0.5", 0.25, "0 1"),
    E("brier", "three labels", "a b c", "0.5 0.5 0.5", UNDEFINED, "a b c"),
    E("auc", "one class in the answers", "1 1 1", "0.1 0.2 0.3", UNDEFINED, "0 1"),
    E("auc", "constant predictions", "0 1 1", "0.7 0.7 0.7", 0.5, "0 1"),
    E("auc", "infinite score", "0 1 1", "0 1 inf", INVALID, "0 1"),
    E("auc", "a target column of one class", "0 1 1 / 0 0 0", "0 1 1 / 0 1 1", UNDEFINED, "0 1"),
    E("auc", "a group of one class", "0 1 1 1", "0 1 1 1", UNDEFINED, "0 1", beside={"group": "a a b b"}),
    E("multiclass_auc", "equal rows", "a b c", "0.2 0.2 0.2 / 0.3 0.3 0.3 / 0.5 0.5 0.5", 0.5, "a b c",
      {"mode": "ovr"}),
    E("multiclass_auc", "a label that no answer has", "a b", "1 0 / 0 1 / 0 0", UNDEFINED, "a b c", {"mode": "ovo"}),
    E("average_precision", "no positive answer", "0 0", "0.1 0.2", UNDEFINED, "0 1"),
    E("average_precision", "constant predictions", "0 1 1 0", "0.5 0.5 0.5 0.5", 0.5, "0 1"),
    E("weighted_auc", "constant predictions", "0 1", "0 0", (2 * 0.4 * 0.8 + 0.6 * 0.3) / 1.4, "0 1",
      {"edges": [0, 0.4, 1], "weights": [2, 1]}),
    E("weighted_auc", "one class in the answers", "1 1", "0 1", UNDEFINED, "0 1",
      {"edges": [0, 0.4, 1], "weights": [2, 1]}),
    E("gini", "constant predictions", "1 2 3", "5 5 5", 0.0),
    E("gini", "constant answers", "2 2 2", "1 2 3", UNDEFINED),
    E("gini", "a negative answer", "-1 2 2", "1 2 3", UNDEFINED),
    E("gini", "two classes: 2 AUC - 1", "0 1 0 1", "0.1 0.4 0.35 0.8", 1.0),
    E("probabilistic_f", "no predicted mass", "0 1", "0 0", 0.0, "0 1"),
    E("probabilistic_f", "no positive answer", "0 0", "0 1", UNDEFINED, "0 1"),
    E("bias_auc", "an identity of one class", "0 1 1 0", "0 1 1 0", UNDEFINED, "0 1", beside={"identity": "0 1 1 0"}),
    E("bias_auc", "no identity column", "0 1 1 0", "0 1 1 0", UNDEFINED, "0 1"),
    E("top_k_accuracy", "equal scores help nobody", "a b c", "1 1 1 / 1 1 1 / 1 1 1", 0.0, "a b c", {"k": 2}),
    E("top_k_accuracy", "k as large as the label set", "a b c", "1 0 0 / 0 1 0 / 0 0 1", UNDEFINED, "a b c", {"k": 3}),
    # ------------------------------------------------------------ several labels per row
    E("hamming", "an empty row is right", "x y; ;", "x; ; y", 2 / 6, "x y"),
    E("hamming", "one column per label", "1 0 / 0 0", "1 0 / 1 0", 0.25),
    E("subset_accuracy", "an empty row is right", "x y; ; x", "x; ; x", 2 / 3, "x y"),
    E("multilabel_f", "samples: empty against empty", "x; ", "x; ", 1.0, "x y", {"average": "samples"}),
    E("multilabel_f", "samples: empty against some", "x; ", "x; y", 0.5, "x y", {"average": "samples"}),
    E("multilabel_f", "a repeated label counts once", "x; y", "x x; y", 1.0, "x y", {"average": "micro"}),
    E("multilabel_f", "macro: a label that no answer has", "x; x", "x; y", UNDEFINED, "x y", {"average": "macro"}),
    E("multilabel_f", "micro: no label at all", " ; ", "x; y", UNDEFINED, "x y", {"average": "micro"}),
    E("multilabel_f", "an unknown label", "x; y", "x; z", INVALID, "x y", {"average": "micro"}),
    E("multilabel_jaccard", "samples: empty against empty", "x y; ", "x; ", 0.75, "x y", {"average": "samples"}),
    E("lrap", "equal scores take the worst rank", "1 / 0 / 0", "0.5 / 0.5 / 0.1", 0.5, "0 1"),
    E("lrap", "a row with no label counts 1", "0 1 / 0 0", "0.9 0.1 / 0.1 0.9", 0.75, "0 1"),
    E("lrap", "no label at all", "0 0 / 0 0", "0.9 0.1 / 0.1 0.9", UNDEFINED, "0 1"),
    E("lwlrap", "a row with no label drops out", "0 1 / 0 0", "0.9 0.1 / 0.1 0.9", 0.5, "0 1"),
    # ------------------------------------------------------------ numbers
    E("rmse", "NaN", "1 2", "1 nan", INVALID),
    E("rmse", "an answer that is no number", "1 nan", "1 2", UNDEFINED),
    E("rmse", "two target columns: the mean of both", "0 0 / 0 0", "3 3 / 1 1", 2.0),
    E("mae", "infinity", "1 2", "1 inf", INVALID),
    E("mae", "rows that do not count", "1 2 3", "1 2 99", 0.0, beside={"keep": "1 1 0"}),
    E("mae", "no row counts", "1 2", "1 2", UNDEFINED, beside={"keep": "0 0"}),
    E("mae", "groups count the same", "0 0 0", "1 1 4", 2.5, beside={"group": "a a b"}),
    E("wmae", "weights", "0 0", "1 4", 1.6, beside={"weight": "4 1"}),
    E("wmae", "no weight column", "0 0", "1 4", UNDEFINED),
    E("wmae", "a negative weight", "0 0", "1 4", UNDEFINED, beside={"weight": "-1 2"}),
    E("mse", "NaN", "1 2", "1 nan", INVALID),
    E("medae", "an even number of rows", "0 0", "1 2", 1.5),
    E("rmsle", "a negative prediction", "1 2 3", "1 -2 3", INVALID),
    E("rmsle", "the same, clipped", "1 2 3", "1 -2 3", np.log(3) / np.sqrt(3), settings={"negative": "clip"}),
    E("rmsle", "between -1 and 0", "1 2", "-0.5 2", INVALID),
    E("rmsle", "the same, clipped", "1 2", "-0.5 2", np.log(2) / np.sqrt(2), settings={"negative": "clip"}),
    E("rmsle", "a negative answer", "-0.5 2", "1 2", UNDEFINED),
    E("mape", "an answer of 0", "0 2", "1 2", UNDEFINED),
    E("mape", "the same, skipped", "0 2", "1 3", 0.5, settings={"zeros": "skip"}),
    E("mape", "only answers of 0", "0 0", "1 3", UNDEFINED, settings={"zeros": "skip"}),
    E("rmspe", "an answer of 0", "0 2", "1 2", UNDEFINED),
    E("rmspe", "the same, skipped, in percent", "0 2", "1 3", 50.0, settings={"zeros": "skip", "percent": True}),
    E("smape", "zero against zero", "0 1", "0 1", 0.0),
    E("smape", "zero against five", "0", "5", 200.0),
    E("r2", "constant answers", "2 2", "1 3", UNDEFINED),
    E("r2", "the mean as prediction", "1 3", "2 2", 0.0),
    E("r2", "worse than the mean", "1 3", "3 1", -3.0),
    E("r2", "NaN", "1 3", "1 nan", INVALID),
    E("mase", "a scale of 0", "1 3", "1 3", UNDEFINED, beside={"scale": "1 0"}),
    E("log_mae", "no error at all", "1 3", "1 3", np.log(1e-9)),
    E("poisson_deviance", "a prediction of 0", "1 3", "0 3", INVALID),
    E("poisson_deviance", "an answer of 0", "0", "0.5", 1.0),
    E("poisson_deviance", "a negative answer", "-1", "0.5", UNDEFINED),
    E("pearson", "constant predictions", "1 2 3", "1 1 1", 0.0),
    E("pearson", "constant answers", "1 1 1", "1 2 3", UNDEFINED),
    E("pearson", "a constant column of two", "1 2 3 / 1 2 3", "1 1 1 / 1 2 3", 0.5),
    E("spearman", "constant predictions", "1 2 3", "1 1 1", 0.0),
    E("spearman", "constant answers", "1 1 1", "1 2 3", UNDEFINED),
    E("concordance", "constant predictions", "1 2 3", "5 5 5", 0.5, settings={"predicts": "risk"}),
    E("concordance", "larger risk, earlier event", "1 2 3", "3 2 1", 1.0, settings={"predicts": "risk"}),
    E("concordance", "no event", "1 2 3", "3 2 1", UNDEFINED, settings={"predicts": "risk"}, beside={"event": "0 0 0"}),
    E("concordance", "the last row is the only event", "1 2 3", "3 2 1", UNDEFINED, settings={"predicts": "risk"},
      beside={"event": "0 0 1"}),
    E("concordance", "an event and a survivor at one time", "2 2", "3 1", 1.0, settings={"predicts": "risk"},
      beside={"event": "1 0"}),
    E("concordance", "risk or time not set", "1 2", "1 2", UNDEFINED),
    E("pinball", "too low at 0.9", "1", "0", 0.9, settings={"quantiles": [0.9]}),
    E("pinball", "too high at 0.9", "0", "1", 0.1, settings={"quantiles": [0.9]}),
    E("pinball", "quantile 1", "0", "1", UNDEFINED, settings={"quantiles": [1.0]}),
    E("crps", "a step at the answer", "1 2", "0 0 / 1 0 / 1 1", 0.0, settings={"grid": [0, 1, 2]}),
    E("crps", "a falling row", "1", "0.5 / 0.4 / 1", INVALID, settings={"grid": [0, 1, 2]}),
    E("crps", "above 1", "1", "0.5 / 0.6 / 1.1", INVALID, settings={"grid": [0, 1, 2]}),
    E("laplace", "best possible", "2000", "2000 / 70", -np.log(70 * np.sqrt(2))),
    E("laplace", "confidence below the floor", "2000", "2000 / -5", -np.log(70 * np.sqrt(2))),
    E("laplace", "error above the cap", "0", "9999 / 70", -1000 / 35 / np.sqrt(2) - np.log(70 * np.sqrt(2))),
    E("kl_divergence", "nothing where the answer is all", "1 / 0", "0 / 1", TAIL),
    E("kl_divergence", "votes are scaled to shares", "3 / 1", "0.75 / 0.25", 0.0),
    E("kl_divergence", "a row without votes", "0 / 0", "0.5 / 0.5", UNDEFINED),
    E("kl_divergence", "a row of sum 0.8", "3 / 1", "0.6 / 0.2", INVALID),
    E("angular_error", "opposite directions", "0 / 1.5707963267949", "3.14159265358979 / 1.5707963267949", np.pi),
    E("angular_error", "at the pole the azimuth is nothing", "0 / 0", "2 / 0", 0.0),
    E("distance_quantiles", "the other end of the world", "0 / 0", "0 / 180", np.pi * 6_371_000),
    # ------------------------------------------------------------ lists
    E("map_at_k", "repeats count once", "1", "2 1 1 1 1", 0.5, settings={"k": 5}),
    E("map_at_k", "fewer items than k", "1 2; 3", "1; 3", 0.75, settings={"k": 5}),
    E("map_at_k", "no items", "1 2; 3", " ; 3", 0.5, settings={"k": 5}),
    E("map_at_k", "items behind k", "1", "2 1", 0.0, settings={"k": 1}),
    E("map_at_k", "an empty answer", "1; ", "1; 2", UNDEFINED, settings={"k": 5}),
    E("map_at_k", "the same, counted 0", "1; ", "1; 2", 0.5, settings={"k": 5, "empty": "zero"}),
    E("map_at_k", "the same, skipped", "1; ", "1; 2", 1.0, settings={"k": 5, "empty": "skip"}),
    E("map_at_k", "k not set", "1", "1", UNDEFINED),
    E("recall_at_k", "repeats count once", "1 2", "1 1 1", 0.5, settings={"k": 5}),
    E("recall_at_k", "more true items than k", "1 2 3", "1 2", 1.0, settings={"k": 2}),
    E("ndcg", "a negative grade", "-1 1", "0.1 0.2", UNDEFINED, settings={"k": None, "gain": "linear"}),
    E("ndcg", "a query with one document", "1", "0.1", UNDEFINED, settings={"k": None, "gain": "linear"}),
    E("ndcg", "equal scores share their ranks", "1 0", "0.5 0.5", (1 + 1 / np.log2(3)) / 2,
      settings={"k": None, "gain": "linear"}),
    E("ndcg", "a query without a relevant document", "1 0 0 0", "1 0 1 0", UNDEFINED,
      settings={"k": None, "gain": "linear"}, beside={"group": "a a b b"}),
    E("ndcg", "the same, skipped", "1 0 0 0", "1 0 1 0", 1.0,
      settings={"k": None, "gain": "linear", "empty": "skip"}, beside={"group": "a a b b"}),
    E("ndcg", "the same, counted 0", "1 0 0 0", "1 0 1 0", 0.5,
      settings={"k": None, "gain": "linear", "empty": "zero"}, beside={"group": "a a b b"}),
    E("order", "reversed", "a b c", "c b a", -1.0),
    E("order", "a missing item", "a b c", "a b", INVALID),
    E("order", "a repeated item", "a b c", "a b b", INVALID),
    E("order", "rows of one item only", "a; b", "a; b", UNDEFINED),
    # ------------------------------------------------------------ texts
    E("exact_match", "missing-value words are texts", "NA; None; null", "; ; n/a", 0.0),
    E("exact_match", "case counts", "Ab; b", "ab; b", 0.5),
    E("any_of", "one of two is right", "1:2 3:4; ", "3:4; ", 1.0),
    E("any_of", "an answer where none is accepted", "1:2 3:4; ", "3:4; 1:2", 0.5),
    E("word_jaccard", "two texts without words", "; a", "; a", 1.0),
    E("word_jaccard", "no words against some", "a b; c", " ; c", 0.5),
    E("levenshtein", "empty against some", "abc; ", "; ab", 2.5),
    E("levenshtein", "two empty texts, per longer", "; ab", "; ac", 0.25, settings={"per": "longer"}),
    E("levenshtein", "may exceed 1, per truth", "a", "b c", 2.0, settings={"unit": "words", "per": "truth"}),
    E("levenshtein", "no word in any answer, per truth", ";", "a; b", UNDEFINED,
      settings={"unit": "words", "per": "truth"}),
    # ------------------------------------------------------------ masks of 4 x 5 pixels
    E("dice", "empty against empty", "; 1 2", "; 1 2", 1.0, settings={"shape": [4, 5]}),
    E("dice", "the same, skipped", "; 1 2", "; 1 1", 2 / 3, settings={"shape": [4, 5], "empty": "skip"}),
    E("dice", "empty against some", "; 1 2", "3 1; 1 2", 0.5, settings={"shape": [4, 5]}),
    E("dice", "a minus is empty", "-; 1 2", "; 1 2", 1.0, settings={"shape": [4, 5]}),
    E("dice", "no pixel in any answer, pixels", "; ", "3 1; 1 2", UNDEFINED,
      settings={"shape": [4, 5], "average": "pixels"}),
    E("dice", "a start without a length", "1 2", "1", INVALID, settings={"shape": [4, 5]}),
    E("dice", "past the end of the image", "1 2", "1 100", INVALID, settings={"shape": [4, 5]}),
    E("dice", "up to the end of the image", "1 2", "1 20", 2 * 2 / 22, settings={"shape": [4, 5]}),
    E("dice", "unsorted runs", "1 2", "5 2 1 2", INVALID, settings={"shape": [4, 5]}),
    E("dice", "overlapping runs", "1 2", "1 3 2 2", INVALID, settings={"shape": [4, 5]}),
    E("dice", "touching runs", "1 4", "1 2 3 2", 1.0, settings={"shape": [4, 5]}),
    E("dice", "a start of 0", "1 2", "0 3", INVALID, settings={"shape": [4, 5]}),
    E("dice", "a length of 0", "1 2", "1 0", INVALID, settings={"shape": [4, 5]}),
    E("dice", "a fraction", "1 2", "1.5 2", INVALID, settings={"shape": [4, 5]}),
    E("dice", "a word", "1 2", "nan", INVALID, settings={"shape": [4, 5]}),
    E("dice", "a comma", "1 2", "1,3", INVALID, settings={"shape": [4, 5]}),
    E("dice", "an answer past the end", "1 100", "1 2", UNDEFINED, settings={"shape": [4, 5]}),
    E("dice", "no size anywhere", "1 2", "1 2", UNDEFINED),
    E("dice", "sizes beside the answers", "1 2; 1 2", "1 2; 1 5", INVALID, beside={"height": "4 2", "width": "5 2"}),
    E("iou", "empty against empty", "; 1 2", "; 1 1", 0.75, settings={"shape": [4, 5]}),
    E("mask_f", "some against empty", "1 2", "", 0.0, settings={"shape": [4, 5], "beta": 0.5}),
    E("mask_precision", "an overlap at a threshold misses it", "1 2", "1 1", 0.0, settings={"shape": [4, 5]}),
    E("mask_precision", "empty against empty", "; 1 2", "; 1 2", 1.0, settings={"shape": [4, 5]}),
    E("mask_precision", "empty against some", "; 1 2", "1 1; 1 2", 0.5, settings={"shape": [4, 5]}),
    E("volume_overlap", "a volume empty in both is left out", "1 2; ", "1 2; ", 1.0,
      beside={"height": "4 4", "width": "5 5", "volume": "a b", "layer": "1 1"}),
    E("volume_overlap", "a volume empty in one", "1 2; 1 2", "1 2; ", 0.4 * 0.5 + 0.6 * 0.5,
      beside={"height": "4 4", "width": "5 5", "volume": "a b", "layer": "1 1"}),
    E("volume_overlap", "images of two sizes in a volume", "1 2; 1 2", "1 2; 1 2", UNDEFINED,
      beside={"height": "4 5", "width": "5 5", "volume": "a a", "layer": "1 2"}),
    # ------------------------------------------------------------ objects
    E("point_f1", "on the border is outside", "cat 1 0 0 2 2", "cat 0 1", 0.0),
    E("point_f1", "a second point in a box is wrong", "cat 1 0 0 2 2", "cat 1 1 cat 1.5 1", 2 / 3),
    E("point_f1", "no points", "cat 1 0 0 2 2", "", 0.0),
    E("point_f1", "no box in any answer", "; ", "cat 1 1; ", UNDEFINED),
    E("point_f1", "a broken group", "cat 1 0 0 2 2", "cat 1", INVALID),
    E("box_map", "no boxes", "cat 1 0 0 2 2", "", 0.0, settings={"curve": "coco"}),
    E("box_map", "a label that no answer has", "cat 1 0 0 2 2", "cat 0.5 0 0 2 2 dog 1 0 0 2 2", 1.0,
      settings={"curve": "voc"}),
    E("box_map", "the same box twice", "cat 1 0 0 2 2", "cat 0.9 5 5 6 6 cat 0.5 0 0 2 2", 0.5,
      settings={"curve": "voc"}),
    E("box_map", "a box that ends before it begins", "cat 1 0 0 2 2", "cat 0.9 2 0 0 2", INVALID,
      settings={"curve": "voc"}),
    E("box_map", "no box in any answer", "; ", "; ", UNDEFINED, settings={"curve": "voc"}),
    E("cuboid_map", "turned by a half it is the same", "1 0 0 0 2 3 4 0 car", "1 0 0 0 2 3 4 3.1415926535898 car", 1.0),
    E("cuboid_map", "a row without an object in the answers", "; 1 0 0 0 2 3 4 0 car", "; ", UNDEFINED),
    E("cuboid_map", "a cuboid without height", "1 0 0 0 2 3 4 0 car", "1 0 0 0 2 3 0 0 car", INVALID),
]  # fmt: skip
