"""What happened to every task, stage by stage: one JSON line each, appended and on disk before the next stage starts.

A process may die at any byte. Lines are whole or they are the last one, which is then cut away; anything else that
cannot be read is an error, because the ledger decides what is not done again.

    {"task": "abalone", "stage": "verify", "state": "done", "reason": "", "digest": "<what went in>", "detail": {...}}
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

STATES = ("done", "repaired", "quarantined")
FIELDS = ("task", "stage", "state", "reason", "digest", "detail")


class LedgerError(Exception):
    """The ledger is damaged in the middle; the message names file and line."""


@dataclass(frozen=True)
class Entry:
    task: str
    stage: str
    state: str  # one of STATES
    reason: str = ""  # quarantined: what a person can do; repaired: what was changed
    digest: str = ""  # of what went into the stage
    detail: Mapping[str, Any] = field(default_factory=dict, hash=False)


class Ledger:
    """An open ledger file; `append` may be called from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _cut_half_line(self.path)
        self.entries = read(self.path)
        self._lock = threading.Lock()

    def append(self, entry: Entry) -> None:
        """Adds the entry; it is on disk when this returns."""
        if entry.state not in STATES:
            raise ValueError(f"state {entry.state!r} is not one of {', '.join(STATES)}")
        line = json.dumps(asdict(entry), allow_nan=False) + "\n"
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self.entries.append(entry)

    def last(self, task: str) -> Entry | None:
        """The latest line about the task."""
        with self._lock:
            return next((entry for entry in reversed(self.entries) if entry.task == task), None)


def read(path: Path) -> list[Entry]:
    """All entries in order; [] if there is no file. A last line without its end does not count. Raises LedgerError."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    lines = text.split("\n")[:-1]
    return [_entry(path, number, line) for number, line in enumerate(lines, start=1)]


def table(entries: Iterable[Entry]) -> pd.DataFrame:
    """One row per entry, in order: task, stage, state, reason, digest, detail."""
    return pd.DataFrame([asdict(entry) for entry in entries], columns=list(FIELDS))


def _entry(path: Path, number: int, line: str) -> Entry:
    try:
        values = json.loads(line)
        entry = Entry(**values)
        if entry.state not in STATES:
            raise ValueError(f"state {entry.state!r}")
    except (ValueError, TypeError) as error:
        raise LedgerError(
            f"{path}, line {number} is not an entry ({error}); move the file away and the tasks are made again"
        ) from error
    return entry


def _cut_half_line(path: Path) -> None:
    """Removes what a killed process left of its last line, so that the next one starts on its own."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
