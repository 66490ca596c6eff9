"""The metric that a competition's prose names, in the words of Kaggle's evaluation pages.

Names are looked for in the part under the heading "Evaluation", in the order in which they stand there; a longer name
wins over a shorter one inside of it. A text may name several ("accuracy" of a sensor before the log loss that counts):
all are candidates, and the first that the target can have is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_NUMBER_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "ten": 10, "twenty": 20}


class Named(NamedTuple):
    """A metric as the text says it; `settings` as far as the text decides them."""

    metric: str
    settings: Mapping[str, Any]
    words: str
    at: int  # where in the text


def _k(words: str, after: str) -> dict[str, Any]:
    """The k of MAP@k, from the name itself or from the formula and sentences after it."""
    later = r"@\s*\{?(\d+)|min\(\s*n\s*,\s*(\d+)|(?:up to|top|maximum of)\s+(\d+|[a-z]+)"
    found = re.search(r"@\s*\{?(\d+)|top[- ](\d+)", words) or re.search(later, after)
    said = next((group for group in found.groups() if group), "") if found else ""
    k = int(said) if said.isdigit() else _NUMBER_WORDS.get(said, 0)
    return {"k": k} if k else {}


def _beta(words: str, after: str) -> dict[str, Any]:
    found = re.search(r"f[-_ ]?\{?(\d(?:\.\d)?)", words)
    return {"beta": float(found[1]) if found else 1.0}


_ROOT, _MEAN = r"root[- ]mean[- ]squared?[- ]", r"(?:mean[- ]?)?(?:column[- ]?wise[- ])?(?:mean[- ]?)?"
# Patterns by metric; of matches that start at one place the longest wins, of equally long ones the first.
WORDS: Mapping[str, tuple[str, ...]] = {
    "rmsle": (
        rf"{_ROOT}log(?:arithmic)?[- ]error", r"\brmsle\b", rf"(?:{_ROOT}error|\brmse\b)[^.]{{0,60}}logarithm",
    ),
    "rmspe": (rf"{_ROOT}percentage[- ]error", r"\brmspe\b"),
    "rmse": (rf"{_MEAN}{_ROOT}(?:error|deviation)", r"\b(?:mc)?rmse\b"),
    "smape": (r"symmetric mean absolute percent(?:age)? error", r"\bsmape\b"),
    "mape": (r"mean absolute percent(?:age)? error", r"\bmape\b"),
    "wmae": (r"weighted mean absolute error", r"\bwmae\b", r"mean absolute error.{0,60}weight"),
    "log_mae": (r"log(?:arithm)? of the mean absolute error", r"mean absolute error[^.]{0,80}\blog(?:arithm)?\b"),
    "mae": (r"mean[- ]absolute[- ]error", r"\bmae\b", r"(?:average|mean) absolute difference"),
    "medae": (r"median absolute error",),
    "mse": (r"mean[- ]squared?[- ]error", r"\bmse\b"),
    "r2": (r"coefficient of determination", r"\br[- ]?squared\b", r"\br\^?2\b", r"r²"),
    "average_precision": (
        r"average precision score", r"area under (?:the )?(?:precision[- ]recall|pr) curve", r"\bauprc\b",
        r"\bpr[- ]auc\b",
    ),
    "auc": (
        r"area under (?:the )?(?:roc|receiver|curve)[a-z ]*", r"\broc[- ]?auc\b", r"\bauc(?:[- ]roc)?\b", r"\bauroc\b",
        r"roc curve",
    ),
    "logloss": (
        r"(?:multi[- ]?class(?:ification)? )?log(?:arithmic)?[- ]?loss", r"\blogloss\b", r"cross[- ]entropy",
        r"multi[- ]?class loss",
    ),
    "qwk": (r"quadratic(?:ally)? weighted (?:cohen'?s )?kappa", r"\bqwk\b"),
    "kappa": (r"(?:cohen'?s? )?kappa",),
    "mcc": (r"matthews correlation", r"\bmcc\b"),
    "balanced_accuracy": (r"balanced accuracy", r"macro[- ]averaged recall"),
    "map_at_k": (
        r"mean average precision\s*@\s*\d*", r"\bmap\s*@\s*\{?\w*", r"\bmpa\s*@\s*\d+",
        r"mean average precision(?: at \d+)?",
    ),
    "ndcg": (r"normali[sz]ed discounted cumulative gain", r"\bndcg(?:@\d+)?"),
    "top_k_accuracy": (r"top[- ]\d+ accuracy",),
    "macro_f1": (r"macro[- ](?:averaged? )?f[-_ ]?1?[- ]?score", r"macro[- ]f1", r"f1[- ]score \(macro\)"),
    "micro_f1": (r"micro[- ](?:averaged? )?f[-_ ]?1[- ]?(?:score)?",),
    "weighted_f1": (r"weighted[- ](?:averaged? )?f[-_ ]?1[- ]?(?:score)?",),
    "f_beta": (r"\bf[-_ ]?(?:0\.5|2)[- ]?score\b", r"\bf[-_]?beta\b"),
    "f1": (rf"{_MEAN}f[-_ ]?1(?:[- ]score)?\b", r"\bf[-_ ]score\b", r"\bf[-_ ]measure\b"),
    "gini": (r"(?:normali[sz]ed )?gini(?: coefficient| index)?",),
    "spearman": (r"spearman(?:'?s)?[a-z ]*",),
    "pearson": (r"pearson(?:'?s)?[a-z ]*",),
    "concordance": (r"concordance index", r"\bc[- ]index\b"),
    "laplace": (r"laplace log[- ]likelihood",),
    "kl_divergence": (r"kullback[- –]l(?:ei|ie)bler", r"\bkl[- ]divergence"),
    "crps": (r"continuous(?:ly)? ranked probability score", r"\bcrps\b"),
    "pinball": (r"pinball loss", r"quantile loss"),
    "poisson_deviance": (r"poisson deviance",),
    "levenshtein": (r"levenshtein",),
    "lwlrap": (
        r"label[- ]weighted label[- ]ranking average precision", r"\blwlrap\b",
        r"weighted label ranking average precision",
    ),
    "lrap": (r"label[- ]ranking average precision", r"\blrap\b"),
    "dice": (r"\bdice\b",),
    "mask_precision": (r"mean average precision at different intersection over union[a-z ()]*",),
    "word_jaccard": (r"word[- ]level jaccard",),
    "multilabel_jaccard": (r"jaccard",),
    "hamming": (r"hamming loss",),
    "error_rate": (r"(?:top-1 )?(?:mis)?classification error", r"misclassification rate"),
    "accuracy": (
        r"(?:categori[sz]ation |classification |multi-?class )?accuracy",
        r"percentage of[a-z ]+(?:correct|you correctly)",
    ),
}  # fmt: skip
_SETTINGS: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    "map_at_k": _k, "ndcg": _k, "top_k_accuracy": _k, "f_beta": _beta,
}  # fmt: skip
_HEADING = r"^[ \t#*]*{}[ \t*:]*$"
_STARTS = re.compile(
    _HEADING.format(r"(?:competition )?(?:evaluation(?: metric| criteria)?|metric|scoring)"), re.I | re.M
)
_ENDS = re.compile(
    _HEADING.format(
        r"(?:submission(?: file)?(?: format)?|submission instructions|time ?line|prizes|data ?set description|"
        r"code requirements|dataset|data(?: fields| description)?|files|citation|acknowledge?ments|about[^\n]*)"
    ),
    re.I | re.M,
)


def evaluation(text: str) -> str:
    """The part about the metric; "" if no heading says where it is."""
    start = _STARTS.search(text)
    if start is None:
        return ""
    end = _ENDS.search(text, start.end())
    return text[start.end() : end.start() if end else start.end() + 4000]


def named(text: str) -> list[Named]:
    """Metrics that the text names, in its order: first those of the evaluation part, then those of the rest."""
    part = evaluation(text)
    found = _all(part) + ([] if part else _all(text))
    first: dict[str, Named] = {}
    for one in found:
        first.setdefault(one.metric, one)
    return list(first.values())


def _all(text: str) -> list[Named]:
    plain = re.sub(r"\s+", " ", text.lower().replace("\\", " ").replace("*", " "))
    matches = [
        (match.start(), -match.end(), order, name, match[0])
        for order, (name, patterns) in enumerate(WORDS.items())
        for pattern in patterns
        for match in re.finditer(pattern, plain)
    ]
    found: list[Named] = []
    covered = 0
    for start, end, _, name, words in sorted(matches):
        if start >= covered:
            settings = _SETTINGS[name](words, plain[-end : -end + 600]) if name in _SETTINGS else {}
            found.append(Named(name, settings, words.strip(), start))
            covered = -end
    return found
