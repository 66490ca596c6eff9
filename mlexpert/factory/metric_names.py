"""What Kaggle, its competitions' texts and scikit-learn call a metric -> what it is called here, with its settings.

Only names that say what is computed are here. "Custom Metric", "MAP@{K}" or "F-Score Beta" leave something open, and a
guessed metric is worse than none: None then, and a person has to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Named = tuple[str, Mapping[str, Any]]

# First match wins and its words are taken out, so longer names stand before the shorter ones inside of them.
_TEXT: tuple[tuple[str, str], ...] = (
    (r"custom metric|masked \w+|group \w+|multi ?label \w*", ""),
    (r"(?<!quadratic )weighted (root |mean |multi|categor|log|rmse|mae|auc|area|average|f1)\w*", ""),
    (r"root mean squared? log(arithmic)? error|rmsle|rmlse", "rmsle"),
    (r"(mean columnwise )?root mean squared? percentage error|rmspe", "rmspe"),
    (r"root mean squared? error|rmse|mcrmse", "rmse"),
    (r"symmetric mean absolute percentage error|smape", "smape"),
    (r"mean absolute percentage error|mape", "mape"),
    (r"median absolute error|medae", "medae"),
    (r"mean absolute error|\bmae\b", "mae"),
    (r"mean squared log(arithmic)? error|msle", ""),
    (r"mean squared error|\bmse\b", "mse"),
    (r"r 2 score|r2 score|\br2\b|coefficient of determination", "r2"),
    (r"area under (the )?(receiver operating characteristic|roc)( curve)?|area under curve", "auc"),
    (r"roc auc|auc roc|auroc|\bauc\b", "auc"),
    (r"quadratic(ally)? weighted kappa|quadratic cohen kappa", "qwk"),
    (r"multi ?class (log ?)?loss|logarithmic loss|log ?loss|cross entropy", "logloss"),
    (r"matthews correlation( coefficient)?|matthews corrcoef|\bmcc\b", "mcc"),
    (r"(macro averaged |macro )f1?( score)?|f1?( score)? macro|(mean )?macro f1", "macro_f1"),
    (r"micro averaged? f1?( score)?|micro f1( score)?", "micro_f1"),
    (r"balanced accuracy", ""),
    (r"(categorization|classification|multi ?class)? ?accuracy( score)?", "accuracy"),
    (r"normalized gini( index| coefficient)?", "gini"),
    (r"\bspearman( ?s)?( r)?\b( rank)?( correlation)?( coefficient)?", "spearman"),
    (r"pearson ?correlation ?coefficient|pearson( s)?( correlation)?( coefficient)?", "pearson"),
    (r"laplace log likelihood", "laplace"),
    (r"kullback leibler divergence|kl divergence", "kl_divergence"),
    (r"levenshtein mean|mean levenshtein distance|levenshtein distance", "levenshtein"),
    (r"label weighted label ranking average precision|lwlrap|weighted label ranking average precision", "lwlrap"),
    (r"mean ?angular ?error", "angular_error"),
)  # fmt: skip
_MAP_AT_K = r"(?:map|mean average precision)\s*@\s*(\d+)"

# A function of scikit-learn, with the words of its arguments that matter.
_FUNCTIONS: Mapping[str, str] = {
    "accuracy_score": "accuracy", "log_loss": "logloss", "mean_absolute_error": "mae", "r2_score": "r2",
    "median_absolute_error": "medae", "matthews_corrcoef": "mcc", "mean_absolute_percentage_error": "mape",
    "balanced_accuracy_score": "balanced_accuracy", "root_mean_squared_error": "rmse", "roc_auc_score": "auc",
    "root_mean_squared_log_error": "rmsle", "brier_score_loss": "brier",
}  # fmt: skip
_ROOTED = {"mean_squared_error": ("rmse", "mse"), "mean_squared_log_error": ("rmsle", "")}


def metric_named(text: str) -> Named | None:
    """The one metric that `text` names; None if it names none, several, or one that is not fully said."""
    if at_k := re.search(_MAP_AT_K, text, re.I):
        return "map_at_k", {"k": int(at_k.group(1))}
    text = text.replace("²", "2")
    words = re.sub(r"[^a-z0-9]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
    found = []
    for pattern, name in _TEXT:
        words, times = re.subn(pattern, " ", words)
        found += [name] * bool(times)
    return (found[0], {}) if len(set(found)) == 1 and found[0] else None


def metric_of_function(name: str, rooted: bool, words: Mapping[str, Any]) -> Named | None:
    """What a call of scikit-learn computes; `rooted`: a square root is taken of it, `words`: its literal keywords."""
    if name in _ROOTED:
        metric = _ROOTED[name][0 if rooted or words.get("squared") is False else 1]
    elif name == "f1_score":
        average = words.get("average", "binary")
        metric = {"macro": "macro_f1", "micro": "micro_f1", "weighted": "weighted_f1", "binary": "f1"}.get(average, "")
    elif name == "cohen_kappa_score":
        metric = {"quadratic": "qwk", None: "kappa"}.get(words.get("weights"), "")
    elif name == "roc_auc_score" and "multi_class" in words:
        return ("multiclass_auc", {"mode": words["multi_class"]}) if words["multi_class"] in ("ovr", "ovo") else None
    else:
        metric = _FUNCTIONS.get(name, "")
    return (metric, {}) if metric else None
