"""Tables of the source -> the rows of either side, with their ids, targets and every column that the task keeps.

In this order: read, drop columns, merge labels, leave out rows without an answer, keep equal rows once, take at most
`max_rows`, cut, make ids. What is left out is counted in a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mlexpert.factory import split
from mlexpert.factory.records import Blueprint, Finding, Quarantine, Raw
from mlexpert.factory.targets import is_missing
from mlexpert.tasks.metrics import Metric, Needs
from mlexpert.tasks.tables import TaskError, read_table

MADE_IDS = ("id", "row_id", "made_id")


@dataclass(frozen=True)
class Rows:
    train: pd.DataFrame  # id, features, targets; cells are exact strings
    test: pd.DataFrame  # the same columns
    id_column: str
    findings: tuple[Finding, ...] = ()


def rows(raw: Raw, plan: Blueprint, metric: Metric) -> Rows:
    """Both sides. Raises Quarantine naming file, column and row."""
    train = _prepared(read(raw.folder / plan.train), plan, metric, plan.train)
    if plan.recipe != "ready":
        table, findings = _cleaned(train, plan, metric, plan.train)
        _check_ids(table, plan.train, plan.id_column)
        sides = split.cut(table := split.fewer(table, plan), plan)
        train, test = (table.iloc[rows_N].reset_index(drop=True) for rows_N in sides)
    else:
        answered, unanswered = _answered(raw, plan)
        test = _prepared(answered, plan, metric, plan.test)
        _check_same_columns(train, test, plan)
        test, left_out = _cleaned(test, plan, metric, plan.test, distinct=False)
        train, findings = _cleaned(train, plan, metric, plan.train)
        train, repeated = _without(train, test, plan)
        for table, name in ((train, plan.train), (test, plan.test)):
            _check_ids(table, name, plan.id_column)
        rng = np.random.default_rng([plan.seed, 0])
        if not plan.time_column:
            train, test = (table.iloc[rng.permutation(len(table))].reset_index(drop=True) for table in (train, test))
        train = train.iloc[-plan.max_rows :].reset_index(drop=True)
        findings = [*unanswered, *left_out, *findings, *repeated]
    if not len(train) or not len(test):
        raise Quarantine("split", f"{len(train)} training and {len(test)} test rows are left; a task needs both")
    train, test, id_column = _with_ids(train, test, plan)
    return Rows(train, test, id_column, tuple(findings))


def read(path: Path) -> pd.DataFrame:
    """A table of the source as exact strings; line ends inside cells are "\\n". Raises Quarantine("build", ...)."""
    try:
        table = read_table(path)
    except TaskError as error:
        raise Quarantine("build", f"{error}; convert it to CSV in UTF-8 or name another file") from error
    if not len(table):
        raise Quarantine("build", f"{path.name} has no rows; fetch it again or name another file")
    # A bare carriage return would end the row for some readers and not for others.
    for name in table.columns:
        if any("\r" in cell for cell in table[name]):
            table[name] = [cell.replace("\r\n", "\n").replace("\r", "\n") for cell in table[name]]
    return table


# ---------------------------------------------------------------- one table
def _prepared(table: pd.DataFrame, plan: Blueprint, metric: Metric, name: str) -> pd.DataFrame:
    """Without dropped columns, labels merged. Raises Quarantine if a column that is needed is not there."""
    needed = [*plan.target_columns, *plan.roles.values(), plan.group_column, plan.time_column, plan.files_column]
    for column in [*needed, plan.id_column]:
        if column and column not in table:
            raise Quarantine("build", f"{name} has no column {column!r}; it has {listed(list(table))}")
    if lost := [column for column in plan.drop if column not in table and plan.recipe != "ready"]:
        raise Quarantine("build", f"{name} has no column {lost[0]!r} to drop; it has {listed(list(table))}")
    table = table.drop(columns=[column for column in plan.drop if column in table])
    for target in plan.target_columns if plan.merge_labels else ():
        table[target] = [_merged(cell, plan, metric) for cell in table[target]]
    return table


def _merged(cell: str, plan: Blueprint, metric: Metric) -> str:
    if metric.answers is Needs.LABELS and len(plan.target_columns) == 1:
        return " ".join(dict.fromkeys(plan.merge_labels.get(word, word) for word in cell.split()))
    return plan.merge_labels.get(cell, cell)


def _cleaned(
    table: pd.DataFrame, plan: Blueprint, metric: Metric, name: str, distinct: bool = True
) -> tuple[pd.DataFrame, list[Finding]]:
    """Rows that have all answers, equal ones once where the blueprint says so."""
    missing_R = np.zeros(len(table), dtype=bool)
    for target in plan.target_columns:
        missing_R |= np.array([is_missing(metric, cell) for cell in table[target]])
    findings = []
    if missing_R.any():
        findings.append(
            Finding("no_answer", "note", f"{missing_R.sum()} rows of {name} without an answer are left out")
        )
    table = table.loc[~missing_R]
    if plan.distinct and distinct:
        repeated = table.duplicated(subset=_inputs(table, plan))
        findings.append(
            Finding("repeated", "note", f"{repeated.sum()} rows of {name} repeat another one and are left out")
        )
        table = table.loc[~repeated]
    return table.reset_index(drop=True), findings


def _inputs(table: pd.DataFrame, plan: Blueprint) -> list[str]:
    outputs = (plan.id_column, *plan.target_columns, *plan.hidden)
    return [column for column in table.columns if column not in outputs]


# ---------------------------------------------------------------- two tables
def _answered(raw: Raw, plan: Blueprint) -> tuple[pd.DataFrame, list[Finding]]:
    """The source's test table with its targets: its own, or those of the table of answers, joined by id."""
    test = read(raw.folder / plan.test)
    if not plan.answers:
        return test, []
    answers = read(raw.folder / plan.answers)
    for table, name in ((test, plan.test), (answers, plan.answers)):
        if plan.id_column not in table:
            raise Quarantine("build", f"{name} has no id column {plan.id_column!r}; it has {listed(list(table))}")
    place = {id: at for at, id in enumerate(answers[plan.id_column])}
    if len(place) < len(answers):
        raise Quarantine(
            "build", f"{plan.answers} repeats ids ({len(answers) - len(place)}); answers need one row per id"
        )
    if lost := len(place.keys() - set(test[plan.id_column])):
        raise Quarantine(
            "build", f"{plan.answers} answers {lost} ids that {plan.test} does not have; take its own answers"
        )
    known_R = np.array([id in place for id in test[plan.id_column]])
    test = test.loc[known_R].reset_index(drop=True)
    order = [place[id] for id in test[plan.id_column]]
    for name in answers.columns:
        if name != plan.id_column:
            test[name] = answers[name].iloc[order].to_numpy()
    left_out = f"{(~known_R).sum()} rows of {plan.test} that {plan.answers} does not answer are left out"
    return test, [] if known_R.all() else [Finding("no_answer", "note", left_out)]


def _check_same_columns(train: pd.DataFrame, test: pd.DataFrame, plan: Blueprint) -> None:
    more = [name for name in test.columns if name not in train.columns]
    if more and more != [plan.id_column]:
        raise Quarantine(
            "build", f"{plan.test} has columns that {plan.train} lacks ({listed(more)}); drop them in the blueprint"
        )


def _without(train: pd.DataFrame, test: pd.DataFrame, plan: Blueprint) -> tuple[pd.DataFrame, list[Finding]]:
    """Training rows that equal a test row are left out where rows have to be distinct."""
    if not plan.distinct:
        return train, []
    inputs = [name for name in _inputs(train, plan) if name in test.columns]
    known = set(map(tuple, test[inputs].to_numpy().tolist()))
    repeated_N = np.array([tuple(row) in known for row in train[inputs].to_numpy().tolist()])
    note = Finding("repeated", "note", f"{repeated_N.sum()} rows of {plan.train} repeat a test row and are left out")
    return train.loc[~repeated_N].reset_index(drop=True), [note]


# ---------------------------------------------------------------- ids
def _with_ids(train: pd.DataFrame, test: pd.DataFrame, plan: Blueprint) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    if plan.id_column:
        return train, test, plan.id_column
    id_column = next(name for name in MADE_IDS if name not in train.columns)
    train.insert(0, id_column, np.arange(len(train)).astype(str).astype(object))
    test.insert(0, id_column, (len(train) + np.arange(len(test))).astype(str).astype(object))
    return train, test, id_column


def _check_ids(table: pd.DataFrame, name: str, id_column: str) -> None:
    """Ids of one table of the source are distinct and not empty; with none declared there is nothing to check."""
    ids = table[id_column].tolist() if id_column else []
    if len(set(ids)) < len(ids):
        first = next(id for id, count in Counter(ids).items() if count > 1)
        raise Quarantine(
            "build",
            f"{name}: {len(ids) - len(set(ids))} of {len(ids)} ids in column {id_column!r} are repeated, first "
            f"{first[:40]!r}; name another id column, or none, and ids are made",
        )
    if "" in ids:
        raise Quarantine("build", f"{name}: an id in column {id_column!r} is empty; name another id column, or none")


def listed(names: Sequence[str], limit: int = 20) -> str:
    """Names for a message, the first few."""
    return ", ".join(names[:limit]) + (f", ... ({len(names)})" if len(names) > limit else "")
