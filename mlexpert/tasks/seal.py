"""Makes a task folder: parts that fit together -> `<set>/<id>/` in one rename, or nothing and the reason.

Everything is written aside and checked there, read the way the grader will read it. An older folder of the same id is
moved aside before it is replaced, so that at every moment one of the two is whole. Files of the public part all get the
same time: when a file was made tells nothing.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from mlexpert.tasks.boards import clean
from mlexpert.tasks.hidden import hidden_answers, predicted_columns
from mlexpert.tasks.metrics import METRICS
from mlexpert.tasks.tables import KINDS, TaskError, column, header
from mlexpert.tasks.task import (
    ANSWERS,
    BOARDS,
    DESCRIPTION,
    FORMAT,
    PRIVATE_FACTS,
    SAMPLE,
    Facts,
    Task,
    Thresholds,
    facts_to_json,
    load,
    metric_of,
    sha256,
    write_json,
)

RECIPES = ("generated", "ready", "random", "stratified", "grouped", "temporal", "source")
TIME = 1_577_836_800  # 2020-01-01 UTC, of every public file


def seal(
    folder: Path,
    facts: Facts,
    thresholds: Thresholds,
    *,
    public: Path,
    answers: pd.DataFrame,
    seed: int = 0,
    family: str = "",
    notes: Mapping[str, Any] | None = None,
    boards: Mapping[str, Sequence[float]] | None = None,
) -> Task:
    """Writes `<folder>/<facts.id>/` and returns the loaded task.

    Args:
      public: a finished folder that is copied: description.md, sample_submission.csv, any further files and folders.
      answers: the id, the target columns and role columns (see `task`); cells are written as they stand.
      seed, family, notes: what nobody but the maker may know; `notes` is JSON.
      boards: scores of human leaderboards, under "public" and "private"; kept best first, without those not finite.

    Raises TaskError if the parts do not fit together (ids differ, the target is in `test`, an undefined metric, ...).
    """
    links = [path for path in Path(public).rglob("*") if path.is_symlink()]
    if links:
        raise TaskError(f"task {facts.id} is not written: {links[0]} is a link; put the file itself there")

    def fill(into: Path) -> None:
        shutil.copytree(public, into, copy_function=shutil.copyfile, dirs_exist_ok=True)

    hidden = {"thresholds": asdict(thresholds), "seed": seed, "family": family, "notes": dict(notes or {})}
    return _sealed(Path(folder), facts, thresholds, fill, answers, hidden, boards or {})


def write(
    folder: Path,
    facts: Facts,
    thresholds: Thresholds,
    *,
    description: str,
    train: pd.DataFrame,
    test: pd.DataFrame,
    sample: pd.DataFrame,
    answers: pd.DataFrame,
    seed: int = 0,
    family: str = "",
    notes: Mapping[str, Any] | None = None,
    boards: Mapping[str, Sequence[float]] | None = None,
) -> Task:
    """`seal` for a task that is tables only: `facts.train`, `facts.test` and the sample submission are written."""

    def fill(into: Path) -> None:
        (into / DESCRIPTION).write_text(description, encoding="utf-8")
        for name, table in ((facts.train, train), (facts.test, test), (SAMPLE, sample)):
            _write_table(into / name, table)

    hidden = {"thresholds": asdict(thresholds), "seed": seed, "family": family, "notes": dict(notes or {})}
    return _sealed(Path(folder), facts, thresholds, fill, answers, hidden, boards or {})


def _sealed(
    folder: Path,
    facts: Facts,
    thresholds: Thresholds,
    fill: Callable[[Path], None],
    answers: pd.DataFrame,
    hidden: Mapping[str, Any],
    boards: Mapping[str, Sequence[float]],
) -> Task:
    _check_facts(facts, thresholds)
    aside = folder / f".{facts.id}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    for name in ("public", "private"):
        (aside / name).mkdir(parents=True)
    try:
        fill(aside / "public")
        _write_table(aside / "private" / ANSWERS, answers)
        write_json(aside / "private" / PRIVATE_FACTS, hidden)
        if boards:
            write_json(aside / "private" / BOARDS, _cleaned(facts, boards))
        _check_files(aside, facts)
        _write_facts(aside, facts)
        _replace(aside, folder / facts.id)
    except (TaskError, ValueError) as error:
        raise TaskError(f"task {facts.id} is not written: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return load(folder / facts.id)


def _cleaned(facts: Facts, boards: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    if wrong := sorted(boards.keys() - {"public", "private"}):
        raise TaskError(f"a board called {wrong[0]!r}: there are 'public' and 'private'")
    return {name: clean(rows, METRICS[facts.metric].lower_is_better).scores for name, rows in boards.items()}


def _write_table(path: Path, table: pd.DataFrame) -> None:
    table.to_csv(path, index=False, encoding="utf-8", lineterminator="\n")


def _write_facts(root: Path, facts: Facts) -> None:
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    for path in paths:
        os.utime(path, (TIME, TIME))
    checksums = {path.relative_to(root).as_posix(): sha256(path) for path in paths}
    written = {
        "format": FORMAT,
        "facts": facts_to_json(facts),
        "lower_is_better": METRICS[facts.metric].lower_is_better,
        "checksums": checksums,
    }
    write_json(root / "task.json", written)


def _replace(aside: Path, root: Path) -> None:
    """`aside` becomes `root`; an older one is back in place if that fails."""
    if not root.exists():
        aside.rename(root)
        return
    old = aside.with_name(f"{aside.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    root.rename(old)
    try:
        aside.rename(root)
    except OSError:
        old.rename(root)
        raise
    shutil.rmtree(old)


# ---------------------------------------------------------------- what must fit together
def _check_facts(facts: Facts, thresholds: Thresholds) -> None:
    """The facts by themselves. Raises TaskError naming the field."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", facts.id):
        raise TaskError(f"task id {facts.id!r}: use letters, digits, '.', '_' and '-' only")
    metric_of(facts)
    _check_labels(facts)
    _check_columns(facts)
    _check_origin(facts)
    _check_thresholds(facts, thresholds)


def _check_thresholds(facts: Facts, thresholds: Thresholds) -> None:
    """Thresholds are finite and run in the metric's direction. Raises TaskError."""
    values = [thresholds.gold, thresholds.silver, thresholds.bronze, thresholds.median]
    if not all(math.isfinite(value) for value in (*values, thresholds.sample)):
        raise TaskError(f"task {facts.id}: a threshold is not finite: {thresholds}")
    if values != sorted(values, reverse=not METRICS[facts.metric].lower_is_better):
        raise TaskError(
            f"task {facts.id}: thresholds do not run from gold to median in the direction of {facts.metric}: {values}"
        )


def _check_labels(facts: Facts) -> None:
    labels = facts.labels
    if len(set(labels)) != len(labels) or not all(isinstance(label, str) and label for label in labels):
        raise TaskError(f"task {facts.id}: labels must be distinct, non-empty strings: {list(labels)}")


def _check_columns(facts: Facts) -> None:
    names = (facts.id_column, *facts.target_columns)
    if not facts.target_columns or "" in names or len(set(names)) != len(names):
        raise TaskError(f"task {facts.id}: id and target columns must be named and distinct: {list(names)}")
    if wrong := [(name, kind) for name, kind in facts.columns.items() if kind not in KINDS]:
        raise TaskError(f"task {facts.id}: column {wrong[0][0]!r} is {wrong[0][1]!r}, none of {KINDS}")


def _check_origin(facts: Facts) -> None:
    provenance, split = facts.provenance, facts.split
    for name in ("source", "licence", "source_dataset"):
        if not getattr(provenance, name).strip():
            raise TaskError(f"task {facts.id}: provenance.{name} is empty; say where the data comes from")
    if split.recipe not in RECIPES:
        raise TaskError(f"task {facts.id}: split recipe {split.recipe!r} is none of {RECIPES}")
    if not 0.0 <= split.test_share < 1.0:
        raise TaskError(f"task {facts.id}: split.test_share {split.test_share} is not in [0, 1)")


def _check_files(root: Path, facts: Facts) -> None:
    """What was really written fits together. Raises TaskError."""
    public = root / "public"
    for name in (DESCRIPTION, SAMPLE, facts.train, facts.test):
        if name and not (public / name).is_file():
            raise TaskError(f"{name} is not in the public folder")
    known = header(public / facts.train) if facts.train else facts.target_columns
    if missing := [name for name in facts.target_columns if name not in known]:
        raise TaskError(f"{facts.train} has no column {missing[0]!r}; it has {known}")
    ids = column(public / SAMPLE, facts.id_column)
    if not ids or len(set(ids)) != len(ids) or "" in ids:
        raise TaskError(f"the ids of {SAMPLE} are missing, empty or repeated")
    if facts.test:
        _check_test(public / facts.test, facts, set(ids))
    predicted_columns(facts, [name for name in header(public / SAMPLE) if name != facts.id_column])
    hidden_answers(facts, root / "private" / ANSWERS, ids)


def _check_test(path: Path, facts: Facts, ids: set[str]) -> None:
    names = header(path)
    if shown := [name for name in facts.target_columns if name in names]:
        raise TaskError(f"{path.name} contains the target {shown[0]!r}; drop it")
    # A table without the id column describes the rows in another way (a key of several columns).
    if facts.id_column in names and set(column(path, facts.id_column)) != ids:
        raise TaskError(f"the ids of {SAMPLE} are not those of {path.name}")
