"""A benchmark's own public folder becomes the task's, as it is; answers are read from beside it.

Nothing is split and nothing is added but the sample submission under the name that tasks use, and a description where
there is none. Tables that are CSV and not too large are looked at: they give kinds of columns, labels and drift.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from mlexpert.factory import columns, targets
from mlexpert.factory.build import Staged
from mlexpert.factory.drift import drift
from mlexpert.factory.records import Blueprint, Quarantine, Raw
from mlexpert.factory.rows import listed, read
from mlexpert.tasks.metrics import Metric
from mlexpert.tasks.metrics.answers import GROUP, KEEP
from mlexpert.tasks.task import DESCRIPTION, SAMPLE, Facts, Split

MAX_BYTES = 2**28


def adopt(raw: Raw, plan: Blueprint, folder: Path) -> Staged:
    """Stages a prepared task in `folder`, which is emptied first. Raises Quarantine that says what to change."""
    metric = targets.bound(plan.metric, plan.settings)
    answers = _answers(raw, plan, metric)
    shutil.rmtree(folder, ignore_errors=True)
    _copy(raw, plan, folder)
    train, test = (_table(folder, name) for name in (plan.train, plan.test))
    if train is not None and not set(plan.target_columns) <= set(train.columns):
        train = None
    kinds = _kinds(plan, metric, train, test)
    n_train = 0 if train is None else len(train)
    facts = Facts(
        id=plan.id,
        modality=plan.modality,
        domain=plan.domain,
        metric=plan.metric,
        settings=plan.settings,
        id_column=plan.id_column,
        target_columns=plan.target_columns,
        labels=plan.labels or _labels(plan, metric, train, answers),
        columns=kinds,
        provenance=raw.provenance,
        split=Split(
            recipe="ready",
            seed=plan.seed,
            test_share=len(answers) / (n_train + len(answers)) if n_train else 0.0,
            drift={} if train is None or test is None else drift(train, test, kinds, plan.target_columns),
        ),
        thresholds_from="",
        train="" if train is None else plan.train,
        test="" if test is None else plan.test,
    )
    return Staged(facts, folder, answers, (n_train, len(answers)))


def _answers(raw: Raw, plan: Blueprint, metric: Metric) -> pd.DataFrame:
    """The id, the targets, and the columns that play a role, under its name."""
    table = read(raw.folder / plan.answers)
    roles = {column: role for role, column in plan.roles.items()}
    named = {name for name in table.columns if name.partition(":")[0] in (KEEP, GROUP, *metric.roles)}
    wanted = [plan.id_column, *plan.target_columns, *roles]
    if missing := [name for name in wanted if name not in table]:
        raise Quarantine("build", f"{plan.answers} has no column {missing[0]!r}; it has {listed(list(table.columns))}")
    kept = [name for name in table.columns if name in wanted or name in named]
    return table.loc[:, kept].rename(columns=roles)


def _copy(raw: Raw, plan: Blueprint, folder: Path) -> None:
    source = (raw.folder / plan.public_folder).resolve()
    if not source.is_dir():
        raise Quarantine(
            "build", f"there is no folder {plan.public_folder!r} in the source; prepare the data set first"
        )
    answers = (raw.folder / plan.answers).resolve()

    def leave_out(at: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(at, name).resolve() == answers]

    shutil.copytree(source, folder, ignore=leave_out, copy_function=shutil.copyfile)
    sample = folder / (plan.sample or SAMPLE)
    if not sample.is_file():
        raise Quarantine("build", f"the public folder has no {sample.name}; without it nobody knows what to hand in")
    if sample.name != SAMPLE:
        sample.rename(folder / SAMPLE)
    if not (folder / DESCRIPTION).exists():
        (folder / DESCRIPTION).write_text(f"# {plan.title}\n\n{plan.text.strip()}\n", encoding="utf-8")


def _table(folder: Path, name: str) -> pd.DataFrame | None:
    """A table of the public folder, None if it is none that can be looked at."""
    path = folder / name
    if not name.endswith(".csv") or not path.is_file() or path.stat().st_size > MAX_BYTES:
        return None
    return read(path)


def _kinds(plan: Blueprint, metric: Metric, train: pd.DataFrame | None, test: pd.DataFrame | None) -> Mapping[str, str]:
    known = dict.fromkeys(plan.target_columns, targets.kind_of(metric)) | {plan.id_column: "id"} | dict(plan.columns)
    return columns.kinds([table for table in (train, test) if table is not None], known)


def _labels(plan: Blueprint, metric: Metric, train: pd.DataFrame | None, answers: pd.DataFrame) -> tuple[str, ...]:
    cells = [answers[name].tolist() for name in plan.target_columns]
    if train is not None:
        cells = [[*train[name], *each] for name, each in zip(plan.target_columns, cells, strict=True)]
    return targets.labels_of(metric, cells)
