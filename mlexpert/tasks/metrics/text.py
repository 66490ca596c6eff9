"""Texts as they stand: no case folding, no trimming, no words for missing values, except where a line below says so.

exact_match    share of rows whose text is the same, code point by code point
any_of         share of rows whose text is one of the accepted answers, listed in one cell and separated by blanks;
               where none is accepted the empty text is right
word_jaccard   mean over rows of shared words / all words, as sets, in lower case; two texts without words: 1
levenshtein    insertions, deletions and replacements of characters, or of words; the mean over rows (row), the mean
               of each row's distance divided by its longer text (longer; two empty texts: 0), or all distances
               divided by the length of all answers (truth; may exceed 1)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from mlexpert.tasks.metrics.cells import objects
from mlexpert.tasks.metrics.record import Metric, Needs, Setting, UndefinedMetric, one_of


# ---------------------------------------------------------------- values
def _exact_match(truth_R: np.ndarray, texts_R: np.ndarray, n_labels: int) -> float:
    return float(np.mean([truth == text for truth, text in zip(truth_R, texts_R, strict=True)]))


def _any_of(truth_R: np.ndarray, texts_R: np.ndarray, n_labels: int) -> float:
    hits = [text in accepted if accepted else not text for accepted, text in zip(truth_R, texts_R, strict=True)]
    return float(np.mean(hits))


def _word_jaccard(truth_R: np.ndarray, texts_R: np.ndarray, n_labels: int) -> float:
    return float(np.mean([_overlap(truth, text) for truth, text in zip(truth_R, texts_R, strict=True)]))


def _overlap(one: str, other: str) -> float:
    ours, theirs = set(one.lower().split()), set(other.lower().split())
    return len(ours & theirs) / len(ours | theirs) if ours or theirs else 1.0


def _levenshtein(truth_R: np.ndarray, texts_R: np.ndarray, n_labels: int, *, unit: str, per: str) -> float:
    pairs = [(_units(truth, unit), _units(text, unit)) for truth, text in zip(truth_R, texts_R, strict=True)]
    distances_R = np.array([distance(truth, text) for truth, text in pairs], dtype=np.float64)
    if per == "row":
        return float(distances_R.mean())
    if per == "truth":
        return float(distances_R.sum() / sum(len(truth) for truth, _ in pairs))
    return float(np.mean(distances_R / [max(1, len(truth), len(text)) for truth, text in pairs]))


def _units(text: str, unit: str) -> Sequence[str]:
    return text.split() if unit == "words" else text


def distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Levenshtein distance, a column of the table at a time in the bits of one integer (Myers 1999, Hyyro 2003)."""
    if one == other:
        return 0
    if not one or not other:
        return len(one) + len(other)
    places: dict[Hashable, int] = {}
    for at, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << at
    last, every, count = 1 << (len(one) - 1), (1 << len(one)) - 1, len(one)
    rises, falls = every, 0  # rows of the column where the table grows or shrinks by one
    for item in other:
        equal = places.get(item, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        right_rises = falls | (every & ~(diagonal | rises))
        right_falls = rises & diagonal
        count += bool(right_rises & last) - bool(right_falls & last)
        right_rises = (right_rises << 1 | 1) & every
        right_falls = right_falls << 1 & every
        rises = right_falls | (every & ~(diagonal | right_rises))
        falls = right_rises & diagonal
    return count


# ---------------------------------------------------------------- when a value exists
def _check_rows(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    if not len(truth_R):
        raise UndefinedMetric("the answers are empty")


def _check_length(truth_R: np.ndarray, labels: Sequence[str], *, per: str, unit: str) -> None:
    _check_rows(truth_R, labels)
    if per == "truth" and not any(_units(truth, unit) for truth in truth_R):
        raise UndefinedMetric(f"the answers hold no {unit}")


def _first(truth_R: np.ndarray, n_labels: int) -> np.ndarray:
    return objects(accepted[0] if accepted else "" for accepted in truth_R)


_LEVENSHTEIN = (
    Setting("unit", "characters or words", one_of("characters", "words"), "characters"),
    Setting("per", "row, longer or truth", one_of("row", "longer", "truth"), "row"),
)

METRICS = (
    Metric("exact_match", False, Needs.TEXT, _exact_match, _check_rows),
    Metric("any_of", False, Needs.TEXT, _any_of, _check_rows, truth=Needs.RANKED, ideal=_first),
    Metric("word_jaccard", False, Needs.TEXT, _word_jaccard, _check_rows),
    Metric("levenshtein", True, Needs.TEXT, _levenshtein, _check_length, settings=_LEVENSHTEIN),
)
