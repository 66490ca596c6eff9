"""The CSV tables of an unpacked competition, as much of each as it takes to see what it is."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mlexpert.factory import columns
from mlexpert.tasks.tables import TaskError, column, header

MAX_ROWS = 5000  # of a table that are looked at
MADE = "analysed"  # folder of tables written here
MAX_SHEETS = 200  # files of single items are not tables of the competition


@dataclass(frozen=True)
class Sheet:
    """A table: `cells` holds the first rows, `n_rows` counts all of them."""

    name: str  # relative to the folder
    path: Path
    cells: Mapping[str, Sequence[str]]
    n_rows: int

    @property
    def columns(self) -> list[str]:
        return list(self.cells)

    @property
    def words(self) -> set[str]:
        """The words of its file name: {"train", "labels"} of trainLabels.csv."""
        parts = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", PurePosixPath(self.name).stem)
        return set(re.findall(r"[a-z]+", parts.lower()))

    def kind(self, name: str) -> str:
        """number, time, text or label, by the cells."""
        return columns.kind(self.cells[name])

    def is_key(self, name: str) -> bool:
        """Whether every row has its own, non-empty value, as far as was looked and then in all rows."""
        seen = self.cells[name]
        if "" in seen or len(set(seen)) < len(seen):
            return False
        whole = column(self.path, name)
        return "" not in whole and len(set(whole)) == len(whole)


def sheets(folder: Path) -> tuple[list[Sheet], list[str]]:
    """All tables, the largest first, and what is wrong with those that cannot be read."""
    paths = sorted(folder.rglob("*.csv"), key=lambda path: (-path.stat().st_size, path))
    paths = [
        path
        for path in paths
        if not any(part.startswith((".", "__MACOSX", MADE)) for part in path.relative_to(folder).parts)
    ]
    found, problems = [], []
    for path in paths[:MAX_SHEETS]:
        try:
            found.append(read(path, path.relative_to(folder).as_posix()))
        except TaskError as error:
            problems.append(str(error))
    return found, problems


def read(path: Path, name: str) -> Sheet:
    """Raises TaskError if the file is no CSV in UTF-8, or one of another width somewhere in the rows looked at."""
    names = header(path)
    if len(set(names)) < len(names) or not names:
        raise TaskError(f"{name}: {'a column name appears twice' if names else 'empty'}")
    rows: list[list[str]] = []
    n_rows = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            next(reader)
            for row in filter(None, reader):
                n_rows += 1
                if len(rows) < MAX_ROWS:
                    if len(row) != len(names):
                        raise TaskError(
                            f"{name}, line {reader.line_num}: {len(row)} fields, the header has {len(names)}"
                        )
                    rows.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"{name}: not CSV in UTF-8 ({error}); convert it") from error
    cells = list(zip(*rows, strict=True)) or [()] * len(names)
    return Sheet(name, path, dict(zip(names, cells, strict=True)), n_rows)
