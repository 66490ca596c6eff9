"""Bugs as people make them, one per script. Each breaks the run or loses the submission for certain.

No bug replaces a column name by another plausible one: that would teach miscopying, which no reward can undo later.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlexpert.corpus.facts import Facts
from mlexpert.corpus.scripts import Plan

REPAIRS = {  # kind -> what the teacher thinks when it repairs it
    "target": "fix the target name",
    "encoding": "encode the category",
    "fill": "fill the gaps",
    "file": "fix the file name",
    "output": "write submission.csv",
    "missing": "write the submission",
    "import": "add the import",
    "paren": "close the bracket",
}


def possible(facts: Facts, choice: Plan) -> tuple[str, ...]:
    """Kinds that break this script: an encoding can be forgotten only where there is a category, and so on."""
    out = () if facts.category and choice.approach != "words" else ("encoding",)
    if not facts.gaps or choice.approach == "trees":  # trees take missing values
        out = (*out, "fill")
    return tuple(kind for kind in REPAIRS if kind not in out)


def plant(rng: np.random.Generator, kind: str, lines: Sequence[str]) -> list[str]:
    """The script with a bug of `kind`. Raises ValueError for an unknown kind."""
    match kind:
        case "target":
            return ['t = "target"' if line.startswith("t = ") else line for line in lines]
        case "encoding":
            return [line for line in lines if "pd.get_dummies" not in line]
        case "fill":
            return [line for line in lines if "fillna" not in line]
        case "file":
            return [line.replace('"train.csv"', '"training.csv"') for line in lines]
        case "output":
            return [line.replace('"submission.csv"', '"output.csv"') for line in lines]
        case "missing":
            return list(lines[:-1])
        case "import":
            imports = [at for at, line in enumerate(lines) if line.startswith("from ")]
            gone = int(rng.choice(imports))
            return [line for at, line in enumerate(lines) if at != gone]
        case "paren":
            return ["m.fit(X, y" if line == "m.fit(X, y)" else line for line in lines]
    raise ValueError(f"no bug of kind {kind!r}; known: {', '.join(REPAIRS)}")
