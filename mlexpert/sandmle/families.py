"""Families of tasks: a hidden rule, the notes that point to it, and the approach that wins on it.

A note may name the relevant columns and the kind of relation; it never carries a coefficient of the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mlexpert.sandmle import rules

Rule = Callable[[rules.Ground], rules.Draw]


@dataclass(frozen=True)
class Family:
    """`named` columns are those the rule depends on most; `columns` is the range of numeric columns of a task."""

    rule: Rule
    notes: tuple[str, ...]
    named: int
    columns: tuple[int, int]
    share: float  # relative frequency among drawn tasks
    noise: float  # standard deviation of the noise in units of the signal's
    category: bool = False  # needs a category column
    regression: bool = True
    classification: bool = True
    kind: str = "tabular"


FAMILIES: Mapping[str, Family] = {
    "linear": Family(
        rules.linear,
        ("Many weak columns add up.", "Every column adds a little.", "The effects of all columns simply add up."),
        named=0,
        columns=(7, 9),
        share=0.7,
        noise=0.5,
    ),
    "product": Family(
        rules.product,
        (
            "The product of `{a}` and `{b}` matters.",
            "`{a}` and `{b}` act only together: multiply them.",
            "What counts is `{a}` times `{b}`.",
        ),
        named=2,
        columns=(3, 5),
        share=1.1,
        noise=0.25,
    ),
    "ratio": Family(
        rules.ratio,
        (
            "The ratio of `{a}` to `{b}` matters.",
            "What counts is `{a}` per unit of `{b}`.",
            "`{a}` should be seen relative to `{b}`.",
        ),
        named=2,
        columns=(3, 5),
        share=1.1,
        noise=0.2,
        classification=False,  # a / b > c is a straight line: any linear model would do
    ),
    "cycle": Family(
        rules.cycle,
        (
            "`{a}` repeats every {period}.",
            "There is a cycle of {period} along `{a}`.",
            "The effect of `{a}` is periodic with period {period}.",
        ),
        named=1,
        columns=(3, 5),
        share=1.1,
        noise=0.35,
    ),
    "steps": Family(
        rules.steps,
        (
            "There are sharp thresholds in `{a}` and `{b}`.",
            "The outcome jumps at certain values of `{a}` and `{b}`.",
            "`{a}` and `{b}` act through cut-off values.",
        ),
        named=2,
        columns=(4, 5),
        share=1.5,
        noise=0.3,
    ),
    "bumps": Family(
        rules.bumps,
        (
            "Rows close in `{a}` and `{b}` behave alike.",
            "Only neighbours in `{a}` and `{b}` tell about a row.",
            "Similar `{a}` and `{b}` give a similar outcome; the rest is irrelevant.",
        ),
        named=2,
        columns=(5, 6),
        share=1.1,
        noise=0.25,
    ),
    "growth": Family(
        rules.growth,
        (
            "The effects multiply, so the target grows exponentially.",
            "Every column changes the target by a percentage.",
            "The target spans several orders of magnitude.",
        ),
        named=0,
        columns=(3, 5),
        share=1.7,
        noise=0.0,
        classification=False,
    ),
    "group": Family(
        rules.group,
        (
            "The slope of `{a}` differs by `{c}`.",
            "`{a}` has another effect in every `{c}`.",
            "For each `{c}`, `{a}` acts in its own direction.",
        ),
        named=1,
        columns=(3, 5),
        share=1.1,
        noise=0.3,
        category=True,
    ),
    "trend": Family(
        rules.trend,
        (
            "`{a}` is the time: a trend and a cycle of {period}.",
            "Over time `{a}` the target drifts and repeats every {period}.",
        ),
        named=1,
        columns=(2, 4),
        share=1.0,
        noise=0.25,
        classification=False,
        kind="series",
    ),
    "text": Family(
        rules.text,
        ("Single words in `{c}` matter.", "What counts is which words `{c}` holds.", "Read the words of `{c}`."),
        named=0,
        columns=(2, 3),
        share=1.0,
        noise=0.4,
        category=True,
        kind="text",
    ),
    "image": Family(
        rules.image,
        ("Each image shows a bar, standing or lying.", "Compare the sums of rows and of columns of the image."),
        named=0,
        columns=(64, 64),
        share=1.0,
        noise=0.3,
        regression=False,
        kind="image",
    ),
}
VAGUE_NOTES = ("No expert has looked at this data yet.", "Nothing is known about the columns.", "The rule is unknown.")
APPROACH = {  # the approach that each family's note calls for
    "linear": "linear",
    "product": "product",
    "ratio": "ratio",
    "cycle": "cycle",
    "steps": "trees",
    "bumps": "near",
    "growth": "log",
    "group": "group",
    "trend": "cycle",
    "text": "words",
    "image": "shape",
}
KINDS = tuple(dict.fromkeys(family.kind for family in FAMILIES.values()))
