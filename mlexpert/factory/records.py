"""What the stages of the Factory hand to each other: frozen, JSON where it has to outlive a process.

    Origin.discover -> Lead -> Origin.fetch -> Raw -> Origin.plan -> Blueprint -> (split, build) -> Task

A Blueprint is the whole recipe of a task: the same blueprint and the same raw files give the same bytes. Tables in
`Raw.folder` are UTF-8 CSV files whose cells are exact strings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from mlexpert.tasks import seal
from mlexpert.tasks.tables import KINDS
from mlexpert.tasks.task import Provenance

RECIPES = tuple(recipe for recipe in seal.RECIPES if recipe != "generated")  # rows here come from somewhere
Severity = Literal["note", "warn", "refuse"]


class Quarantine(Exception):
    """This task cannot be made. `reason` says what is wrong, where, and what a person can do about it.

    `kind` names the problem for `repair`, if it is one that a changed blueprint may mend.
    """

    def __init__(self, stage: str, reason: str, kind: str = "") -> None:
        super().__init__(f"{stage}: {reason}")
        self.stage, self.reason, self.kind = stage, reason, kind


@dataclass(frozen=True)
class Lead:
    """Something that may become a task; `where` is JSON and tells `fetch` all it needs."""

    id: str
    title: str
    provenance: Provenance
    where: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def digest(self) -> str:
        return digest(dataclasses.asdict(self))


@dataclass(frozen=True)
class Raw:
    """What was fetched: files below `folder`, and the competition's own description ("" if it has none)."""

    id: str
    folder: Path
    provenance: Provenance
    title: str = ""
    text: str = ""
    test_files: tuple[str, ...] = ()  # names of the files in the source's own test set, if that has any


@dataclass(frozen=True)
class Finding:
    """One thing that a check saw in a task. `refuse` keeps the task out of the set unless `repair` can mend it."""

    kind: str
    severity: Severity
    text: str
    column: str = ""
    value: float | None = None


@dataclass(frozen=True)
class Origin:
    """A kind of source as three functions, each of which may raise Quarantine for its task.

    `discover` must be quick and need no network when nothing has changed. `version` changes whenever `plan` would
    give another blueprint for the same lead: it decides, with the lead, whether a finished task is made again.
    """

    discover: Callable[[], Sequence[Lead]]
    fetch: Callable[[Lead, Path], Raw]  # downloads into the given folder
    plan: Callable[[Raw], Blueprint]
    version: str = ""


@dataclass(frozen=True)
class Blueprint:
    """How raw files become a task. Paths are relative to `Raw.folder`; `train`, `test` and `sample` of a prepared task
    are relative to its `public_folder`.
    """

    id: str
    title: str
    text: str  # the body of the description: what the data are and what to predict
    modality: str  # "tabular", "text", "image", "audio", "series", ...
    domain: str
    train: str  # table with the targets; "" only with `public_folder`
    target_columns: tuple[str, ...]
    metric: str
    test: str = ""  # recipe "ready": table with the targets, or without them if `answers` holds them
    answers: str = ""  # table of id and targets for the rows of `test` (and columns named by role, if the task has any)
    public_folder: str = ""  # a prepared public folder, copied as it is (without `answers`)
    sample: str = ""  # the sample submission of a prepared task; "": made
    id_column: str = ""  # "": ids are made
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the metric's
    labels: tuple[
        str, ...
    ] = ()  # all classes, the positive one last; (): read from the target if the metric has labels
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)  # column -> tables.KINDS, where known
    recipe: str = "random"
    group_column: str = ""  # grouped: no value on both sides; source: whole values are held out
    time_column: str = ""  # temporal: the latest rows are held out
    test_share: float = 0.2
    seed: int = 0
    drop: Mapping[str, str] = field(default_factory=dict, hash=False)  # column -> reason
    hidden: tuple[str, ...] = ()  # columns that the test rows must not show, besides the targets
    roles: Mapping[str, str] = field(default_factory=dict, hash=False)  # role that the metric reads -> column
    merge_labels: Mapping[str, str] = field(
        default_factory=dict, hash=False
    )  # label of the source -> label of the task
    distinct: bool = False  # rows that agree in everything but id and targets are kept once
    files_column: str = ""  # names a file per row, below `files_folder`
    files_folder: str = ""
    board: str = ""  # competition in the folder of boards, or a path in Raw.folder: human scores that give thresholds
    max_rows: int = 0  # 0: all

    def __post_init__(self) -> None:
        for name in ("target_columns", "labels", "hidden"):
            if isinstance(value := getattr(self, name), list):  # JSON knows no tuples
                object.__setattr__(self, name, tuple(value))
        if problem := _problem(self):
            raise Quarantine("plan", f"blueprint {self.id!r}: {problem}")

    def digest(self) -> str:
        return digest(dataclasses.asdict(self))


def to_json(blueprint: Blueprint) -> str:
    return json.dumps(dataclasses.asdict(blueprint), indent=1, allow_nan=False) + "\n"


def from_json(text: str) -> Blueprint:
    """The blueprint written by `to_json`, or by a model. Raises Quarantine("plan", ...) naming the field."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise Quarantine("plan", f"the blueprint is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise Quarantine("plan", f"the blueprint is not a JSON object but {type(values).__name__}")
    known = {item.name: item for item in dataclasses.fields(Blueprint)}
    if unknown := sorted(values.keys() - known.keys()):
        raise Quarantine("plan", f"the blueprint has no field {unknown[0]!r}; it has {', '.join(known)}")
    required = [name for name, item in known.items() if _is_required(item)]
    if missing := [name for name in required if name not in values]:
        raise Quarantine("plan", f"the blueprint lacks the field {missing[0]!r}")
    return Blueprint(**values)


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of `value`."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


# ---------------------------------------------------------------- checks
def _is_required(item: dataclasses.Field) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _all_text(values: Any) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, str) for value in values)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda value: isinstance(value, str), "a string"),
    "int": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "float": (lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "tuple[str, ...]": (_all_text, "a list of strings"),
    "Mapping[str, str]": (lambda value: _is_mapping(value) and _all_text(tuple(value.values())), "strings by name"),
    "Mapping[str, Any]": (_is_mapping, "values by name"),
}


def _problem(plan: Blueprint) -> str:
    for item in dataclasses.fields(plan):
        is_valid, wanted = _TYPES[str(item.type)]
        if not is_valid(value := getattr(plan, item.name)):
            return f"{item.name} is {value!r}, not {wanted}"
    return _problem_of_names(plan) or _problem_of_recipe(plan)


def _problem_of_names(plan: Blueprint) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", plan.id):
        return "the id may hold letters, digits, '.', '_' and '-' only"
    for name in ("train", "test", "answers", "public_folder", "sample", "files_folder", "board"):
        path = PurePosixPath(getattr(plan, name))
        if path.is_absolute() or ".." in path.parts:
            return f"{name} {str(path)!r} leaves the folder of the raw files"
    if not plan.target_columns or len(set(plan.target_columns)) < len(plan.target_columns):
        return f"target_columns {list(plan.target_columns)} must be distinct and at least one"
    if wrong := {column: kind for column, kind in plan.columns.items() if kind not in KINDS}:
        return f"kinds of columns {wrong} are unknown; known: {', '.join(KINDS)}"
    if lost := [column for column in plan.drop if column in (plan.id_column, *plan.target_columns)]:
        return f"drop names {lost[0]!r}, which is the id or a target"
    return ""


def _problem_of_recipe(plan: Blueprint) -> str:
    if plan.recipe not in RECIPES:
        return f"recipe {plan.recipe!r} is unknown; known: {', '.join(RECIPES)}"
    if plan.public_folder:
        return "" if plan.answers else "a prepared public_folder needs `answers`"
    if not plan.train:
        return "train names no table"
    if plan.recipe == "ready" and not plan.test:
        return "recipe 'ready' needs `test`"
    if plan.recipe in ("grouped", "source") and not plan.group_column:
        return f"recipe {plan.recipe!r} needs `group_column`"
    if plan.recipe == "temporal" and not plan.time_column:
        return "recipe 'temporal' needs `time_column`"
    if not 0 < plan.test_share < 1:
        return f"test_share {plan.test_share} is not between 0 and 1"
    return "" if plan.max_rows >= 0 else f"max_rows {plan.max_rows} is negative"
