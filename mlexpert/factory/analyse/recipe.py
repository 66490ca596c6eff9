"""How to cut a test set that asks what the competition's own test asks: later times, other groups, or any rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlexpert.factory import columns
from mlexpert.factory.analyse.roles import Roles
from mlexpert.factory.analyse.sheets import Sheet

GROUPS = re.compile(
    r"(patient|subject|user|customer|store|site|speaker|group|breath|session|query|movie|author|player|engine)", re.I
)
LATER = 0.95  # share of test rows after nearly all train rows from which the cut is one in time


@dataclass(frozen=True)
class Recipe:
    recipe: str
    group_column: str = ""
    time_column: str = ""


def recipe(given: Roles, id_column: str, is_class: bool, targets: Sequence[str]) -> Recipe:
    """By time if test lies after train, by groups if test has others than train, else by rows."""
    features = [name for name in given.train.columns if name not in targets]
    if given.test is not None:
        shared = [name for name in features if name in given.test.columns]
        if time := next((name for name in shared if _is_later(given.train, given.test, name)), ""):
            return Recipe("temporal", time_column=time)
        others = [name for name in shared if name != id_column and _has_other_groups(given.train, given.test, name)]
        if others:
            return Recipe(
                "grouped", group_column=max(others, key=lambda name: (bool(GROUPS.search(name)), -features.index(name)))
            )
    return Recipe("stratified" if is_class else "random")


def _is_later(train: Sheet, test: Sheet, name: str) -> bool:
    """Whether a column of times runs on from train into test."""
    if train.kind(name) != "time" or test.kind(name) != "time":
        return False
    try:
        known, asked = columns.times(train.cells[name]), columns.times(test.cells[name])
    except ValueError:
        return False
    known, asked = known[np.isfinite(known)], asked[np.isfinite(asked)]
    return len(known) > 0 and len(asked) > 0 and float((asked > np.quantile(known, 0.99)).mean()) >= LATER


def _has_other_groups(train: Sheet, test: Sheet, name: str) -> bool:
    """Whether rows come in groups of this column, and no group of test is one of train."""
    known, asked = train.cells[name], test.cells[name]
    if train.kind(name) == "text" or "" in set(known):
        return False
    n_known, n_asked = len(set(known)), len(set(asked))
    if not (5 <= n_known <= len(known) / 2 and 1 < n_asked <= len(asked) / 2):
        return False
    return set(known).isdisjoint(asked) and all("." not in cell for cell in list(set(known))[:50])
