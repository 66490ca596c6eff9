"""CSV text -> columns of exact strings. What the rows look like is told by the first one that is wrong.

Most files hold no quote and as many commas in every line: those are split at once, which is about four times as fast
as reading record by record. Any other file goes through the csv module; both ways give the same result or the same
error (a test holds them together).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from operator import itemgetter, methodcaller
from typing import NamedTuple

PIECE = 2**17  # characters are split in pieces of about as many cells, so that columns not asked for cost little
MAX_FIELD = 2**24  # characters of one cell; whole documents stand in the cells of some tables
csv.field_size_limit(MAX_FIELD)  # of the process: set once, so that no thread changes it under another's reader


class Broken(Exception):
    """The text is no table from `line` on; `cause` says why, `found` is the number of fields of a ragged line."""

    def __init__(self, line: int, cause: str, found: int = 0) -> None:
        super().__init__(f"line {line}: {cause}")
        self.line, self.cause, self.found = line, cause, found


RAGGED, REPEATED_HEADER, TOO_MANY_ROWS, TOO_LONG = "ragged", "the header is repeated", "too many rows", "field too long"


class Body(NamedTuple):
    cells: list[list[str]]  # the columns asked for
    lines: Sequence[int]  # of the file, on which each row ends

    @property
    def rows(self) -> int:
        return len(self.lines)


def header(text: str) -> list[str]:
    """The first record that is not blank, [] if there is none. Raises Broken."""
    return next(_records(text), (0, []))[1]


def body(text: str, names: Sequence[str], wanted: Sequence[int], limit: int, field: int = MAX_FIELD) -> Body:
    """The columns at places `wanted` of all rows below the header `names`; blank lines are passed over.

    Raises Broken for broken quoting, a line with another number of fields than the header, a second header, more than
    `limit` rows (blank lines count) or a cell of more than `field` characters.
    """
    return _plain(text, names, wanted, limit, field) or _read(text, names, wanted, limit, field)


# ---------------------------------------------------------------- the fast way: only for tables without a fault
def _plain(text: str, names: Sequence[str], wanted: Sequence[int], limit: int, field: int) -> Body | None:
    if not names or '"' in text:
        return None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    beyond = len(lines) - 1 - (not lines[-1]) > limit  # after the last newline there is no further record
    while lines and not lines[-1]:
        lines.pop()
    if beyond or not lines or lines[0] != ",".join(names) or not _all_alike(lines, len(names), field):
        return None
    cells: list[list[str]] = [[] for _ in wanted]
    step = max(1, PIECE // len(names))
    for start in range(1, len(lines), step):
        flat = ",".join(lines[start : start + step]).split(",")
        for column, at in zip(cells, wanted, strict=True):
            column.extend(flat[at :: len(names)])
    return Body(cells, range(2, len(lines) + 1))


def _all_alike(lines: list[str], width: int, field: int) -> bool:
    """As many fields everywhere, no blank line, no second header, no line that could hold a long cell."""
    if set(map(methodcaller("count", ","), lines)) != {width - 1} or "" in lines:
        return False
    return lines.count(lines[0]) == 1 and max(map(len, lines)) <= field


# ---------------------------------------------------------------- the general way
def _read(text: str, names: Sequence[str], wanted: Sequence[int], limit: int, field: int) -> Body:
    records = _records(text)
    next(records, None)
    pick = itemgetter(*wanted) if len(wanted) > 1 else lambda row: (row[wanted[0]],)
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    for count, (line, row) in enumerate(records, start=1):
        if count > limit:
            raise Broken(line, TOO_MANY_ROWS)
        if row == names:
            raise Broken(line, REPEATED_HEADER)
        if row and len(row) != len(names):
            raise Broken(line, RAGGED, len(row))
        if row and max(map(len, row)) > field:
            raise Broken(line, TOO_LONG)
        if row:
            rows.append(pick(row))
            lines.append(line)
    return Body([list(column) for column in zip(*rows, strict=True)] or [[] for _ in wanted], lines)


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """Records with the line each ends on, from the first that is not blank; blank ones below it are []."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begun = False
    try:
        for row in reader:
            begun = begun or bool(row)
            if begun:
                yield reader.line_num, row
    except csv.Error as error:
        cause = "unclosed quote" if "end of data" in str(error) else str(error)
        raise Broken(max(1, reader.line_num), cause) from error
