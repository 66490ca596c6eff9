"""What a reviewer is shown of a task, gathered from its folder and its set: plain values, no markup."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlexpert.factory import leaks
from mlexpert.factory.ledger import Entry
from mlexpert.factory.records import Finding
from mlexpert.loops.reviewing.decisions import Decision, Standing, standing
from mlexpert.tasks.metrics import Needs, number
from mlexpert.tasks.sources import Sources, name
from mlexpert.tasks.tables import GAPS, read_cells
from mlexpert.tasks.task import ANSWERS, SAMPLE, Task, boards, description, metric_of, notes

MAX_ROWS = 20_000  # of a table that are counted
MAX_COLUMNS, MAX_TARGETS = 60, 6  # that are shown
SHOWN_ROWS = 4
PICTURES, MAX_PICTURE = 8, 60_000  # thumbnails, and bytes of one
MIME = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
Cells = Sequence[str]


@dataclass(frozen=True)
class Column:
    """A column of both tables; `numbers` are None for a column that holds none."""

    name: str
    kind: str
    gaps: tuple[float, float]  # share of empty cells in train and test
    distinct: int
    drift: float | None
    numbers: tuple[np.ndarray, np.ndarray] | None
    counts: tuple[Mapping[str, float], Mapping[str, float]]  # shares of the most frequent cells


@dataclass(frozen=True)
class Exhibit:
    task: Task
    title: str
    text: str
    rows: tuple[int, int]
    columns: tuple[Column, ...]
    n_columns: int
    targets: tuple[Column, ...]
    shown: tuple[Sequence[str], Sequence[Sequence[str]]]  # header and first rows of train
    sample: tuple[Sequence[str], Sequence[Sequence[str]]]
    pictures: Sequence[tuple[str, str]]  # caption and data URI
    solutions: Mapping[str, float]
    people: Sequence[float]  # the private board, if there is one
    findings: Sequence[Finding]
    repairs: Sequence[str]
    history: Sequence[Entry]
    standing: Standing
    decisions: Sequence[Decision]
    side: str  # "train", "held out" or "": the split by source was not made


def exhibit(task: Task, history: Sequence[Entry], decisions: Sequence[Decision], sources: Sources | None) -> Exhibit:
    """Raises TaskError if a table of the task cannot be read."""
    noted, text = notes(task), description(task)
    train, test = _table(task, task.train), _table(task, task.test)
    answers = read_cells(task.private / ANSWERS)
    names = [each for each in dict.fromkeys([*train, *test]) if each not in task.target_columns]
    numeric = metric_of(task).answers in (Needs.NUMBER, Needs.RATING)
    kinds = dict.fromkeys(task.target_columns, "number") if numeric else {}
    return Exhibit(
        task=task,
        title=str(noted.get("title") or _heading(text) or task.id),
        text=text,
        rows=(_rows(train), len(answers[task.id_column])),
        columns=tuple(_column(task, each, train, test, task.columns) for each in names[:MAX_COLUMNS]),
        n_columns=len(names),
        targets=tuple(_column(task, each, train, answers, kinds) for each in task.target_columns[:MAX_TARGETS]),
        shown=_first(train),
        sample=_first(read_cells(task.public / SAMPLE)),
        pictures=_pictures(task, train),
        solutions={each: float(score) for each, score in noted.get("references", {}).items()},
        people=boards(task).get("private", []),
        findings=_findings(task, noted),
        repairs=noted.get("repairs", []),
        history=[entry for entry in history if entry.task == task.id],
        standing=standing(task, decisions),
        decisions=[each for each in decisions if each.task == task.id],
        side=_side(task, sources),
    )


def _heading(text: str) -> str:
    found = re.match(r"#+ +(.+)", text)
    return found[1].strip() if found else ""


def _findings(task: Task, noted: Mapping[str, Any]) -> list[Finding]:
    """What the Factory found when it made the task; a task of another maker is searched now."""
    if "findings" in noted:
        found = [Finding(**each) for each in noted["findings"]]
        return sorted(found, key=lambda each: leaks.SEVERITIES.index(each.severity))
    return leaks.findings(task)


def _side(task: Task, sources: Sources | None) -> str:
    if sources is None:
        return ""
    return "held out" if name(task.provenance.source_dataset) in sources.held_out else "train"


# ---------------------------------------------------------------- tables
def _table(task: Task, file: str) -> dict[str, list[str]]:
    return read_cells(task.public / file) if file.endswith(".csv") else {}


def _rows(table: Mapping[str, Cells]) -> int:
    return len(next(iter(table.values()), ()))


def _first(table: Mapping[str, Cells]) -> tuple[list[str], list[list[str]]]:
    """Header and first rows."""
    rows = zip(*(cells[:SHOWN_ROWS] for cells in table.values()), strict=True)
    return list(table), [list(row) for row in rows]


def _column(
    task: Task, each: str, train: Mapping[str, Cells], test: Mapping[str, Cells], kinds: Mapping[str, str]
) -> Column:
    known, asked = (_spaced(table.get(each, ())) for table in (train, test))
    filled = [cell for cell in (*known, *asked) if cell not in GAPS]
    kind = kinds.get(each) or ("number" if filled and all(np.isfinite(number(cell)) for cell in filled) else "label")
    is_number = kind == "number"
    return Column(
        name=each,
        kind=kind,
        gaps=(_gaps(known), _gaps(asked)),
        distinct=len(set(filled)),
        drift=task.split.drift.get(each),
        numbers=(_numbers(known), _numbers(asked)) if is_number else None,
        counts=({}, {}) if is_number else (_shares(known), _shares(asked)),
    )


def _spaced(cells: Cells) -> Cells:
    return cells if len(cells) <= MAX_ROWS else cells[:: len(cells) // MAX_ROWS + 1]


def _gaps(cells: Cells) -> float:
    return sum(cell == "" for cell in cells) / len(cells) if cells else 0.0


def _numbers(cells: Cells) -> np.ndarray:
    return np.array([number(cell) for cell in cells], dtype=np.float64)


def _shares(cells: Cells) -> dict[str, float]:
    return {cell: count / len(cells) for cell, count in Counter(cells).items()}


# ---------------------------------------------------------------- pictures
def _pictures(task: Task, train: Mapping[str, Cells]) -> list[tuple[str, str]]:
    """Small images of train rows, of different labels first."""
    column = next((each for each, kind in task.columns.items() if kind == "file" and each in train), "")
    if not column:
        return []
    captions = train.get(task.target_columns[0], [""] * len(train[column]))
    order = sorted(
        range(len(captions)), key=lambda row: (captions[:row].count(captions[row]) if row < 400 else 400, row)
    )
    found = []
    for row in order[: 4 * PICTURES]:
        path = task.public / train[column][row]
        if (
            path.suffix.lower() in MIME
            and path.is_file()
            and path.stat().st_size <= MAX_PICTURE
            and len(found) < PICTURES
        ):
            data = base64.b64encode(path.read_bytes()).decode()
            found.append((captions[row], f"data:{MIME[path.suffix.lower()]};base64,{data}"))
    return found
