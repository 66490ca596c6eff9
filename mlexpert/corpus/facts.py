"""What a reader learns from a task's public description: the only input of scripts and teachers."""

from __future__ import annotations

import re
from dataclasses import dataclass

CLASSIFICATION = ("auc", "accuracy", "macro_f1", "logloss")
_NAME = re.compile(r"`([^`]+)`")

CUES = {  # approach -> what a note that calls for it says
    "linear": r"add up|adds a little",
    "product": r"product of|multiply them|times",
    "ratio": r"ratio of|per unit|relative to",
    "cycle": r"repeats every|cycle of|periodic",
    "trees": r"thresholds|jumps|cut-off",
    "near": r"close in|neighbours|[Ss]imilar",
    "log": r"exponentially|percentage|orders of magnitude",
    "group": r"differs by|another effect|its own direction",
    "words": r"words",
    "shape": r"image",
}


@dataclass(frozen=True)
class Facts:
    kind: str  # "tabular" (series too), "text" or "image"
    numeric: tuple[str, ...]
    category: str  # the category's or the text's column, "" when there is none
    target: str
    metric: str
    gaps: bool
    named: tuple[str, ...]  # numeric columns that the note names, in its order
    period: int  # number in the note, 0 if there is none
    called_for: str  # approach that the note calls for, "" if it is vague

    @property
    def classification(self) -> bool:
        return self.metric in CLASSIFICATION

    @property
    def higher_is_better(self) -> bool:
        return self.metric in ("auc", "accuracy", "macro_f1")


def read(description: str) -> Facts:
    """Facts of a description as the technical writer writes it. Raises ValueError naming a line that is missing."""
    note = line(description, "Note")
    text, pixels = line(description, "Text", optional=True), line(description, "Pixels", optional=True)
    category = _NAME.findall(text or line(description, "Category", optional=True))
    features = pixels or line(description, "Numeric")
    numeric = () if pixels else tuple(_NAME.findall(features))
    number = re.search(r"\d+", _NAME.sub("", note))
    return Facts(
        kind="image" if pixels else "text" if text else "tabular",
        numeric=numeric,
        category=category[0] if category else "",
        target=_NAME.findall(line(description, "Target"))[0],
        metric=re.split(r"[,.\s]", line(description, "Metric"))[0],
        gaps="with gaps" in features,
        named=tuple(name for name in _NAME.findall(note) if name in numeric),
        period=int(number.group()) if number else 0,
        called_for=next((approach for approach, cue in CUES.items() if re.search(cue, note)), ""),
    )


def line(description: str, label: str, optional: bool = False) -> str:
    """Text after `label: ` of the line that opens so; "" for an optional line that is not there."""
    found = re.search(rf"^{label}: (.+)$", description, re.MULTILINE)
    if found:
        return found.group(1)
    if optional:
        return ""
    raise ValueError(f"the description has no line '{label}: ...'")
