"""Data Strategist: a seed becomes a task's DNA — family, domain skin, names, metric, sizes, noise, note."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlexpert.sandmle import families, names

REGRESSION = ("rmse", "mae")
CLASSIFICATION = ("auc", "accuracy")
PERIODS = (6, 7, 8, 12, 15, 20, 24, 30)
VAGUE_SHARE = 0.15
GAPS_SHARE = 0.4


@dataclass(frozen=True)
class Spec:
    """Everything a task is made from; a pure function of (split, seed, index)."""

    id: str
    kind: str
    family: str
    split: names.Split
    domain: str
    metric: str
    numeric: tuple[str, ...]
    category: str  # "" when there is none
    levels: tuple[str, ...]
    target: str
    named: tuple[str, ...]
    period: int
    note: str
    vague: bool
    gaps: bool
    outliers: bool
    noise: float
    n_train: int
    n_test: int
    entropy: tuple[int, ...]  # seeds the data

    @property
    def labels(self) -> tuple[str, ...]:
        return ("0", "1") if self.classification else ()

    @property
    def classification(self) -> bool:
        return self.metric in CLASSIFICATION


def design(split: names.Split, seed: int, index: int, kind: str = "tabular") -> Spec:
    """The spec of candidate `index`; ValueError for an unknown split or kind."""
    if split not in names.SPLITS:
        raise ValueError(f"split {split!r} is none of {names.SPLITS}")
    entropy = (names.SPLITS.index(split), seed, index)
    rng = np.random.default_rng(entropy)
    family = draw_family(rng, kind)
    rule = families.FAMILIES[family]
    numeric, category, target = draw_columns(rng, split, rule)
    if kind == "image":
        numeric = tuple(f"p{at}" for at in range(64))
    named = tuple(str(name) for name in rng.permutation(numeric)[: rule.named])
    period = int(rng.choice(PERIODS))
    vague = bool(rng.random() < VAGUE_SHARE)
    return Spec(
        id=f"{split}-{seed}-{index:05d}",
        kind=kind,
        family=family,
        split=split,
        domain=str(rng.choice(names.DOMAINS[split])),
        metric=draw_metric(rng, rule),
        numeric=numeric,
        category=category,
        levels=tuple(str(level) for level in rng.permutation(names.LEVELS)[: int(rng.integers(3, 5))]),
        target=target,
        named=named,
        period=period,
        note=write_note(rng, rule, vague, named, category, period),
        vague=vague,
        gaps=bool(rng.random() < GAPS_SHARE),
        outliers=bool(rng.random() < 0.15),
        noise=rule.noise * float(rng.uniform(0.8, 1.2)),
        n_train=int(rng.integers(120, 201)),
        n_test=200,
        entropy=(*entropy, 1),
    )


def draw_family(rng: np.random.Generator, kind: str) -> str:
    shares = {name: family.share for name, family in families.FAMILIES.items() if family.kind == kind}
    if not shares:
        known = sorted({family.kind for family in families.FAMILIES.values()})
        raise ValueError(f"no tasks of kind {kind!r}; known: {', '.join(known)}")
    return str(rng.choice(list(shares), p=np.array(list(shares.values())) / sum(shares.values())))


def draw_metric(rng: np.random.Generator, rule: families.Family) -> str:
    pool = (REGRESSION if rule.regression else ()) + (CLASSIFICATION if rule.classification else ())
    return str(rng.choice(pool))


def draw_columns(
    rng: np.random.Generator, split: names.Split, rule: families.Family
) -> tuple[tuple[str, ...], str, str]:
    """Numeric names, the category's name or "", and the target's: all with different first words."""
    taken: tuple[str, ...] = ()
    for _ in range(int(rng.integers(rule.columns[0], rule.columns[1] + 1)) % 64):
        taken = (*taken, names.column(rng, split, names.NUMERIC_SECOND, taken))
    numeric, category = taken, ""
    if rule.category or (rule.kind != "image" and rng.random() < 0.4):
        category = names.column(rng, split, names.CATEGORY_SECOND, taken)
        taken = (*taken, category)
    return numeric, category, names.column(rng, split, names.NUMERIC_SECOND, taken)


def write_note(
    rng: np.random.Generator,
    rule: families.Family,
    vague: bool,
    named: tuple[str, ...],
    category: str,
    period: int,
) -> str:
    pool = families.VAGUE_NOTES if vague else rule.notes
    slots = dict(zip("ab", named, strict=False))
    return str(rng.choice(pool)).format(**slots, c=category, period=period)
