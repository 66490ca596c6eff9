"""Cells of a submission -> values for the metric, or the first cell that is none, by its line in the file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from mlexpert.tasks.metrics import SUM_TOLERANCE, BadCell, Needs, number, read, read_indicators
from mlexpert.tasks.metrics.record import NUMERIC
from mlexpert.tasks.reasons import Reason, Refused, invalid, quoted

LARGEST = 1e100  # larger magnitudes overflow when a metric squares them
_NAN = ("nan", "+nan", "-nan")


def read_values(
    columns: Sequence[list[str]],
    lines: Sequence[int],
    names: Sequence[str],
    needs: Needs,
    codes: Mapping[str, int],
    sum_to_one: bool,
) -> Any:
    """Values of R rows in the file's order (see metrics.cells; float64 RxC for several columns). Raises Refused.

    Args:
      columns: the cells of each column; `names` are those of the columns, `lines` those of the rows.
      codes: accepted spelling of a label -> its code.
      sum_to_one: whether a row of several columns is one distribution.
    """
    if needs is Needs.LABEL:
        return _labels(columns[0], lines, names[0], codes)
    if needs in NUMERIC:
        return _numbers(columns, lines, names, needs, sum_to_one)
    try:
        if needs is Needs.LABELS and len(columns) > 1:
            return _indicators(columns, lines, names)
        return read(needs, columns[0], codes)
    except BadCell as bad:
        line = lines[bad.row]
        raise invalid(Reason.CELL, line, bad.problem, column=names[0], line=line, count=1) from bad


def _labels(cells: list[str], lines: Sequence[int], name: str, codes: Mapping[str, int]) -> np.ndarray:
    _check_empty(cells, lines, name)
    found = list(map(codes.get, cells))
    if None in found:
        at, count = found.index(None), found.count(None)
        raise _at(Reason.UNKNOWN_LABEL, lines[at], quoted(cells[at]), name, count)
    return np.array(found, dtype=np.int64)


def _indicators(columns: Sequence[list[str]], lines: Sequence[int], names: Sequence[str]) -> sparse.csr_matrix:
    spellings = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
    for cells, name in zip(columns, names, strict=True):
        _check_empty(cells, lines, name)
        if bad := [at for at, cell in enumerate(cells) if cell not in spellings]:
            raise _at(Reason.CELL, lines[bad[0]], f"{quoted(cells[bad[0]])} is neither 0 nor 1", name, len(bad))
    return read_indicators(columns, spellings)


def _numbers(
    columns: Sequence[list[str]], lines: Sequence[int], names: Sequence[str], needs: Needs, sum_to_one: bool
) -> np.ndarray:
    read_columns = [_column(cells, lines, name, needs) for cells, name in zip(columns, names, strict=True)]
    if len(read_columns) == 1:
        return read_columns[0]
    values_RxC = np.stack(read_columns, axis=1)
    if sum_to_one:
        sums_R = values_RxC.sum(axis=1)
        # The slack lets three shares of .333 pass: their sum is .999 only up to rounding.
        if len(bad := np.flatnonzero(np.abs(sums_R - 1.0) > SUM_TOLERANCE + 1e-9)):
            raise _at(Reason.ROW_SUM, lines[bad[0]], f"{sums_R[bad[0]]:.6g}", "", len(bad))
    return values_RxC


def _column(cells: list[str], lines: Sequence[int], name: str, needs: Needs) -> np.ndarray:
    _check_empty(cells, lines, name)
    values_R = floats(cells)
    if len(bad := np.flatnonzero(~np.isfinite(values_R))):
        raise _not_finite(cells, values_R, bad, lines, name)
    if len(bad := np.flatnonzero(np.abs(values_R) > LARGEST)):
        raise _at(Reason.HUGE, lines[bad[0]], quoted(cells[bad[0]]), name, len(bad))
    if needs is Needs.PROBABILITY and len(bad := np.flatnonzero((values_R < 0.0) | (values_R > 1.0))):
        raise _at(Reason.PROBABILITY, lines[bad[0]], quoted(cells[bad[0]]), name, len(bad))
    return values_R


def floats(cells: list[str]) -> np.ndarray:
    """`metrics.number` of every cell; all at once where no cell could be read otherwise by `float`."""
    joined = "".join(cells)
    if joined.isascii() and "_" not in joined:
        try:
            return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
        except ValueError:
            pass  # some cell is no number: which one is found below
    return np.fromiter(map(number, cells), dtype=np.float64, count=len(cells))


def _not_finite(cells: list[str], values_R: np.ndarray, bad: np.ndarray, lines: Sequence[int], name: str) -> Refused:
    words = [at for at in bad if math.isnan(values_R[at]) and cells[at].strip().lower() not in _NAN]
    if words:
        return _at(Reason.NOT_A_NUMBER, lines[words[0]], quoted(cells[words[0]]), name, len(words))
    line = lines[bad[0]]
    return invalid(Reason.NOT_FINITE, len(bad), line, column=name, line=line, count=len(bad))


def _check_empty(cells: list[str], lines: Sequence[int], name: str) -> None:
    if "" in cells:
        line, count = lines[cells.index("")], cells.count("")
        raise invalid(Reason.EMPTY_CELL, count, line, column=name, line=line, count=count)


def _at(code: Reason, line: int, told: str, column: str, count: int) -> Refused:
    return invalid(code, line, told, column=column, line=line, count=count)
