"""Raw files and a blueprint -> a finished public folder, hidden answers and the facts between them.

Rows are shuffled unless the split is by time, ids are made after that, and files are named after their row's id: what
is public says nothing of the source's order. Same blueprint, same raw files: same bytes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mlexpert.factory import columns, targets
from mlexpert.factory.description import describe
from mlexpert.factory.drift import drift
from mlexpert.factory.records import Blueprint, Finding, Quarantine, Raw
from mlexpert.factory.rows import Rows, rows
from mlexpert.factory.sample import write_sample
from mlexpert.tasks.metrics import Metric, Needs
from mlexpert.tasks.task import DESCRIPTION, SAMPLE, Facts, Split

TRAIN, TEST, FILES = "train.csv", "test.csv", "files"


@dataclass(frozen=True)
class Staged:
    """All of a task but its thresholds; `public` is to be copied by `tasks.seal`."""

    facts: Facts  # `thresholds_from` is not yet known
    public: Path
    answers: pd.DataFrame  # id, targets, columns named by role
    rows: tuple[int, int]  # of training, 0 if they cannot be counted, and of test
    findings: tuple[Finding, ...] = ()


def build(raw: Raw, plan: Blueprint, folder: Path) -> Staged:
    """Stages a task of tables in `folder`, which is emptied first. Raises Quarantine that says what to change."""
    metric = targets.bound(plan.metric, plan.settings)
    found = rows(raw, plan, metric)
    train, test = _cells(found.train, plan), _cells(found.test, plan)
    targets.check_values(metric, plan.target_columns, train, test)
    targets.check_split(metric, plan.target_columns, train, test)
    labels = plan.labels or targets.labels_of(metric, [[*one, *two] for one, two in zip(train, test, strict=True)])
    _check_labels(labels, metric, plan, [*train, *test])
    roles = {role: found.test[column].tolist() for role, column in plan.roles.items()}
    targets.check_answers(metric, test, labels, roles)
    kinds = _kinds(found, plan, metric)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shown = _with_files(raw, plan, found, folder)
    facts = _facts(raw, plan, found, kinds, labels)
    sizes = _write_tables(folder, plan, shown)
    write_sample(folder, facts, targets.learn(metric, train, labels), found.test[found.id_column].tolist())
    page = describe(plan.title, plan.text, facts, sizes, _head(folder / SAMPLE))
    (folder / DESCRIPTION).write_text(page, encoding="utf-8")
    answers = found.test[[found.id_column, *plan.target_columns]].assign(**roles)
    return Staged(facts, folder, answers, (len(found.train), len(found.test)), found.findings)


def _cells(table: pd.DataFrame, plan: Blueprint) -> list[list[str]]:
    return [table[name].tolist() for name in plan.target_columns]


def _check_labels(labels: Sequence[str], metric: Metric, plan: Blueprint, cells: Sequence[Sequence[str]]) -> None:
    if metric.answers is Needs.LABEL and (unknown := sorted({cell for each in cells for cell in each} - set(labels))):
        raise Quarantine(
            "build",
            f"{len(unknown)} labels of the target are not in the blueprint's `labels`, first {unknown[0][:40]!r}; "
            "add them, or merge them into known ones",
        )


# ---------------------------------------------------------------- facts
def _kinds(found: Rows, plan: Blueprint, metric: Metric) -> dict[str, str]:
    """The kind of every public column, checked: what is declared a number or a time is one in every row."""
    known = dict(plan.columns) | {found.id_column: "id"} | dict.fromkeys(plan.target_columns, targets.kind_of(metric))
    if plan.files_column:
        known[plan.files_column] = "file"
    tables = (found.train, found.test)
    kinds = columns.kinds(tables, known)
    for name, kind in kinds.items():
        read = {"number": columns.numbers, "time": columns.times}.get(kind)
        try:
            if read:
                read([cell for table in tables if name in table for cell in table[name]])
        except ValueError as error:
            raise Quarantine("build", f"column {name!r} is declared a {kind}: {error}") from error
    return kinds


def _facts(raw: Raw, plan: Blueprint, found: Rows, kinds: Mapping[str, str], labels: Sequence[str]) -> Facts:
    by = {"grouped": plan.group_column, "source": plan.group_column, "temporal": plan.time_column}.get(plan.recipe, "")
    n_train, n_test = len(found.train), len(found.test)
    apart = (*plan.target_columns, *plan.hidden, by)
    return Facts(
        id=plan.id,
        modality=plan.modality,
        domain=plan.domain,
        metric=plan.metric,
        settings=plan.settings,
        id_column=found.id_column,
        target_columns=plan.target_columns,
        labels=tuple(labels),
        columns=kinds,
        provenance=raw.provenance,
        split=Split(
            plan.recipe, plan.seed, n_test / (n_train + n_test), by, drift(found.train, found.test, kinds, apart)
        ),
        thresholds_from="",
        train=TRAIN,
        test=TEST,
    )


# ---------------------------------------------------------------- files
def _write_tables(folder: Path, plan: Blueprint, shown: Rows) -> dict[str, tuple[int, int]]:
    hidden = [name for name in (*plan.target_columns, *plan.hidden) if name in shown.test]
    sizes = {}
    for name, table in ((TRAIN, shown.train), (TEST, shown.test.drop(columns=hidden))):
        order = [shown.id_column, *(column for column in table.columns if column != shown.id_column)]
        ends = [column for column in plan.target_columns if column in table]
        order = [column for column in order if column not in ends] + ends
        table[order].to_csv(folder / name, index=False, encoding="utf-8", lineterminator="\n")
        sizes[name] = table.shape
    return sizes


def _with_files(raw: Raw, plan: Blueprint, found: Rows, folder: Path) -> Rows:
    """The rows with their files copied to `files/<id><suffix>` and named there."""
    if not plan.files_column:
        return found
    (folder / FILES).mkdir()
    _check_not_shared(found, plan)
    tables = []
    for table in (found.train, found.test):
        ids, names = table[found.id_column], table[plan.files_column]
        copied = [_copy(raw, plan, id, name, folder) for id, name in zip(ids, names, strict=True)]
        tables.append(table.assign(**{plan.files_column: np.array(copied, dtype=object)}))
    return Rows(tables[0], tables[1], found.id_column, found.findings)


def _check_not_shared(found: Rows, plan: Blueprint) -> None:
    if shared := sorted(set(found.train[plan.files_column]) & set(found.test[plan.files_column])):
        raise Quarantine(
            "split",
            f"{len(shared)} files belong to rows on both sides of the split, first {shared[0][:60]!r}; "
            f"group the split by {plan.files_column!r}",
            kind="shared_file",
        )


def _copy(raw: Raw, plan: Blueprint, id: str, name: str, folder: Path) -> str:
    root = (raw.folder / plan.files_folder).resolve()
    source = (root / name).resolve()
    if not source.is_relative_to(root) or not source.is_file():
        raise Quarantine(
            "build",
            f"column {plan.files_column!r} names {name[:60]!r}, no file below {plan.files_folder or '.'!r}; "
            "correct files_column or files_folder",
        )
    if not re.fullmatch(r"[A-Za-z0-9._-]+", id):
        raise Quarantine("build", f"id {id[:40]!r} cannot name a file; name no id column, and ids are made")
    suffix = "".join(source.suffixes[-1:]).lower()
    shutil.copyfile(source, folder / FILES / f"{id}{suffix}")
    return f"{FILES}/{id}{suffix}"


def _head(path: Path, lines: int = 4) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [line.rstrip("\r\n") for line, _ in zip(file, range(lines), strict=False)]
