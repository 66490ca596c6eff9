"""Which table is what: by file names, and by what columns the tables share.

A Kaggle competition gives a labelled train table, a test table without the target, and a sample submission of ids and
constants. Any of the last two may be missing; a single table is a data set.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mlexpert.factory.analyse.sheets import Sheet
from mlexpert.factory.records import Quarantine

SAMPLE = {"sample", "submission", "submissions", "example", "benchmark"}
TRAIN, TEST = {"train", "training"}, {"test", "testing", "evaluation", "eval"}
ANSWERS = {"solution", "solutions", "answer", "answers", "labels", "truth", "groundtruth", "key"}
FOLD = 0.5  # share of train's columns that a test table has at least


@dataclass(frozen=True)
class Roles:
    train: Sheet
    test: Sheet | None = None
    sample: Sheet | None = None
    answers: Sheet | None = None  # labels of the test rows, where the source gives them


def roles(tables: Sequence[Sheet]) -> Roles:
    """Raises Quarantine if no table, or no one table, can be the training table."""
    if not tables:
        raise Quarantine("plan", "there is no CSV table in it; this Factory makes tasks with a table of targets")
    train = _train(tables)
    test = _test(tables, train)
    sample = _sample([table for table in tables if table not in (train, test)], test)
    return Roles(train, test, sample, _answers(tables, train, test, sample))


def _train(tables: Sequence[Sheet]) -> Sheet:
    named = [table for table in tables if table.words & TRAIN and not table.words & (TEST | SAMPLE)]
    if not named:
        named = [table for table in tables if not table.words & (TEST | SAMPLE | ANSWERS)]
    if exact := [table for table in named if table.words <= TRAIN]:
        return min(exact, key=lambda table: (table.name.count("/"), -table.n_rows))
    if len(named) > 1:
        listed = ", ".join(f"{table.name} ({table.n_rows} rows)" for table in named[:6])
        raise Quarantine("plan", f"several tables could be the training table: {listed}; name it in the blueprint")
    if not named:
        raise Quarantine(
            "plan", f"none of {', '.join(table.name for table in tables[:6])} is a training table; name it"
        )
    return named[0]


def _test(tables: Sequence[Sheet], train: Sheet) -> Sheet | None:
    """The table of features without target: named so, and made of train's columns."""
    named = [
        table
        for table in tables
        if table is not train
        and table.words & TEST
        and not table.words & (SAMPLE | ANSWERS)
        and _shared(table, train) >= FOLD
    ]
    return max(named, key=lambda table: (table.words <= TEST, _shared(table, train), table.n_rows), default=None)


def _shared(table: Sheet, train: Sheet) -> float:
    """Share of train's columns, one of them left out as the target, that `table` has."""
    return len(set(table.columns) & set(train.columns)) / max(1, len(train.columns) - 1)


def _sample(tables: Collection[Sheet], test: Sheet | None) -> Sheet | None:
    named = [table for table in tables if table.words & SAMPLE]
    if test is not None:
        fitting = [table for table in named if table.n_rows == test.n_rows]
        named = fitting or named
    return min(named, key=lambda table: (not table.words & {"sample"}, len(table.name)), default=None)


def _answers(tables: Sequence[Sheet], train: Sheet, test: Sheet | None, sample: Sheet | None) -> Sheet | None:
    """Labels of the test rows: a table of their number of rows that has a column which test lacks and train has."""
    if test is None:
        return None
    for table in tables:
        lacking = set(table.columns) & (set(train.columns) - set(test.columns))
        if table not in (train, test, sample) and table.words & ANSWERS and table.n_rows == test.n_rows and lacking:
            return table
    return None
