"""Schema documents: unlimited task descriptions, each with code that reuses its names. No data, no execution.

A small policy learns from them to copy names that never stood together before; all names belong to the train split.
A card holds only those lines of a script that carry names, recites the columns and uses some more, so that most of its
tokens are copied ones; whole scripts, in which few are, teach copying more slowly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlexpert.corpus import facts as reading
from mlexpert.corpus import scripts, teacher
from mlexpert.sandmle import data_strategist, technical_writer
from mlexpert.types import ToolCall

STYLE = teacher.Style(bug=0.0)


@dataclass(frozen=True)
class Document:
    """One exchange: the task's text, then a turn of the assistant."""

    user: str
    think: str
    call: ToolCall


def document(seed: int, index: int) -> Document:
    """Document `index` of an endless series."""
    rng = np.random.default_rng((seed, index, 2))
    user = technical_writer.describe(data_strategist.design("train", seed, index))
    facts = reading.read(user)
    choice = teacher.first_plan(rng, facts, STYLE)
    lines = card(rng, facts, scripts.write(facts, choice))
    return Document(user, teacher.thought(choice), teacher.call(lines))


def card(rng: np.random.Generator, facts: reading.Facts, lines: list[str]) -> list[str]:
    """The lines that carry names, the numeric columns as a list, and two more uses of columns."""
    naming = [line for line in lines if line.startswith(("t = ", 'X["', "X = X.join", "X = X[["))]
    first, second = (str(name) for name in rng.permutation(facts.numeric)[:2])
    uses = [
        f"n = [{', '.join(quoted(name) for name in facts.numeric)}]",
        f'X["f"] = X[{quoted(first)}] {rng.choice(["*", "/", "+", "-"])} X[{quoted(second)}]',
        *([f"c = [{quoted(facts.category)}]"] if facts.category else []),
        f"y = train.pop({quoted(facts.target)})",
    ]
    return [*naming, *(uses[at] for at in rng.permutation(len(uses)))]


def quoted(name: str) -> str:
    return f'"{name}"'
