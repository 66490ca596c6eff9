"""The sources of this package as an origin of the Factory.

A lead carries everything that decides its task: pins, blueprint and code, each by its digest. Changing one makes the
tasks that it touches again, and no others.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from mlexpert.factory.classic import (
    forecasting,
    house_prices,
    images,
    multilabel,
    ranking,
    series,
    several_targets,
    source,
    survival,
    tables,
    tabular_business,
    tabular_prices,
    tabular_regression,
    tabular_science,
    text,
    unpickle,
)
from mlexpert.factory.classic.source import Source
from mlexpert.factory.classic.wheels import Shelf
from mlexpert.factory.records import Lead, Origin, Quarantine, Raw

FAMILIES = (
    house_prices, tabular_business, tabular_science, tabular_prices, tabular_regression, survival, several_targets,
    text, images, series, forecasting, multilabel, ranking,
)  # fmt: skip
SOURCES: Mapping[str, Source] = {each.plan.id: each for family in FAMILIES for each in family.SOURCES}
_SHARED = (source, tables, unpickle)


def origin(cache: Path, only: Sequence[str] = ()) -> Origin:
    """All sources, or those with the ids of `only`. Wheels and converted tables are kept in `cache`.

    Raises Quarantine("discover", ...) for an id that no source has.
    """
    if unknown := sorted(set(only) - SOURCES.keys()):
        near = difflib.get_close_matches(unknown[0], SOURCES, n=3, cutoff=0.3)
        raise Quarantine("discover", f"there is no task {unknown[0]!r}; nearest: {', '.join(near) or 'none'}")
    shelf = Shelf(cache)
    return Origin(
        discover=lambda: [found for found in leads() if not only or found.id in only],
        fetch=lambda lead, folder: _fetch(shelf, lead, folder),
        plan=lambda raw: SOURCES[raw.id].plan,
    )


def leads() -> list[Lead]:
    """One for every source; needs no network."""
    return [_lead(each, code) for family in FAMILIES for code in [_code(family)] for each in family.SOURCES]


def _lead(each: Source, code: str) -> Lead:
    where = {"pins": [dataclasses.asdict(pin) for pin in each.pins], "plan": each.plan.digest(), "code": code}
    return Lead(each.plan.id, each.plan.title, each.provenance, where)


def _code(family: ModuleType) -> str:
    """SHA-256 of the files whose code writes the raw files of a family."""
    files = [Path(str(module.__file__)) for module in (family, *_SHARED)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _fetch(shelf: Shelf, lead: Lead, folder: Path) -> Raw:
    """Raises Quarantine, also for data in a form that `make` does not know."""
    found = SOURCES[lead.id]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found.make(shelf, folder)
    except (KeyError, ValueError, IndexError) as error:
        names = ", ".join(pin.name for pin in found.pins)
        raise Quarantine("fetch", f"{names}: the data are not in the form that is known ({error!r})") from error
    return Raw(lead.id, folder, found.provenance, title=found.plan.title)
