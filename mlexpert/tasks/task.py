"""A task is a folder: what the policy may see, what only the grader may see, and one file of metadata.

    <set>/<id>/task.json                   metadata and the SHA-256 of every other file
    <set>/<id>/public/                     description.md, train.csv, test.csv, sample_submission.csv
    <set>/<id>/private/                    answers.csv, task-private.json (thresholds, seed, family, notes on the rule)

Only `public/` may ever be copied into a sandbox. A folder appears under its final name when it is complete (it is
written aside and renamed), and `load` verifies every checksum, so a task is either whole or an error.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mlexpert.tasks.metrics import METRICS, Needs, UndefinedMetric, encode

FORMAT = 1
DESCRIPTION, TRAIN, TEST, SAMPLE = "description.md", "train.csv", "test.csv", "sample_submission.csv"
ANSWERS, PRIVATE_FACTS = "answers.csv", "task-private.json"
FILES = (
    *(f"public/{name}" for name in (DESCRIPTION, TRAIN, TEST, SAMPLE)),
    *(f"private/{name}" for name in (ANSWERS, PRIVATE_FACTS)),
)


class TaskError(Exception):
    """A task folder is missing, incomplete, altered or inconsistent; the message names the file and the remedy."""


@dataclass(frozen=True)
class Thresholds:
    """Scores, in the metric's own unit, that separate the medals; `sample` is what the sample submission scores."""

    gold: float
    silver: float
    bronze: float
    median: float
    sample: float


@dataclass(frozen=True)
class Task:
    id: str
    kind: str  # "tabular", "series", "text", "image", ...
    domain: str
    metric: str  # a key of metrics.METRICS
    lower_is_better: bool
    id_column: str
    target_column: str
    labels: tuple[str, ...]  # classification: all classes as written in the files, the positive one last; else ()
    thresholds: Thresholds
    seed: int
    family: str  # the hidden rule's family: never shown to the policy
    root: Path
    checksums: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)  # path below root -> SHA-256

    @property
    def public(self) -> Path:
        """The only folder that may be copied into a sandbox."""
        return self.root / "public"

    @property
    def private(self) -> Path:
        return self.root / "private"


def description(task: Task) -> str:
    """The task's text for the policy."""
    return (task.public / DESCRIPTION).read_text(encoding="utf-8")


def notes(task: Task) -> dict[str, Any]:
    """What the task's maker wrote down about the hidden rule. Never for the policy."""
    return _read_json(task.private / PRIVATE_FACTS)["notes"]


# ---------------------------------------------------------------- writing
def write(
    folder: Path,
    *,
    id: str,
    kind: str,
    domain: str,
    metric: str,
    id_column: str,
    target_column: str,
    labels: Sequence[str],
    thresholds: Thresholds,
    seed: int,
    family: str,
    description: str,
    train: pd.DataFrame,
    test: pd.DataFrame,
    sample: pd.DataFrame,
    answers: pd.DataFrame,
    notes: Mapping[str, Any] | None = None,
) -> Task:
    """Writes `<folder>/<id>/` in one rename (an older folder of that id is replaced) and returns the loaded task.

    `answers` holds `id_column` and `target_column`; `sample` holds `id_column` and the columns to predict. `labels`
    are the classes as the files spell them, for binary probabilities the positive class last; () for regression.
    Raises TaskError if the parts do not fit together (ids differ, the target is in `test`, an undefined metric, ...).
    """
    _check_fields(id, metric, thresholds, labels)
    public_facts = {
        "format": FORMAT, "id": id, "kind": kind, "domain": domain, "metric": metric,
        "lower_is_better": METRICS[metric].lower_is_better, "id_column": id_column,
        "target_column": target_column, "labels": list(labels),
    }  # fmt: skip
    private_facts = {"thresholds": asdict(thresholds), "seed": seed, "family": family, "notes": dict(notes or {})}
    aside = Path(folder) / f".{id}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    for name in ("public", "private"):
        (aside / name).mkdir(parents=True)
    (aside / "public" / DESCRIPTION).write_text(description, encoding="utf-8")
    tables = {
        f"public/{TRAIN}": train,
        f"public/{TEST}": test,
        f"public/{SAMPLE}": sample,
        f"private/{ANSWERS}": answers,
    }
    for path, table in tables.items():
        table.to_csv(aside / path, index=False, encoding="utf-8", lineterminator="\n")
    try:
        _check_files(aside, id_column, target_column, metric, labels)
    except (TaskError, UndefinedMetric) as error:
        shutil.rmtree(aside)
        raise TaskError(f"task {id} is not written: {error}") from error
    _write_json(aside / "private" / PRIVATE_FACTS, private_facts)
    _write_json(aside / "task.json", public_facts | {"checksums": {path: sha256(aside / path) for path in FILES}})
    root = Path(folder) / id
    if root.exists():
        shutil.rmtree(root)
    aside.rename(root)
    return load(root)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _check_fields(id: str, metric: str, thresholds: Thresholds, labels: Sequence[str]) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", id):
        raise TaskError(f"task id {id!r}: use letters, digits, '.', '_' and '-' only")
    if metric not in METRICS:
        raise TaskError(f"task {id}: unknown metric {metric!r}; known: {', '.join(sorted(METRICS))}")
    if len(set(labels)) != len(labels) or not all(isinstance(label, str) and label for label in labels):
        raise TaskError(f"task {id}: labels must be distinct, non-empty strings: {list(labels)}")
    values = [thresholds.gold, thresholds.silver, thresholds.bronze, thresholds.median]
    if not all(math.isfinite(value) for value in (*values, thresholds.sample)):
        raise TaskError(f"task {id}: a threshold is not finite: {thresholds}")
    if values != sorted(values, reverse=not METRICS[metric].lower_is_better):
        raise TaskError(f"task {id}: thresholds do not run from gold to median in the direction of {metric}: {values}")


def _check_files(root: Path, id_column: str, target: str, metric: str, labels: Sequence[str]) -> None:
    """What was really written fits together, read the way the grader will read it."""
    if target in header(root / "public" / TEST):
        raise TaskError(f"{TEST} contains the target {target!r}; drop it")
    column(root / "public" / TRAIN, target)
    ids = column(root / "public" / TEST, id_column)
    if not ids or len(set(ids)) != len(ids) or "" in ids:
        raise TaskError(f"the ids of {TEST} are missing, empty or repeated")
    for path in (root / "public" / SAMPLE, root / "private" / ANSWERS):
        if sorted(column(path, id_column)) != sorted(ids):
            raise TaskError(f"the ids of {path.name} are not those of {TEST}")
    predicted = [name for name in header(root / "public" / SAMPLE) if name != id_column]
    several = METRICS[metric].needs is Needs.PROBABILITY and len(labels) > 2
    if predicted != (list(labels) if several else [target]):
        raise TaskError(f"{SAMPLE} asks for {predicted}, not for {list(labels) if several else [target]}")
    METRICS[metric].check(encode(METRICS[metric], column(root / "private" / ANSWERS, target), labels), labels)


# ---------------------------------------------------------------- reading tables
def header(path: Path) -> list[str]:
    """Column names of one of the task's own CSV files."""
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])


def column(path: Path, name: str) -> list[str]:
    """One column as exact strings: no missing-value words, no number parsing. Raises TaskError if it is not there."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, strict=True)
        names = next(rows, [])
        if name not in names:
            raise TaskError(f"{path.name} has no column {name!r}; it has {names}")
        place = names.index(name)
        return [row[place] for row in rows]


# ---------------------------------------------------------------- loading
def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load(root: Path) -> Task:
    """The task in folder `root`. Raises TaskError naming the file that is missing, altered, unexpected or malformed."""
    root = Path(root)
    facts = _read_json(root / "task.json")
    _verify(root, facts.get("checksums", {}))
    private = _read_json(root / "private" / PRIVATE_FACTS)
    if facts.get("format") != FORMAT:
        raise TaskError(
            f"{root}/task.json: format {facts.get('format')}, this version reads {FORMAT}; make the task again"
        )
    try:
        task = Task(
            id=facts["id"], kind=facts["kind"], domain=facts["domain"], metric=facts["metric"],
            lower_is_better=facts["lower_is_better"], id_column=facts["id_column"],
            target_column=facts["target_column"], labels=tuple(facts["labels"]),
            thresholds=Thresholds(**private["thresholds"]), seed=private["seed"], family=private["family"],
            root=root, checksums=facts["checksums"],
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise TaskError(f"{root}/task.json or task-private.json: bad field {error}; make the task again") from error
    if task.id != root.name:
        raise TaskError(f"{root}: the folder holds task {task.id!r}; rename it back")
    if task.metric not in METRICS or METRICS[task.metric].lower_is_better != task.lower_is_better:
        raise TaskError(
            f"{root}/task.json: metric {task.metric!r} with lower_is_better={task.lower_is_better} is unknown"
        )
    return task


def load_set(folder: Path) -> list[Task]:
    """All tasks of a set, sorted by id. Raises TaskError if one is broken or none is there."""
    folder = Path(folder)
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder; make the task set first")
    tasks = [load(root) for root in sorted(folder.iterdir()) if root.is_dir() and not root.name.startswith(".")]
    if not tasks:
        raise TaskError(f"{folder}: holds no task; make the task set first")
    return tasks


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TaskError(f"{path}: missing; make the task again") from error
    except ValueError as error:  # bad JSON or bad UTF-8
        raise TaskError(f"{path}: not JSON ({error}); make the task again") from error
    if not isinstance(value, dict):
        raise TaskError(f"{path}: not a JSON object; make the task again")
    return value


def _verify(root: Path, checksums: Mapping[str, str]) -> None:
    for path in FILES:
        if path not in checksums:
            raise TaskError(f"{root}/task.json: no checksum of {path}; make the task again")
        if not (root / path).is_file():
            raise TaskError(f"{root}/{path}: missing; make the task again")
        if sha256(root / path) != checksums[path]:
            raise TaskError(f"{root}/{path}: altered since it was written (checksum differs); make the task again")
    # A stray file in public/ would be copied next to the training data: it may hold answers.
    for path in (root / "public").rglob("*"):
        if path.relative_to(root).as_posix() not in checksums:
            raise TaskError(f"{path}: unexpected in a public folder; remove it")
