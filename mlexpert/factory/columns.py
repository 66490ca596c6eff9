"""What a column of exact strings holds: numbers, times, labels or text; and its values where it holds them.

Nothing here depends on the order of rows, and no cell is guessed one by one: a column is of a kind as a whole or it is
not. Times are ISO dates and date-times, months and quarters, plain numbers, or dates with slashes or dots of which the
column itself shows whether day or month comes first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from mlexpert.tasks.metrics import number
from mlexpert.tasks.tables import GAPS

TEXT_WORDS = 4  # a column whose cells have more words than this on average is text
_ISO = re.compile(r"\d{4}-\d{1,2}(-\d{1,2}([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?)?")
_QUARTER = re.compile(r"(\d{4})[ -]?Q([1-4])")
_DATE = re.compile(r"(\d{1,2})[/.](\d{1,2})[/.](\d{4})(.*)")


def values(cells: Sequence[str]) -> np.ndarray:
    """float64, NaN where a cell is no number."""
    return np.array([number(cell) for cell in cells], dtype=np.float64)


def numbers(cells: Sequence[str]) -> np.ndarray:
    """float64, NaN for a gap. Raises ValueError naming the row of a cell that is neither."""
    values_R = values(cells)
    for row in np.flatnonzero(~np.isfinite(values_R)).tolist():
        if cells[row] not in GAPS:
            raise ValueError(f"{cells[row][:40]!r} in row {row + 1} is not a number")
    return values_R


def times(cells: Sequence[str]) -> np.ndarray:
    """float64 that rises with time (seconds of the epoch for dates), NaN for a gap.

    Raises ValueError naming the row of a cell that is no time, or saying that day and month cannot be told apart.
    """
    filled = np.array([cell not in GAPS for cell in cells])
    shown = [cell.strip() for cell in cells if cell not in GAPS]
    values_R = np.full(len(cells), np.nan)
    if not shown:
        return values_R
    if np.isfinite(plain := values(shown)).all():
        values_R[filled] = plain
        return values_R
    dates = pd.to_datetime(pd.Series(_as_iso(shown)), format="ISO8601", utc=True, errors="coerce")
    if dates.isna().any():
        row = int(np.flatnonzero(filled)[int(np.argmax(dates.isna()))])
        raise ValueError(f"{cells[row][:40]!r} in row {row + 1} is no time; write it as 2020-12-31 or 2020-12-31 23:59")
    values_R[filled] = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy()
    return values_R


def times_of(*sides: Sequence[str]) -> list[np.ndarray]:
    """`times` of one column on several sides. It is read as a whole: the rows of one side alone may not show whether
    day or month comes first."""
    whole_R = times([cell for cells in sides for cell in cells])
    return np.split(whole_R, np.cumsum([len(cells) for cells in sides])[:-1])


def _as_iso(cells: Sequence[str]) -> list[str]:
    if all(found := [_QUARTER.fullmatch(cell) for cell in cells]):
        return [f"{match[1]}-{3 * int(match[2]) - 2:02d}-01" for match in found if match]
    if not all(found := [_DATE.fullmatch(cell) for cell in cells]):
        return list(cells)
    parts = [match.groups() for match in found if match]
    first, second = max(int(part[0]) for part in parts), max(int(part[1]) for part in parts)
    if first <= 12 and second <= 12:
        raise ValueError(f"{cells[0]!r}: the column does not show whether day or month comes first; write ISO dates")
    day, month = (0, 1) if first > 12 else (1, 0)
    return [f"{part[2]}-{int(part[month]):02d}-{int(part[day]):02d}{part[3]}" for part in parts]


def kind(cells: Sequence[str]) -> str:
    """One of "number", "time", "text", "label", from the cells alone; a column of gaps is a label."""
    distinct = {cell for cell in cells if cell not in GAPS}
    if not distinct:
        return "label"
    if all(np.isfinite(number(cell)) for cell in distinct):
        return "number"
    if all(_ISO.fullmatch(cell.strip()) or _QUARTER.fullmatch(cell.strip()) for cell in distinct):
        return "time"
    words = sum(len(cell.split()) for cell in distinct) / len(distinct)
    return "text" if words > TEXT_WORDS and len(distinct) > len(cells) // 4 else "label"


def kinds(tables: Sequence[pd.DataFrame], known: Mapping[str, str]) -> dict[str, str]:
    """The kind of every column that occurs in `tables`, in order; those of `known` are taken from there."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(name for table in tables for name in table.columns):
        cells = [cell for table in tables if name in table for cell in table[name]]
        found[name] = known.get(name) or kind(cells)
    return found
