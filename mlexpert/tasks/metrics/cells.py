"""One column of text <-> its values, for every kind of prediction. Nothing is guessed: a cell is as documented or bad.

label          int64 codes_R, positions in the task's labels
numbers        float64 values_R (score, probability, number, rating, cumulative)
labels         scipy CSR matrix RxL of 0 and 1
ranked         object array of tuples of str           text    object array of str
runs           object array of int64 arrays Nx2: start (from 1) and length, rising, without overlap
points         object array of (labels_N, float64 Nx2: x, y)
boxes          object array of (labels_N, float64 Nx5: confidence, left, top, right, bottom)
cuboids        object array of (labels_N, float64 Nx8: confidence, x, y, z, width, length, height, yaw)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from mlexpert.tasks.metrics.record import NUMERIC, Needs

LARGEST = 1e100  # areas and volumes of larger shapes would overflow


class BadCell(ValueError):
    """The cell in `row` (from 0) is not what the metric needs; `problem` says nothing about answers."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(f"row {row + 1}: {problem}")
        self.row, self.problem = row, problem


class _Bad(ValueError):
    """A problem of a cell that does not know its row yet."""


class Shapes(NamedTuple):
    """Labelled shapes of one row; N of them, none is possible."""

    labels: tuple[str, ...]
    values: np.ndarray  # NxF


def read(kind: Needs, cells: Sequence[str], codes: Mapping[str, int] | None = None) -> Any:
    """A column's values in the form above. `codes`: accepted spelling of a label -> its code. Raises BadCell."""
    if kind is Needs.LABELS:
        return _label_sets(cells, codes or {})
    parse = _parser(kind, codes or {})
    values = []
    for row, cell in enumerate(cells):
        try:
            values.append(parse(cell))
        except _Bad as error:
            raise BadCell(row, str(error)) from error
    if kind is Needs.LABEL:
        return np.array(values, dtype=np.int64)
    return np.array(values, dtype=np.float64) if kind in NUMERIC else objects(values)


def read_indicators(columns: Sequence[Sequence[str]], codes: Mapping[str, int]) -> sparse.csr_matrix:
    """Label sets written as one column per label; `codes`: spellings of 0 and 1. Raises BadCell."""
    return sparse.csr_matrix(np.stack([read(Needs.LABEL, cells, codes) for cells in columns], axis=1))


def spell(kind: Needs, values: Any, labels: tuple[str, ...] = ()) -> list[str]:
    """The inverse of `read`: one cell per row."""
    if kind is Needs.LABEL:
        return [str(labels[code]) for code in values]
    if kind in NUMERIC:
        return [repr(value) for value in np.asarray(values, dtype=np.float64).tolist()]
    if kind is Needs.LABELS:
        rows = sparse.csr_matrix(values)
        parts = np.split(rows.indices, rows.indptr[1:-1])
        return [" ".join(labels[code] for code in part) for part in parts]
    return [_SPELL[kind](value) for value in values]


def objects(values: Iterable[Any]) -> np.ndarray:
    """A 1-D object array (numpy would make equally long rows a matrix)."""
    listed = list(values)
    array = np.empty(len(listed), dtype=object)
    for row, value in enumerate(listed):
        array[row] = value
    return array


def number(text: str) -> float:
    """A decimal number as CSV writers print it; NaN for anything else (`float` would also take '1_0' and '١')."""
    if "_" in text or not text.isascii():
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan


# ---------------------------------------------------------------- one cell
def _parser(kind: Needs, codes: Mapping[str, int]) -> Callable[[str], Any]:
    if kind is Needs.LABEL:
        return lambda cell: _code(cell, codes)
    return _finite if kind in NUMERIC else _PARSE[kind]


def _code(cell: str, codes: Mapping[str, int]) -> int:
    if cell not in codes:
        raise _Bad(f"{_short(cell)} is not one of the labels")
    return codes[cell]


def _finite(cell: str) -> float:
    value = number(cell)
    if not math.isfinite(value):
        raise _Bad(f"{_short(cell)} is not a finite number")
    return value


def _label_sets(cells: Sequence[str], codes: Mapping[str, int]) -> sparse.csr_matrix:
    ends, found = [0], []
    for row, cell in enumerate(cells):
        try:
            found.extend(sorted({_code(word, codes) for word in cell.split()}))
        except _Bad as error:
            raise BadCell(row, str(error)) from error
        ends.append(len(found))
    width = max(codes.values(), default=-1) + 1
    return sparse.csr_matrix((np.ones(len(found), dtype=np.int64), found, ends), shape=(len(cells), width))


def _runs(cell: str) -> np.ndarray:
    words = [] if cell.strip() == "-" else cell.split()
    if len(words) % 2:
        raise _Bad("a run-length encoding needs pairs of start and length")
    if not all(word.isascii() and word.isdecimal() and len(word) < 19 for word in words):
        raise _Bad("a run-length encoding holds whole numbers only")
    runs_Nx2 = np.array([int(word) for word in words], dtype=np.int64).reshape(-1, 2)
    if (runs_Nx2 < 1).any():
        raise _Bad("starts and lengths of a run-length encoding begin at 1")
    if (runs_Nx2[1:, 0] < runs_Nx2[:-1].sum(axis=1)).any():
        raise _Bad("runs must rise and not overlap")
    return runs_Nx2


def _shapes(cell: str, size: int, label_at: int, what: str) -> Shapes:
    words = cell.split()
    if len(words) % size:
        raise _Bad(f"{what} come in groups of {size} words")
    labels = tuple(words[label_at::size])
    rest = [_finite(word) for at, word in enumerate(words) if at % size != label_at]
    if rest and max(map(abs, rest)) > LARGEST:
        raise _Bad(f"a number of {what} is too large")
    return Shapes(labels, np.array(rest, dtype=np.float64).reshape(-1, size - 1))


def _boxes(cell: str) -> Shapes:
    shapes = _shapes(cell, 6, 0, "boxes")
    if (shapes.values[:, 1:3] > shapes.values[:, 3:5]).any():
        raise _Bad("a box ends before it begins")
    return shapes


def _cuboids(cell: str) -> Shapes:
    shapes = _shapes(cell, 9, 8, "cuboids")
    if (shapes.values[:, 4:7] <= 0).any():
        raise _Bad("width, length and height of a cuboid must be positive")
    return shapes


def _short(text: str, limit: int = 16) -> str:
    return repr(text if len(text) <= limit else text[: limit - 2] + "..")[: limit + 10]


_PARSE: Mapping[Needs, Callable[[str], Any]] = {
    Needs.RANKED: lambda cell: tuple(cell.split()),
    Needs.TEXT: str,
    Needs.RUNS: _runs,
    Needs.POINTS: lambda cell: _shapes(cell, 3, 0, "points"),
    Needs.BOXES: _boxes,
    Needs.CUBOIDS: _cuboids,
}


def _spell_shapes(shapes: Shapes, label_at: int) -> str:
    words = []
    for label, values in zip(shapes.labels, shapes.values.tolist(), strict=True):
        row = [repr(value) for value in values]
        row.insert(label_at, label)
        words.extend(row)
    return " ".join(words)


_SPELL: Mapping[Needs, Callable[[Any], str]] = {
    Needs.RANKED: " ".join,
    Needs.TEXT: str,
    Needs.RUNS: lambda runs_Nx2: " ".join(map(str, runs_Nx2.ravel().tolist())),
    Needs.POINTS: lambda shapes: _spell_shapes(shapes, 0),
    Needs.BOXES: lambda shapes: _spell_shapes(shapes, 0),
    Needs.CUBOIDS: lambda shapes: _spell_shapes(shapes, 8),
}
