"""Every answer about a competition is tried before it is used: tables are read, keys counted, the metric is bound and
given the target's own values. An answer that cannot be carried out is a problem of its field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mlexpert.factory import columns, targets
from mlexpert.factory.analyse.sheets import Sheet, read
from mlexpert.factory.records import Blueprint, Quarantine, Raw
from mlexpert.tasks import tables
from mlexpert.tasks.metrics import METRICS, UndefinedMetric, bind, read_answers
from mlexpert.tasks.tables import TaskError, column

MIN_ROWS = 30  # of the training table: fewer make neither a train nor a test set
MIN_GROUPS = 3


class Problem(NamedTuple):
    field: str  # of the blueprint
    text: str


def problems(raw: Raw, plan: Blueprint) -> list[Problem]:
    """What of the blueprint cannot be carried out on the raw files; [] if all can."""
    try:
        train = read(raw.folder / plan.train, plan.train)
    except (TaskError, OSError) as error:
        return [Problem("train", str(error))]
    needed = {"target_columns": plan.target_columns, "id_column": (plan.id_column,), "time_column": (plan.time_column,)}
    needed |= {"group_column": (plan.group_column,), "files_column": (plan.files_column,), "hidden": plan.hidden}
    lost = [
        Problem(field, f"{plan.train} has no column {name!r}; it has {', '.join(train.columns[:40])}")
        for field, names in needed.items()
        for name in names
        if name and name not in train.columns
    ]
    return lost or [
        *_of_rows(train, plan),
        *_of_metric(train, plan),
        *_of_cut(train, plan),
        *_of_files(raw, train, plan),
    ]


def _of_rows(train: Sheet, plan: Blueprint) -> Iterator[Problem]:
    if train.n_rows < MIN_ROWS:
        yield Problem("train", f"{plan.train} has {train.n_rows} rows; a task needs {MIN_ROWS} or more")
    if plan.id_column and not train.is_key(plan.id_column):
        cells = column(train.path, plan.id_column)
        seen: set[str] = set()
        twice = next((cell for cell in cells if cell in seen or seen.add(cell)), "")
        what = f"{twice!r} stands in several rows" if twice else "a row has none"
        yield Problem(
            "id_column", f"{plan.id_column!r} of {plan.train} is no key: {what}; leave it empty, or remove rows"
        )


def _of_metric(train: Sheet, plan: Blueprint) -> Iterator[Problem]:
    """The metric, bound and given the target's own cells."""
    if plan.metric not in METRICS:
        yield Problem("metric", f"unknown metric {plan.metric!r}; known: {', '.join(sorted(METRICS))}")
        return
    try:
        metric = bind(METRICS[plan.metric], plan.settings)
        whole = tables.columns(train.path, plan.target_columns)
        rows = [row for row in zip(*whole, strict=True) if not any(targets.is_missing(metric, cell) for cell in row)]
        cells = [list(each) for each in zip(*rows, strict=True)] or [[]]
        least, most = metric.targets
        if len(cells) < least or (most is not None and len(cells) > most):
            yield Problem("target_columns", f"{plan.metric} takes {least} to {most} targets, not {len(cells)}")
            return
        if any(len(set(each)) < 2 for each in cells):
            alike = next(name for name, each in zip(plan.target_columns, cells, strict=True) if len(set(each)) < 2)
            yield Problem(
                "target_columns", f"target {alike!r} is the same in every row of {plan.train}: nothing to predict"
            )
            return
        # Columns that a metric reads beside the target may be named in `roles`; without them it is asked no value here.
        if not metric.required:
            read_answers(metric, cells, plan.labels or targets.labels_of(metric, cells))
    except UndefinedMetric as error:
        yield Problem("settings" if "setting" in str(error) else "metric", f"{plan.metric}: {error}")
    except Quarantine as error:
        yield Problem("metric", error.reason)


def _of_cut(train: Sheet, plan: Blueprint) -> Iterator[Problem]:
    if plan.recipe in ("grouped", "source"):
        n_groups = len(set(column(train.path, plan.group_column)))
        if n_groups < MIN_GROUPS:
            yield Problem(
                "group_column", f"{plan.group_column!r} has {n_groups} groups; a split by groups needs {MIN_GROUPS}"
            )
    if plan.recipe == "temporal":
        try:
            columns.times(column(train.path, plan.time_column))
        except ValueError as error:
            yield Problem("time_column", f"{plan.time_column!r}: {error}")


def _of_files(raw: Raw, train: Sheet, plan: Blueprint) -> Iterator[Problem]:
    if plan.files_column:
        folder = raw.folder / plan.files_folder
        lost = [cell for cell in column(train.path, plan.files_column) if not (folder / cell).is_file()]
        if lost:
            yield Problem(
                "files_column", f"{len(lost)} rows of {plan.files_column!r} name no file, first {lost[0][:60]!r}"
            )
