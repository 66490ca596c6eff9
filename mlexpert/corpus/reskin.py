"""A teacher's episode in other words: every column gets a fresh name, the same one wherever it stands in the episode.

Shown under the names it was played with, an episode is soon known by heart, names and all, and what looks like copying
is recall. Re-skinned each time it is shown, it can only be imitated by copying. Numbers and outcomes stay as they were.
"""

from __future__ import annotations

import json
import re

import numpy as np

from mlexpert.corpus import facts as reading
from mlexpert.corpus.episodes import Record
from mlexpert.sandmle import names


def reskin(record: Record, rng: np.random.Generator) -> Record:
    """The record with names of the train split drawn anew; one without named columns (images, say) stays as it is."""
    facts = reading.read(record["opening"]["user"])
    fresh: dict[str, str] = {}
    for old in (*facts.numeric, facts.category, facts.target):
        if old and re.fullmatch(r"[a-z]+_[a-z]+", old):
            seconds = names.CATEGORY_SECOND if old == facts.category else names.NUMERIC_SECOND
            fresh[old] = names.column(rng, "train", seconds, tuple(fresh.values()))
    return json.loads(renamed(json.dumps(record), fresh))


def renamed(text: str, fresh: dict[str, str]) -> str:
    """`text` with all names replaced at once; a name may be followed by a suffix that code added to it (`_x`)."""
    if not fresh:
        return text
    pattern = "|".join(re.escape(old) for old in sorted(fresh, key=len, reverse=True))
    return re.sub(rf"(?<![a-zA-Z_])({pattern})(?![a-zA-Z])", lambda found: fresh[found[0]], text)
