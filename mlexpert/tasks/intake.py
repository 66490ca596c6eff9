"""Reading a submission: bytes that nobody trusts -> predictions aligned to the sample submission, or a short reason.

Blind: everything here follows from the public `Form` (the sample submission, the metric, the label set), so every
reason may be shown to the policy. Ids are compared as exact strings, cells are never guessed: an empty cell is not
"NA" and 'NA' is a text. One rule for all tasks: rows may come in any order, further columns are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlexpert.tasks import delimited
from mlexpert.tasks.decode import read_text
from mlexpert.tasks.metrics import Needs, spell
from mlexpert.tasks.reasons import Note, Reason, Refusal, Refused, fill, invalid, quoted, unreadable
from mlexpert.tasks.values import read_values
from mlexpert.types import VerdictStatus

MAX_BYTES = 256 * 2**20  # more only where the sample asks for more cells than that could hold
BYTES_PER_CELL = 64
MAX_FIELD = 2**20  # characters of one cell
MAX_COLUMNS = 20_000
DELIMITERS = ((";", "semicolons"), ("\t", "tabs"), ("|", "bars"))


@dataclass(frozen=True)
class Form:
    """All that intake may know of a task, taken from its public part."""

    id_column: str
    columns: tuple[str, ...]  # to predict, in the order in which the metric takes them
    ids: tuple[str, ...]  # in the sample's order
    place: Mapping[str, int]  # id -> row of `ids`
    needs: Needs
    codes: Mapping[str, int]  # accepted spelling of a label -> its code; empty for numbers
    sum_to_one: bool = False  # the columns of a row are shares of 1
    sample: Any = None  # the sample's own values, in the shape of Predictions.values


@dataclass(frozen=True)
class Predictions:
    values: Any  # R rows in the order of Form.ids; see metrics.cells, RxC float64 for several columns
    note: str = ""
    # Row r stands at place order_R[r] of the file, on line lines[order_R[r]].
    order_R: np.ndarray | None = field(default=None, compare=False, repr=False)
    lines: Sequence[int] = field(default=(), compare=False, repr=False)


def read_submission(path: Path | None, form: Form) -> Predictions | Refusal:
    """The predictions in the file, aligned to `form.ids`, or a Refusal: no content of a file raises.

    Raises OSError only for faults of the host (no descriptors left, a failing disk).
    """
    if path is None:
        return Refusal(VerdictStatus.ABSENT, "")
    try:
        read = read_text(Path(path), size_limit(form))
        return Refusal(VerdictStatus.ABSENT, "") if read is None else _predictions(read.text, read.note, form)
    except Refused as refused:
        return refused.refusal


def line_of(submission: Predictions, row: int) -> int:
    """Line of the file on which row `row` of the values stands; 0 if it is not known."""
    return 0 if submission.order_R is None else submission.lines[submission.order_R[row]]


def size_limit(form: Form) -> int:
    """Bytes of a submission, packed or not."""
    return max(MAX_BYTES, BYTES_PER_CELL * len(form.ids) * (1 + len(form.columns)))


def row_limit(form: Form) -> int:
    """Rows that are looked at: room for every id twice, so that repeated ids are still told from too many rows."""
    return 2 * len(form.ids) + 1000


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


# ---------------------------------------------------------------- table
def _predictions(text: str, note: str, form: Form) -> Predictions:
    wanted = (form.id_column, *form.columns)
    try:
        names = delimited.header(text)
        _check_header(names, wanted, form)
        body = delimited.body(text, names, [names.index(name) for name in wanted], row_limit(form), MAX_FIELD)
    except delimited.Broken as broken:
        raise _broken(broken, text, form) from broken
    if not body.rows:
        raise invalid(Reason.NO_ROWS)
    ids, *cells = body.cells
    order_R = _order(ids, form)
    values = read_values(cells, body.lines, form.columns, form.needs, form.codes, form.sum_to_one)[order_R]
    extra = [name for name in names if name not in wanted]
    note = fill(Note.EXTRA_COLUMN, quoted(extra[0])) if extra else note
    if form.sample is not None and _same(values, form.sample, form.needs):
        note = Note.IS_SAMPLE.value
    return Predictions(values, note, order_R, body.lines)


def _check_header(names: list[str], wanted: Sequence[str], form: Form) -> None:
    if not names:
        raise unreadable(Reason.EMPTY)
    if len(names) > MAX_COLUMNS + len(wanted):
        raise invalid(Reason.TOO_MANY_COLUMNS, len(names), MAX_COLUMNS + len(wanted))
    missing = [name for name in wanted if name not in names]
    if missing and len(names) == 1:
        for mark, word in DELIMITERS:
            if mark in names[0]:
                raise invalid(Reason.DELIMITER, word, line=1)
        if set(wanted) <= set(names[0].split()):
            raise invalid(Reason.DELIMITER, "blanks", line=1)
    if missing and any(name in form.place for name in names):
        raise invalid(Reason.NO_HEADER, line=1)
    if missing:
        raise invalid(Reason.MISSING_COLUMN, quoted(missing[0], 32), column=missing[0], count=len(missing))
    if repeated := [name for name in wanted if names.count(name) > 1]:
        raise invalid(Reason.REPEATED_COLUMN, quoted(repeated[0], 32), column=repeated[0], count=len(repeated))


def _broken(broken: delimited.Broken, text: str, form: Form) -> Refused:
    line = broken.line
    if broken.cause == delimited.RAGGED:
        return invalid(Reason.RAGGED, line, broken.found, len(delimited.header(text)), line=line)
    if broken.cause == delimited.REPEATED_HEADER:
        return invalid(Reason.REPEATED_HEADER, line, line=line)
    if broken.cause == delimited.TOO_MANY_ROWS:
        return invalid(Reason.TOO_MANY_ROWS, row_limit(form), len(form.ids), line=line)
    return unreadable(Reason.CSV, line, broken.cause, line=line)


def _order(ids: list[str], form: Form) -> np.ndarray:
    """For each id of the sample, the place of its row in the submission."""
    found = dict(zip(ids, range(len(ids)), strict=True))
    if len(found) < len(ids):
        repeated = [id for at, id in enumerate(ids) if found[id] != at]
        raise invalid(Reason.DUPLICATE_IDS, len(repeated), quoted(repeated[0]), count=len(repeated))
    order = list(map(found.get, form.ids))
    if len(order) == len(ids) and None not in order:
        return np.array(order, dtype=np.int64)
    if unknown := [id for id in ids if id not in form.place]:
        raise invalid(Reason.UNKNOWN_IDS, len(unknown), quoted(unknown[0]), count=len(unknown))
    missing = [id for id in form.ids if id not in found]
    raise invalid(Reason.MISSING_IDS, len(missing), quoted(missing[0]), count=len(missing))


def _same(values: Any, sample: Any, needs: Needs) -> bool:
    if needs is Needs.LABELS:
        return (values != sample).nnz == 0
    if values.dtype != object:
        return np.array_equal(values, sample)
    return spell(needs, values) == spell(needs, sample)
