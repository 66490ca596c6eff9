"""A task is a folder: what the policy may see, what only the grader may see, and one file of metadata.

    <set>/<id>/task.json        facts and the SHA-256 of every other file
    <set>/<id>/public/          description.md, sample_submission.csv, tables, folders of files
    <set>/<id>/private/         answers.csv: the id, the target columns, and columns that a metric reads beside them,
                                called by their role ("weight", "keep") or "<role>:<any name>";
                                task-private.json: thresholds, seed, family, notes on the rule;
                                boards.json: scores of human leaderboards, where there are some

Only `public/` may ever be copied into a sandbox. A folder appears under its final name when it is complete (`seal`),
and `load` verifies every checksum, so a task is either whole or an error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mlexpert.tasks.metrics import METRICS, Metric, UndefinedMetric, bind
from mlexpert.tasks.tables import TaskError

FORMAT = 2
DESCRIPTION, SAMPLE = "description.md", "sample_submission.csv"
ANSWERS, PRIVATE_FACTS, BOARDS = "answers.csv", "task-private.json", "boards.json"
REQUIRED = tuple(f"public/{name}" for name in (DESCRIPTION, SAMPLE)) + tuple(
    f"private/{name}" for name in (ANSWERS, PRIVATE_FACTS)
)


@dataclass(frozen=True)
class Thresholds:
    """Scores, in the metric's own unit, that separate the medals; `sample` is what the sample submission scores."""

    gold: float
    silver: float
    bronze: float
    median: float
    sample: float


@dataclass(frozen=True)
class Provenance:
    source: str  # what it was fetched from: "pypi", "kaggle", "archive", "mle-bench", "sandmle", ...
    url: str  # "" when there is none
    licence: str
    redistributable: bool
    source_dataset: str  # the data underneath, the same for every task cut from it: "ames-housing", "sandmle:<id>"
    note: str = ""


@dataclass(frozen=True)
class Split:
    recipe: str  # one of seal.RECIPES
    seed: int
    test_share: float  # of the rows; 0 where it is not known
    by: str = ""  # the column of groups, time or source that the recipe cuts by
    drift: Mapping[str, float] = field(default_factory=dict, hash=False)  # measured difference of train and test


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What may be known of a task by everybody but the policy (which is shown the public folder)."""

    id: str
    modality: str  # "tabular", "series", "text", "image", "audio", ...
    domain: str
    metric: str  # a key of metrics.METRICS
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)  # of the metric, JSON
    id_column: str
    target_columns: tuple[str, ...]
    labels: tuple[str, ...] = ()  # all classes as written in the files, the positive one last; () for numbers
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)  # column of train or test -> tables.KINDS
    provenance: Provenance
    split: Split
    thresholds_from: str  # "leaderboard of <competition>, <n> teams" or "reference solutions"
    train: str = "train.csv"  # file in public/, "" when there is no such table
    test: str = "test.csv"
    budget: Mapping[str, float] = field(default_factory=dict, hash=False)  # limits that the task asks for


@dataclass(frozen=True, kw_only=True)
class Task(Facts):
    thresholds: Thresholds
    lower_is_better: bool
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

    @property
    def target_column(self) -> str:
        """The target, for tasks that have one. Raises TaskError if there are several."""
        if len(self.target_columns) != 1:
            raise TaskError(f"task {self.id} has {len(self.target_columns)} target columns, not one")
        return self.target_columns[0]


def description(task: Task) -> str:
    """The task's text for the policy."""
    return (task.public / DESCRIPTION).read_text(encoding="utf-8")


def notes(task: Task) -> dict[str, Any]:
    """What the task's maker wrote down about the hidden rule. Never for the policy."""
    return read_json(task.private / PRIVATE_FACTS)["notes"]


def boards(task: Task) -> dict[str, list[float]]:
    """Scores of the human leaderboards by name ("public", "private"), best first; {} without one."""
    path = task.private / BOARDS
    return read_json(path) if f"private/{BOARDS}" in task.checksums else {}


def metric_of(task: Facts) -> Metric:
    """The task's metric with its settings bound. Raises TaskError for an unknown metric or a wrong setting."""
    if task.metric not in METRICS:
        raise TaskError(f"task {task.id}: unknown metric {task.metric!r}; known: {', '.join(sorted(METRICS))}")
    try:
        return bind(METRICS[task.metric], task.settings)
    except UndefinedMetric as error:
        raise TaskError(f"task {task.id}: {error}") from error


# ---------------------------------------------------------------- loading
def load(root: Path, *, whole: bool = True) -> Task:
    """The task in folder `root`. Raises TaskError naming the file that is missing, altered, unexpected or malformed.

    `whole=False` reads and verifies no more than grading needs, for who gives the public folder to nobody: of a task
    with many images, the rest of it is nearly all.
    """
    root = Path(root)
    written = read_json(root / "task.json")
    if written.get("format") != FORMAT:
        raise TaskError(
            f"{root}/task.json: format {written.get('format')}, this version reads {FORMAT}; make the task again"
        )
    _verify(root, written.get("checksums", {}), whole)
    hidden = read_json(root / "private" / PRIVATE_FACTS)
    try:
        task = Task(
            **_facts(written["facts"]), lower_is_better=written["lower_is_better"], checksums=written["checksums"],
            thresholds=Thresholds(**hidden["thresholds"]), seed=hidden["seed"], family=hidden["family"], root=root,
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise TaskError(f"{root}/task.json or {PRIVATE_FACTS}: bad field {error}; make the task again") from error
    if task.id != root.name:
        raise TaskError(f"{root}: the folder holds task {task.id!r}; rename it back")
    if metric_of(task).lower_is_better != task.lower_is_better:
        raise TaskError(f"{root}/task.json: {task.metric} with lower_is_better={task.lower_is_better}; make it again")
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


def digest(task: Task) -> str:
    """SHA-256 of all that the task is: its facts and, through their checksums, its files."""
    return sha256(task.root / "task.json")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of the task. Raises TaskError if it is missing or malformed."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TaskError(f"{path}: missing; make the task again") from error
    except ValueError as error:  # bad JSON or bad UTF-8
        raise TaskError(f"{path}: not JSON ({error}); make the task again") from error
    if not isinstance(value, dict):
        raise TaskError(f"{path}: not a JSON object; make the task again")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def facts_to_json(facts: Facts) -> dict[str, Any]:
    plain = asdict(facts)
    return {each.name: plain[each.name] for each in fields(Facts)}


def _facts(written: Mapping[str, Any]) -> dict[str, Any]:
    return dict(written) | {
        "target_columns": tuple(written["target_columns"]),
        "labels": tuple(written["labels"]),
        "provenance": Provenance(**written["provenance"]),
        "split": Split(**written["split"]),
    }


def _verify(root: Path, checksums: Mapping[str, str], whole: bool) -> None:
    for path in dict.fromkeys((*REQUIRED, *checksums)) if whole else REQUIRED:
        if not (root / path).is_file():
            raise TaskError(f"{root}/{path}: missing; make the task again")
        if path not in checksums:
            raise TaskError(f"{root}/task.json: no checksum of {path}; make the task again")
        if sha256(root / path) != checksums[path]:
            raise TaskError(f"{root}/{path}: altered since it was written (checksum differs); make the task again")
    if not whole:
        return
    # A stray file in public/ would be copied next to the training data: it may hold answers.
    for path in (root / "public").rglob("*"):
        if path.is_symlink() or (not path.is_dir() and path.relative_to(root).as_posix() not in checksums):
            raise TaskError(f"{path}: unexpected in a public folder; remove it")
