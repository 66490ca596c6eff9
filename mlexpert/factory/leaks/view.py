"""One look at a task for all probes: tables, hidden answers in the order of the test rows, targets as arrays.

Only what a probe may rely on is here: `test` and `answers` have the same rows in the same order, or `test` is None
(a task without a test table, or with several rows an id, whose answers cannot be joined row by row).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlexpert.factory.columns import values
from mlexpert.tasks.metrics import METRICS, Needs
from mlexpert.tasks.tables import TaskError, column, read_cells
from mlexpert.tasks.task import ANSWERS, SAMPLE, Task

MAX_ROWS = 20_000  # of either side, evenly spaced: what a probe looks for does not hide from a sample of this size
MAX_CELLS = 4_000_000
LONG = 20  # characters of an answer
MAX_TABLES, MAX_BYTES = 20, 2**27  # further tables: how many are read, of which size
MAX_CLASSES = 50  # of answers that are no labels (texts, sets, masks): few different ones can be told apart like labels


Table = Mapping[str, Sequence[str]]  # column -> its cells, exact strings


@dataclass(frozen=True)
class Target:
    """One target column. Classes are int64 codes, -1 where train has a class the answers lack; numbers are float64."""

    name: str
    is_class: bool
    train_R: np.ndarray  # empty without a train table
    test_R: np.ndarray
    n_classes: int = 0


@dataclass(frozen=True)
class View:
    task: Task
    train: Table | None
    test: Table | None
    answers: Table  # rows of `test`; without it, of the sample submission
    targets: tuple[Target, ...]
    tables: Mapping[str, Table]  # further CSV files of the public folder, by their path in it

    @property
    def features(self) -> list[str]:
        """Columns that train and test share, but for the id."""
        if self.train is None or self.test is None:
            return []
        skipped = {self.task.id_column, *self.task.target_columns}
        return [name for name in self.test if name in self.train and name not in skipped]

    @property
    def ids(self) -> Sequence[str]:
        """Of the test rows."""
        return self.answers[self.task.id_column]

    def cells(self, name: str) -> tuple[Sequence[str], Sequence[str]]:
        """A feature's cells in train and in test."""
        assert self.train is not None and self.test is not None  # there are no features otherwise
        return self.train[name], self.test[name]

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the test rows has a meaning of its own: time, or members of one group in a row."""
        return self.task.split.recipe in ("temporal", "grouped", "source") or self.task.modality == "series"


@dataclass(frozen=True)
class Wanted:
    """What public bytes are searched for, prepared once for all files."""

    ids: frozenset[str]  # of the test rows
    answers: Mapping[str, Mapping[str, str]]  # target -> id -> answer
    long: Mapping[str, Sequence[bytes]]  # target -> some of its answers that are too long to stand anywhere by chance


def wanted_of(view: View) -> Wanted:
    targets = view.task.target_columns
    answers = {name: dict(zip(view.ids, view.answers[name], strict=True)) for name in targets}
    long = {name: [cell for cell in dict.fromkeys(view.answers[name]) if len(cell) >= LONG][:50] for name in targets}
    return Wanted(
        frozenset(view.ids), answers, {name: [cell.encode() for cell in cells] for name, cells in long.items()}
    )


def look(task: Task) -> View:
    """Raises TaskError if a table cannot be read."""
    train = _table(task, task.train)
    test = _table(task, task.test)
    answers = read_cells(task.private / ANSWERS)
    if test is not None and not _joins(test, answers, task.id_column):
        test = None
    ids = column(task.public / SAMPLE, task.id_column) if test is None else test[task.id_column]
    place = {id: at for at, id in enumerate(answers[task.id_column])}
    answers = take(answers, [place[id] for id in ids])
    return View(
        task,
        train,
        test,
        answers,
        tuple(_targets(task, train, answers)),
        dict(itertools.islice(_tables(task, set(ids)), MAX_TABLES)),
    )


def thin(view: View) -> View:
    """The view with at most MAX_ROWS rows (fewer for wide tables) on either side, in their order."""
    width = max(1, len(view.features))
    limit = min(MAX_ROWS, max(500, MAX_CELLS // width))
    train, test, answers = view.train, view.test, view.answers
    keep_train = _spaced(0 if train is None else n_rows(train), limit)
    keep_test = _spaced(n_rows(answers), limit)
    targets = tuple(
        Target(
            t.name, t.is_class, t.train_R[keep_train] if len(t.train_R) else t.train_R, t.test_R[keep_test], t.n_classes
        )
        for t in view.targets
    )
    return View(
        view.task,
        None if train is None else take(train, keep_train.tolist()),
        None if test is None else take(test, keep_test.tolist()),
        take(answers, keep_test.tolist()),
        targets,
        view.tables,
    )


def take(table: Table, rows: Sequence[int]) -> Table:
    return {name: [cells[row] for row in rows] for name, cells in table.items()}


def n_rows(table: Table) -> int:
    return len(next(iter(table.values()), ()))


def codes_of(*columns: Sequence[str]) -> tuple[list[np.ndarray], int]:
    """The same code for the same text in all columns, and how many codes there are."""
    place: dict[str, int] = {}
    coded = [np.array([place.setdefault(cell, len(place)) for cell in column], dtype=np.int64) for column in columns]
    return coded, len(place)


# ---------------------------------------------------------------- parts of a look
def _table(task: Task, name: str) -> Table | None:
    return read_cells(task.public / name) if name.endswith(".csv") else None


def _tables(task: Task, ids: Collection[str]) -> Iterator[tuple[str, Table]]:
    """The largest few CSV files beside train, test and sample, those of single items and broken ones left out."""
    known = {task.train, task.test, SAMPLE}
    paths = [path for path in task.public.rglob("*.csv") if path.is_file() and not path.is_symlink()]
    for path in sorted(paths, key=lambda path: (-path.stat().st_size, path)):
        place = path.relative_to(task.public).as_posix()
        if place not in known and path.stem not in ids and path.stat().st_size <= MAX_BYTES:
            with contextlib.suppress(TaskError):
                yield place, read_cells(path)


def _joins(test: Table, answers: Table, id_column: str) -> bool:
    ids = test.get(id_column, ())
    return len(set(ids)) == len(ids) and set(ids) == set(answers[id_column])


def _targets(task: Task, train: Table | None, answers: Table) -> list[Target]:
    """Targets whose answers are labels, numbers, or few different values; others (masks, long texts) have no arrays."""
    kind = METRICS[task.metric].answers
    found = []
    for name in task.target_columns:
        cells, known = answers[name], (train or {}).get(name, ())
        if kind in (Needs.NUMBER, Needs.RATING):
            found.append(Target(name, False, values(known), values(cells)))
        elif kind is Needs.LABEL or 1 < len(set(cells)) <= MAX_CLASSES:
            (test_R,), n_classes = codes_of(cells)
            place = dict(zip(cells, test_R.tolist(), strict=True))
            train_R = np.array([place.get(cell, -1) for cell in known], dtype=np.int64)
            found.append(Target(name, True, train_R, test_R, n_classes))
    return found


def _spaced(rows: int, limit: int) -> np.ndarray:
    return np.arange(rows) if rows <= limit else np.linspace(0, rows - 1, limit).astype(np.int64)
