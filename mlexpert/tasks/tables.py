"""A task's own CSV tables, read by pinned rules: the same cells on every machine and under every version of pandas.

UTF-8 (a BOM is dropped), commas, standard quoting. A cell is an exact string: no number parsing, and no word means
"missing" ("NA" is a text and not an empty cell). Only columns declared "number" become float64, where an empty cell
and the words of `GAPS` are NaN. Rows of another width than the header are errors, never shifted or cut.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mlexpert.tasks import delimited
from mlexpert.tasks.metrics import number

KINDS = ("id", "text", "number", "label", "time", "file")  # what a column of a table may be declared as
GAPS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"})


class TaskError(Exception):
    """A task folder is missing, incomplete, altered or inconsistent; the message names the file and the remedy."""


def header(path: Path) -> list[str]:
    """Column names of a CSV file, [] for an empty one. Raises TaskError if it is not there or not UTF-8."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return next((row for row in csv.reader(file, strict=True) if row), [])
    except FileNotFoundError as error:
        raise TaskError(f"{path}: missing") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"{path.name}: not CSV in UTF-8 ({error})") from error


def column(path: Path, name: str) -> list[str]:
    """One column as exact strings, in the file's order. Raises TaskError if it is not there or the file is broken."""
    return columns(path, [name])[0]


def columns(path: Path, names: Sequence[str]) -> list[list[str]]:
    """Some columns as exact strings. Raises TaskError as `column` does."""
    found = header(path)
    if missing := [name for name in names if name not in found]:
        raise TaskError(f"{path.name} has no column {missing[0]!r}; it has {found}")
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return delimited.body(text, found, [found.index(name) for name in names], sys.maxsize).cells
    except UnicodeDecodeError as error:
        raise TaskError(f"{path.name}: not CSV in UTF-8 ({error})") from error
    except delimited.Broken as error:
        fields = f"{error.found} fields, the header has {len(found)}"
        cause = fields if error.cause == delimited.RAGGED else error.cause
        raise TaskError(f"{path.name}, line {error.line}: {cause}") from error


def read_cells(path: Path) -> dict[str, list[str]]:
    """All of a CSV file, column after column, {} for an empty one. Raises TaskError for a broken file or a repeated
    column name."""
    names = header(path)
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise TaskError(f"{path.name}: column {repeated!r} appears twice")
    return dict(zip(names, columns(path, names), strict=True)) if names else {}


def read_table(path: Path, kinds: Mapping[str, str] | None = None) -> pd.DataFrame:
    """`read_cells` as a DataFrame: object columns of exact strings, float64 where `kinds` declares a "number".

    Raises TaskError as `read_cells`, and for a declared number that is none (row and cell).
    """
    kinds = kinds or {}
    # A Series with its dtype said: from a bare list or array, pandas 3 would infer a string dtype and pandas 2 objects.
    return pd.DataFrame(
        {
            name: _numbers(path, name, cells) if kinds.get(name) == "number" else pd.Series(cells, dtype=object)
            for name, cells in read_cells(path).items()
        }
    )


def _numbers(path: Path, name: str, cells: Sequence[str]) -> np.ndarray:
    values_R = np.array([number(cell) for cell in cells], dtype=np.float64)
    for row in np.flatnonzero(np.isnan(values_R)).tolist():
        if cells[row] not in GAPS:
            raise TaskError(f"{path.name}, row {row + 1}: {cells[row][:40]!r} in column {name!r} is not a number")
    return values_R
