"""Everything that may be said about a submission: a fixed catalogue, one short line each, nothing derived from answers.

`{}` takes text from the submission or the sample, shortened, so every line may be shown to the policy.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from mlexpert.types import VerdictStatus

REASON_LENGTH = 60


class Reason(enum.StrEnum):
    NOT_A_FILE = "not a readable regular file"
    TOO_LARGE = "the file is larger than {} MB"
    TOO_MANY_ROWS = "more than {} rows, the sample has {}"
    TOO_MANY_COLUMNS = "{} columns, at most {} are read"
    EMPTY = "the file is empty"
    BINARY = "a {} file, not CSV text"
    BROKEN_GZIP = "a broken gzip file"
    UTF16 = "UTF-16 text without its mark, write UTF-8"
    ENCODING = "not {} (line {})"
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
    CELL = "line {}: {}"  # what the cell's form or the metric's own range asks for
    UNDEFINED = "the metric is undefined for these values"


class Note(enum.StrEnum):
    """Remarks on a submission that is valid all the same."""

    IS_SAMPLE = "the same values as the sample submission"
    EXTRA_COLUMN = "column {} is ignored"
    GZIP = "gzip, unpacked"
    UTF16 = "read as UTF-16"


@dataclass(frozen=True)
class Refusal:
    """`reason` is for reading, the rest for programs: the entry of the catalogue, where it is first true, how often."""

    status: VerdictStatus  # ABSENT, UNREADABLE or INVALID
    reason: str
    code: Reason | None = field(default=None, compare=False)
    column: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)  # of the file, counted from 1; 0: no single line
    count: int = field(default=0, compare=False)  # rows, ids or cells concerned; 0: not counted


class Refused(Exception):
    """A submission ends here; `refusal` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


def unreadable(code: Reason, *parts: object, line: int = 0) -> Refused:
    return Refused(Refusal(VerdictStatus.UNREADABLE, fill(code, *parts), code, line=line))


def invalid(code: Reason, *parts: object, column: str = "", line: int = 0, count: int = 0) -> Refused:
    return Refused(Refusal(VerdictStatus.INVALID, fill(code, *parts), code, column, line, count))


def fill(template: str, *parts: object) -> str:
    """A catalogue line with its gaps filled: one line, at most 60 characters."""
    return template.format(*(str(part) for part in parts))[:REASON_LENGTH]


def quoted(text: str, limit: int = 16) -> str:
    """Foreign text for a reason: one line, printable, shortened."""
    return repr(text if len(text) <= limit else text[: limit - 2] + "..")[: limit + 10]
