"""Reading a submission: bytes that nobody trusts -> predictions aligned to the sample submission, or a short reason.

Blind: everything here follows from the public `Form` (the sample submission, the metric, the label set), so every
reason may be shown to the policy. Ids are compared as exact strings, cells are never guessed: an empty cell is not
"NA" and 'NA' is a text. One rule for all tasks: rows may come in any order, further columns are ignored.
"""

from __future__ import annotations

import csv
import enum
import errno
import io
import math
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlexpert.tasks.metrics import SUM_TOLERANCE, Needs, number
from mlexpert.types import VerdictStatus

MAX_BYTES = 256 * 2**20
MAX_FIELD = 2**20  # characters of one cell
LARGEST = 1e100  # larger magnitudes overflow when a metric squares them
REASON_LENGTH = 60


class Reason(enum.StrEnum):
    """The whole catalogue; `{}` takes text from the submission or the sample, shortened."""

    NOT_A_FILE = "not a readable regular file"
    TOO_LARGE = "the file is larger than {} MB"
    EMPTY = "the file is empty"
    BINARY = "a {} file, not CSV text"
    UTF16 = "UTF-16 text, write UTF-8"
    ENCODING = "not UTF-8 (line {})"
    CSV = "broken CSV near line {}: {}"
    DELIMITER = "separated by {}, write commas"
    NO_HEADER = "no header line"
    MISSING_COLUMN = "missing column {}"
    REPEATED_COLUMN = "column {} appears twice"
    NO_ROWS = "no rows below the header"
    REPEATED_HEADER = "line {}: the header is repeated"
    RAGGED = "line {}: {} fields, the header has {}"
    DUPLICATE_IDS = "duplicate ids: {}, first {}"
    UNKNOWN_IDS = "unknown ids: {}, first {}"
    MISSING_IDS = "missing ids: {}, first {}"
    EMPTY_CELL = "empty values: {}, first in line {}"
    NOT_FINITE = "NaN or infinite values: {}, first in line {}"
    NOT_A_NUMBER = "line {}: {} is not a number"
    HUGE = "line {}: {} is too large"
    UNKNOWN_LABEL = "line {}: {} is not one of the labels"
    PROBABILITY = "line {}: {} is not a probability"
    ROW_SUM = "line {}: probabilities sum to {}, not 1"
    UNDEFINED = "the metric is undefined for these values"


class Note(enum.StrEnum):
    """Remarks on a submission that is valid all the same."""

    IS_SAMPLE = "the same values as the sample submission"
    EXTRA_COLUMN = "column {} is ignored"


@dataclass(frozen=True)
class Form:
    """All that intake may know of a task, taken from its public part."""

    id_column: str
    columns: tuple[str, ...]  # to predict: the target, or one column per label
    ids: tuple[str, ...]  # in the sample's order
    place: Mapping[str, int]  # id -> row of `ids`
    needs: Needs
    codes: Mapping[str, int]  # accepted spelling of a label -> its code; empty for numbers
    sample: np.ndarray | None = None  # the sample's own values, in the shape of Predictions.values


@dataclass(frozen=True)
class Predictions:
    values: np.ndarray  # R rows in the order of Form.ids: int64 codes_R, float64 values_R, or float64 shares_RxC
    note: str = ""


@dataclass(frozen=True)
class Refusal:
    status: VerdictStatus  # ABSENT, UNREADABLE or INVALID
    reason: str


class _Refused(Exception):
    def __init__(self, status: VerdictStatus, template: str, *parts: object) -> None:
        super().__init__(fill(template, *parts))
        self.refusal = Refusal(status, str(self))


def read_submission(path: Path | None, form: Form) -> Predictions | Refusal:
    """The predictions in the file, aligned to `form.ids`, or a Refusal: no content of a file raises.

    Raises OSError only for faults of the host (no descriptors left, a failing disk).
    """
    if path is None:
        return Refusal(VerdictStatus.ABSENT, "")
    try:
        data = _bytes(Path(path))
        return Refusal(VerdictStatus.ABSENT, "") if data is None else _predictions(_rows(data), form)
    except _Refused as refused:
        return refused.refusal


def fill(template: str, *parts: object) -> str:
    """A catalogue line with its gaps filled: one line, at most 60 characters."""
    return template.format(*(str(part) for part in parts))[:REASON_LENGTH]


def quoted(text: str, limit: int = 16) -> str:
    """Foreign text for a reason: one line, printable, shortened."""
    return repr(text if len(text) <= limit else text[: limit - 2] + "..")[: limit + 10]


def label_codes(labels: Sequence[str]) -> dict[str, int]:
    """Accepted spellings of each label: itself; for 0/1 and True/False labels the other way to write a boolean too."""
    codes = {label: code for code, label in enumerate(labels)}
    for code, label in enumerate(labels):
        for alias in _aliases(label, labels):
            codes.setdefault(alias, code)
    return codes


def _aliases(label: str, labels: Sequence[str]) -> tuple[str, ...]:
    folded = {other.lower() for other in labels}
    if folded == {"true", "false"} or set(labels) == {"0", "1"}:
        if label.lower() in ("true", "1"):
            return ("True", "true", "TRUE", "1", "1.0")
        return ("False", "false", "FALSE", "0", "0.0")
    if label.lstrip("-").isdecimal():
        return (f"{label}.0",)
    return (label.removesuffix(".0"),) if label.lstrip("-").removesuffix(".0").isdecimal() else ()


# ---------------------------------------------------------------- bytes
def _bytes(path: Path) -> bytes | None:
    """Contents of a regular file, None if there is none. A pipe or device never blocks, a link is never followed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A link, a socket, no permission: the file's fault. No descriptors left, a broken disk: ours, so it raises.
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EACCES, errno.ENOTDIR):
            raise
        raise _Refused(VerdictStatus.UNREADABLE, Reason.NOT_A_FILE) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _Refused(VerdictStatus.UNREADABLE, Reason.NOT_A_FILE)
    with os.fdopen(handle, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _Refused(VerdictStatus.UNREADABLE, Reason.TOO_LARGE, MAX_BYTES // 2**20)
    return data


_MAGIC = (
    (b"\x1f\x8b", "gzip"), (b"PK\x03\x04", "zip or Excel"), (b"PAR1", "Parquet"), (b"\x80\x04", "pickle"),
    (b"\x80\x05", "pickle"), (b"\x93NUMPY", "NumPy"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz"),
    (b"%PDF", "PDF"), (b"\x89PNG", "PNG"),
)  # fmt: skip


def _text(data: bytes) -> str:
    if not data.strip():
        raise _Refused(VerdictStatus.UNREADABLE, Reason.EMPTY)
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            raise _Refused(VerdictStatus.UNREADABLE, Reason.BINARY, kind)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _Refused(VerdictStatus.UNREADABLE, Reason.UTF16)
    if b"\0" in data:
        raise _Refused(VerdictStatus.UNREADABLE, Reason.BINARY, "binary")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _Refused(VerdictStatus.UNREADABLE, Reason.ENCODING, line) from error
    if text.lstrip()[:1] == "<":
        raise _Refused(VerdictStatus.UNREADABLE, Reason.BINARY, "HTML or XML")
    if text.lstrip()[:1] in ("{", "["):
        raise _Refused(VerdictStatus.UNREADABLE, Reason.BINARY, "JSON")
    return text


def _rows(data: bytes) -> list[tuple[int, list[str]]]:
    """Non-empty CSV records with the line each ends on; the first is the header."""
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(io.StringIO(_text(data), newline=""), strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        rows.extend((reader.line_num, row) for row in reader if row)
    except csv.Error as error:
        cause = "unclosed quote" if "end of data" in str(error) else str(error)
        raise _Refused(VerdictStatus.UNREADABLE, Reason.CSV, max(1, reader.line_num), cause) from error
    if not rows:
        raise _Refused(VerdictStatus.UNREADABLE, Reason.EMPTY)
    return rows


# ---------------------------------------------------------------- table
def _predictions(rows: list[tuple[int, list[str]]], form: Form) -> Predictions:
    names, body = rows[0][1], rows[1:]
    wanted = (form.id_column, *form.columns)
    _check_header(names, wanted, form)
    _check_body(names, body)
    id_at, *columns_at = (names.index(name) for name in wanted)
    order = _order([row[id_at] for _, row in body], form)
    lines = [body[at][0] for at in order]
    cells = [[body[at][1][column] for at in order] for column in columns_at]
    values = _labels(cells[0], lines, form) if form.needs is Needs.LABEL else _numbers(cells, lines, form)
    extra = [name for name in names if name not in wanted]
    note = fill(Note.EXTRA_COLUMN, quoted(extra[0])) if extra else ""
    if form.sample is not None and np.array_equal(values, form.sample):
        note = Note.IS_SAMPLE.value
    return Predictions(values, note)


def _check_header(names: list[str], wanted: Sequence[str], form: Form) -> None:
    missing = [name for name in wanted if name not in names]
    if missing and len(names) == 1:
        for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if mark in names[0]:
                raise _Refused(VerdictStatus.INVALID, Reason.DELIMITER, word)
    if missing and any(name in form.place for name in names):
        raise _Refused(VerdictStatus.INVALID, Reason.NO_HEADER)
    if missing:
        raise _Refused(VerdictStatus.INVALID, Reason.MISSING_COLUMN, quoted(missing[0], 32))
    if repeated := [name for name in wanted if names.count(name) > 1]:
        raise _Refused(VerdictStatus.INVALID, Reason.REPEATED_COLUMN, quoted(repeated[0], 32))


def _check_body(names: list[str], body: list[tuple[int, list[str]]]) -> None:
    if not body:
        raise _Refused(VerdictStatus.INVALID, Reason.NO_ROWS)
    for line, row in body:
        if row == names:
            raise _Refused(VerdictStatus.INVALID, Reason.REPEATED_HEADER, line)
        if len(row) != len(names):
            raise _Refused(VerdictStatus.INVALID, Reason.RAGGED, line, len(row), len(names))


def _order(ids: list[str], form: Form) -> list[int]:
    """For each id of the sample, the place of its row in the submission."""
    found = {id: at for at, id in enumerate(ids)}
    if len(found) < len(ids):
        repeated = [id for at, id in enumerate(ids) if found[id] != at]
        raise _Refused(VerdictStatus.INVALID, Reason.DUPLICATE_IDS, len(repeated), quoted(repeated[0]))
    if unknown := [id for id in ids if id not in form.place]:
        raise _Refused(VerdictStatus.INVALID, Reason.UNKNOWN_IDS, len(unknown), quoted(unknown[0]))
    if missing := [id for id in form.ids if id not in found]:
        raise _Refused(VerdictStatus.INVALID, Reason.MISSING_IDS, len(missing), quoted(missing[0]))
    return [found[id] for id in form.ids]


# ---------------------------------------------------------------- cells
def _first_line(bad: Iterable[int], lines: list[int]) -> int:
    return min(lines[at] for at in bad)


def _check_empty(cells: list[str], lines: list[int]) -> None:
    if "" in cells:
        empty = [at for at, cell in enumerate(cells) if not cell]
        raise _Refused(VerdictStatus.INVALID, Reason.EMPTY_CELL, len(empty), _first_line(empty, lines))


def _labels(cells: list[str], lines: list[int], form: Form) -> np.ndarray:
    _check_empty(cells, lines)
    codes_R = [form.codes.get(cell, -1) for cell in cells]
    if -1 in codes_R:
        at = codes_R.index(-1)
        raise _Refused(VerdictStatus.INVALID, Reason.UNKNOWN_LABEL, lines[at], quoted(cells[at]))
    return np.array(codes_R, dtype=np.int64)


def _numbers(columns: list[list[str]], lines: list[int], form: Form) -> np.ndarray:
    values_RxC = np.stack([_column(cells, lines, form.needs) for cells in columns], axis=1)
    if values_RxC.shape[1] == 1:
        return values_RxC[:, 0]
    sums_R = values_RxC.sum(axis=1)
    # The slack lets three shares of .333 pass: their sum is .999 only up to rounding.
    if len(bad := np.flatnonzero(np.abs(sums_R - 1.0) > SUM_TOLERANCE + 1e-9)):
        raise _Refused(VerdictStatus.INVALID, Reason.ROW_SUM, lines[bad[0]], f"{sums_R[bad[0]]:.6g}")
    return values_RxC


def _column(cells: list[str], lines: list[int], needs: Needs) -> np.ndarray:
    _check_empty(cells, lines)
    values_R = np.array([number(cell) for cell in cells], dtype=np.float64)
    if len(bad := np.flatnonzero(~np.isfinite(values_R))):
        for at in bad:
            if math.isnan(values_R[at]) and cells[at].strip().lower() not in ("nan", "+nan", "-nan"):
                raise _Refused(VerdictStatus.INVALID, Reason.NOT_A_NUMBER, lines[at], quoted(cells[at]))
        raise _Refused(VerdictStatus.INVALID, Reason.NOT_FINITE, len(bad), _first_line(bad.tolist(), lines))
    if len(bad := np.flatnonzero(np.abs(values_R) > LARGEST)):
        raise _Refused(VerdictStatus.INVALID, Reason.HUGE, lines[bad[0]], quoted(cells[bad[0]]))
    if needs is Needs.PROBABILITY and len(bad := np.flatnonzero((values_R < 0.0) | (values_R > 1.0))):
        raise _Refused(VerdictStatus.INVALID, Reason.PROBABILITY, lines[bad[0]], quoted(cells[bad[0]]))
    return values_R
