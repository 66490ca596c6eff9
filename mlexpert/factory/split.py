"""Which rows are held out, by the recipe of the blueprint. Every cut is a function of the table and the seed alone.

random        a share of the rows
stratified    the same share of every class; of ten quantile bins where the target is a number; of the rows whose
              rarest label is the same where a row has several
grouped       whole groups, drawn until the share is reached: no group is on both sides
source        the same with few large groups (hospitals, sites, years): those whose sum comes closest to the share
temporal      the latest rows; rows of one time stay together, so every test row is later than every training row

Row numbers come back in the order in which the rows are to be written: shuffled, except for temporal.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from mlexpert.factory.columns import times, values
from mlexpert.factory.records import Blueprint, Quarantine
from mlexpert.tasks.metrics import METRICS, Needs

BINS = 10
MAX_SOURCES = 16  # of more, the subset that fits best is not searched for


class Sides(NamedTuple):
    train_N: np.ndarray  # row numbers
    test_M: np.ndarray


def cut(table: pd.DataFrame, plan: Blueprint) -> Sides:
    """The rows of each side. Raises Quarantine("split", ...) if the recipe cannot be followed on these data."""
    if len(table) < 2:
        raise Quarantine("split", f"{plan.train} has {len(table)} rows; a split needs at least 2")
    rng = np.random.default_rng([plan.seed, 1])
    if plan.recipe == "temporal":
        return _temporal(_times(table, plan), plan.test_share)
    if plan.recipe in ("grouped", "source"):
        held_R = _groups(_cells(table, plan.group_column), plan, rng)
    elif plan.recipe == "stratified":
        held_R = _stratified(strata(table, plan), plan.test_share, rng)
    else:
        held_R = _stratified([""] * len(table), plan.test_share, rng)
    order_R = rng.permutation(len(table))
    return Sides(order_R[~held_R[order_R]], order_R[held_R[order_R]])


def fewer(table: pd.DataFrame, plan: Blueprint) -> pd.DataFrame:
    """At most `plan.max_rows` rows in their order: the latest, whole groups, or any, as the recipe asks."""
    n = plan.max_rows
    if not n or len(table) <= n:
        return table
    rng = np.random.default_rng([plan.seed, 0])
    if plan.recipe == "temporal":
        rows_R = np.sort(np.argsort(_times(table, plan), kind="stable")[-n:])
    elif plan.recipe in ("grouped", "source"):
        groups_R = np.array(_cells(table, plan.group_column), dtype=object)
        sizes = Counter(groups_R.tolist())
        names = _shuffled(sizes, rng)
        total = np.cumsum([sizes[name] for name in names])
        kept = set(names[: max(2, int(np.searchsorted(total, n, side="right")))])
        rows_R = np.array([row for row, group in enumerate(groups_R) if group in kept])
    else:
        rows_R = np.sort(rng.permutation(len(table))[:n])
    return table.iloc[rows_R].reset_index(drop=True)


# ---------------------------------------------------------------- recipes
def _stratified(strata_R: Sequence[str], share: float, rng: np.random.Generator) -> np.ndarray:
    """Of each stratum the same share is held out; at least one row stays on either side where there are two."""
    strata = np.array(strata_R, dtype=object)
    names = sorted(set(strata_R))
    sizes = [int((strata == name).sum()) for name in names]
    held_R = np.zeros(len(strata), dtype=bool)
    for name, count in zip(names, _shares(sizes, share), strict=True):
        rows = np.flatnonzero(strata == name)
        held_R[rng.permutation(rows)[:count]] = True
    return held_R


def _shares(sizes: Sequence[int], share: float) -> list[int]:
    """How many of each stratum are held out: largest remainders, so that the sum is the share of all rows."""
    exact = [share * size for size in sizes]
    counts = [min(max(int(value), 1), size - 1) if size > 1 else 0 for value, size in zip(exact, sizes, strict=True)]
    by_remainder = sorted(range(len(sizes)), key=lambda at: (counts[at] - exact[at], at))
    missing = round(share * sum(sizes)) - sum(counts)
    for at in by_remainder[: max(0, missing)]:
        counts[at] += counts[at] + 1 < sizes[at]
    return counts


def strata(table: pd.DataFrame, plan: Blueprint) -> list[str]:
    """The stratum of every row (see above)."""
    columns = [_cells(table, name) for name in plan.target_columns]
    answers = METRICS[plan.metric].answers
    if len(columns) > 1 and answers in (Needs.LABEL, Needs.LABELS):
        names, rows = plan.target_columns, zip(*columns, strict=True)
        return _rarest([[name for name, cell in zip(names, row, strict=True) if cell != "0"] for row in rows])
    if answers is Needs.LABELS:
        return _rarest([cell.split() for cell in columns[0]])
    if answers is not Needs.NUMBER:
        return list(columns[0])
    values_R = values(columns[0])
    edges = np.unique(np.nanquantile(values_R, np.linspace(0, 1, BINS + 1)[1:-1]))
    return [str(bin) for bin in np.searchsorted(edges, values_R, side="right")]


def _rarest(sets: Sequence[Sequence[str]]) -> list[str]:
    counts = Counter(itertools.chain.from_iterable(sets))
    return [min(labels, key=lambda label: (counts[label], label), default="") for labels in sets]


def _groups(groups_R: Sequence[str], plan: Blueprint, rng: np.random.Generator) -> np.ndarray:
    sizes = Counter(groups_R)
    if len(sizes) < 2:
        raise Quarantine(
            "split",
            f"column {plan.group_column!r} holds one value only; a {plan.recipe} split needs two groups or more",
        )
    names = _shuffled(sizes, rng)
    wanted = plan.test_share * len(groups_R)
    small = plan.recipe == "source" and len(names) <= MAX_SOURCES
    held = _closest(names, sizes, wanted) if small else _until(names, sizes, wanted)
    return np.array([group in held for group in groups_R])


def _shuffled(names: Iterable[str], rng: np.random.Generator) -> list[str]:
    ordered = sorted(names)
    return [ordered[at] for at in rng.permutation(len(ordered))]


def _until(names: Sequence[str], sizes: Counter[str], wanted: float) -> set[str]:
    """Groups in the order drawn, each taken if that brings the sum closer to what is wanted; never all of them."""
    held: set[str] = set()
    total = 0
    for name in names:
        if abs(total + sizes[name] - wanted) < abs(total - wanted) and len(held) + 1 < len(names):
            held.add(name)
            total += sizes[name]
    return held or {min(names, key=lambda name: sizes[name])}


def _closest(names: Sequence[str], sizes: Counter[str], wanted: float) -> set[str]:
    subsets = (set(some) for n in range(1, len(names)) for some in itertools.combinations(names, n))
    return min(subsets, key=lambda some: abs(sum(sizes[name] for name in some) - wanted))


def _temporal(times_R: np.ndarray, share: float) -> Sides:
    order_R = np.argsort(times_R, kind="stable")
    borders = np.flatnonzero(np.diff(times_R[order_R]) > 0) + 1
    if not len(borders):
        raise Quarantine("split", "all rows have the same time; choose another recipe than 'temporal'")
    border = borders[np.argmin(np.abs(borders - (1 - share) * len(order_R)))]
    return Sides(order_R[:border], order_R[border:])


# ---------------------------------------------------------------- columns
def _cells(table: pd.DataFrame, name: str) -> list[str]:
    if name not in table:
        raise Quarantine("split", f"there is no column {name!r}; there are {', '.join(map(str, table.columns))}")
    return table[name].tolist()


def _times(table: pd.DataFrame, plan: Blueprint) -> np.ndarray:
    try:
        times_R = times(_cells(table, plan.time_column))
    except ValueError as error:
        raise Quarantine("split", f"column {plan.time_column!r}: {error}") from error
    if np.isnan(times_R).any():
        row = int(np.argmax(np.isnan(times_R)))
        raise Quarantine(
            "split", f"column {plan.time_column!r} is empty in row {row + 1}; a temporal split needs all times"
        )
    return times_R
