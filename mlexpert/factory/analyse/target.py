"""Ids, targets, and columns that only train shows, from what train, test and sample submission have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mlexpert.factory.analyse.roles import Roles
from mlexpert.factory.analyse.sheets import Sheet
from mlexpert.factory.records import Quarantine

IDS = re.compile(
    r"(row|image|passenger|customer|sample|record|item|unique|text|object|example)?[-_ ]?(id|index|key|uuid|guid)", re.I
)
TARGETS = ("target", "label", "labels", "class", "outcome", "response", "y")


@dataclass(frozen=True)
class Target:
    id_column: str  # "": none that both tables have
    columns: tuple[str, ...]
    hidden: tuple[str, ...] = ()  # columns of train that test lacks, besides the targets
    labels: tuple[str, ...] = ()  # where the sample submission has a column per label


def target(given: Roles, text: str) -> Target:
    """Raises Quarantine if there is no target, or none that can be told from others."""
    id_column = _id(given)
    if given.sample is not None:
        return _of_sample(given, given.sample, id_column, text)
    if given.test is not None and (missing := _lacking(given)):
        return Target(id_column, _only(missing, text, f"{given.train.name} has and {given.test.name} lacks"))
    candidates = [name for name in given.train.columns if name != id_column]
    return Target(id_column, _only(_usual(candidates) or candidates, text, f"{given.train.name} has"))


# ---------------------------------------------------------------- ids
def _id(given: Roles) -> str:
    """A key of train that the other tables have too; the sample's own first column, if train has it."""
    tables = [table for table in (given.sample, given.test) if table is not None]
    shared = [name for name in given.train.columns if all(name in table.columns for table in tables)]
    if given.sample is not None:
        shared = [name for name in given.sample.columns if name in shared][:1]
    else:
        shared = [name for name in shared if IDS.fullmatch(name) or IDS.search(name.split("_")[-1])]
    return next((name for name in shared if given.train.is_key(name)), "")


# ---------------------------------------------------------------- targets
def _of_sample(given: Roles, sample: Sheet, id_column: str, text: str) -> Target:
    """The sample's columns: targets by their name, labels of one target, or another name for it."""
    asked = [name for name in sample.columns if name != id_column]
    if not id_column and given.test is not None:
        asked = asked[1:] if asked[0] not in _lacking(given) else asked
    lacking = _lacking(given)
    if found := tuple(name for name in asked if name in lacking):
        return Target(id_column, found, tuple(name for name in lacking if name not in found))
    for name in lacking or given.train.columns:
        values = set(given.train.cells[name])
        if len(asked) > 1 and len(set(asked) & values) >= max(2, len(values) - 1):
            return Target(
                id_column, (name,), tuple(other for other in lacking if other != name), _labels(asked, values)
            )
    found = _only(lacking, text, "only train has")
    return Target(id_column, found, tuple(name for name in lacking if name not in found))


def _lacking(given: Roles) -> list[str]:
    """Columns that train has and test lacks; without a test table, all."""
    return [name for name in given.train.columns if given.test is None or name not in given.test.columns]


def _labels(asked: Sequence[str], values: set[str]) -> tuple[str, ...]:
    return tuple([name for name in asked if name in values] + sorted(values - set(asked) - {""}))


def _only(names: Sequence[str], text: str, what: str) -> tuple[str, ...]:
    """One name, or the one of several that is called target or that the text says is to be predicted."""
    if not names:
        raise Quarantine("plan", f"no target: there is no column that {what}; name `target_columns` in the blueprint")
    for chosen in (names, _usual(names), _mentioned(names, text)):
        if len(chosen) == 1:
            return (chosen[0],)
    raise Quarantine(
        "plan", f"{', '.join(names[:6])}: columns that {what}, and nothing says which is the target; name it"
    )


def _usual(names: Sequence[str]) -> list[str]:
    """The name that says it is the target; "y" does not beside "x", where it is a coordinate."""
    lower = {name.lower(): name for name in names}
    found = [lower[name] for name in TARGETS if name in lower and not (name == "y" and "x" in lower)]
    return found[:1]


def _mentioned(names: Sequence[str], text: str) -> list[str]:
    """Names that the text says are to be predicted."""
    plain = re.sub(r"[`*_\"']", "", re.sub(r"\s+", " ", text.lower()))
    found = []
    for name in names:
        word = re.escape(re.sub(r"[`*_\"']", "", name.lower()))
        if re.search(
            rf"predict\w*[^.]{{0,80}}\b{word}\b|\b{word}\b[^.\n]{{0,40}}(?:is|,|:|-)? ?(?:the )?target", plain
        ):
            found.append(name)
    return found
