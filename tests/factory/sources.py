"""Tiny sources: tables written into a folder of raw files, and an origin that hands them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlexpert.factory.records import Blueprint, Lead, Origin, Quarantine, Raw
from mlexpert.tasks.task import Provenance

PROVENANCE = Provenance("test", "", "CC0", True, "tiny")


def plan(id: str = "tiny", **changes: Any) -> Blueprint:
    fields: dict[str, Any] = dict(
        id=id, title="Tiny", text="Boxes of tea.", modality="tabular", domain="tests", train="data.csv",
        target_columns=("y",), metric="rmse",
    )  # fmt: skip
    return Blueprint(**(fields | changes))


def raw(folder: Path, id: str = "tiny", **tables: pd.DataFrame) -> Raw:
    """`data=frame` writes data.csv, and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return Raw(id, folder, PROVENANCE)


def frame(n: int = 120, seed: int = 0, classes: Sequence[str] = ()) -> pd.DataFrame:
    """Two columns that tell the target up to noise, one that does not, a town and a day."""
    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=n), draw.normal(size=n)
    value = 2 * a + b + 0.3 * draw.normal(size=n)
    table = pd.DataFrame({"a": a.round(4), "b": b.round(4), "noise": draw.normal(size=n).round(4)})
    table["town"] = draw.choice(["Aarhus", "Bergen", "Cork"], size=n)
    table["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n) // 2, unit="D")
    edges = np.quantile(value, np.linspace(0, 1, len(classes) + 1)[1:-1]) if classes else ()
    table["y"] = [classes[at] for at in np.searchsorted(edges, value)] if classes else value.round(4)
    return table.astype(str)


def origin(sources: Mapping[str, tuple[Blueprint, pd.DataFrame | Quarantine]], version: str = "") -> Origin:
    """Leads by name; a Quarantine in place of a table is what fetching it raises."""

    def fetch(lead: Lead, folder: Path) -> Raw:
        table = sources[lead.id][1]
        if isinstance(table, Quarantine):
            raise table
        return raw(folder, lead.id, data=table)

    return Origin(
        discover=lambda: [Lead(id, id, PROVENANCE) for id in sources],
        fetch=fetch,
        plan=lambda found: sources[found.id][0],
        version=version,
    )


Progress = Callable[[int, int, str, str], None]
