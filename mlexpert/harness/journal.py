"""The journal of an episode: JSON lines, one event a line, written before anything is built on it.

The environment's state is a fold over these events, so a run that was killed at any moment goes on from the last
whole line. A torn last line (no newline) is an event that never happened: it is cut off and counted. A damaged line
anywhere else is an error.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from mlexpert.types import ExecStatus, Execution, Isolation, Medal, Result, Verdict, VerdictStatus

Event = dict  # free-form: "event" names its kind, the rest is plain JSON


class JournalError(Exception):
    """The journal cannot be read or does not belong to this episode; the message names the file and the remedy."""


class Journal:
    """An append-only file of events with one writer. `torn_bytes` counts what a crash left half-written."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.torn_bytes = _cut_torn_tail(self.path)
        self._count = len(replay(self.path))

    def __len__(self) -> int:
        return self._count

    def append(self, event: Mapping) -> None:
        """Writes one event and hands it to the operating system. A failed write leaves the file as it was and raises.

        Raises ValueError for an event without "event" or with a number that JSON has no word for (NaN, infinity).
        """
        if "event" not in event:
            raise ValueError(f'a journal event needs a key "event": {sorted(event)}')
        line = json.dumps(event, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        size = self.path.stat().st_size
        try:
            with self.path.open("ab", buffering=0) as file:
                written = file.write(line)
                if written != len(line):
                    raise OSError(errno.ENOSPC, f"wrote {written} of {len(line)} bytes", str(self.path))
        except OSError:
            os.truncate(self.path, size)
            raise
        self._count += 1

    def events(self) -> list[Event]:
        return replay(self.path)

    def truncate(self, n: int) -> None:
        """Keeps the first `n` events: the episode goes back to that moment. Rebuild the environment afterwards."""
        if not 0 <= n <= self._count:
            raise ValueError(f"{self.path}: cannot keep {n} of {self._count} events")
        with self.path.open("rb") as file:
            size = sum(len(file.readline()) for _ in range(n))
        os.truncate(self.path, size)
        self._count = n


def _cut_torn_tail(path: Path) -> int:
    if not path.exists():
        path.touch()
        return 0
    data = path.read_bytes()
    torn = len(data) - (data.rfind(b"\n") + 1)
    if torn:
        logging.warning("%s: cut off a half-written last event of %d bytes", path, torn)
        os.truncate(path, len(data) - torn)
    return torn


def replay(path: Path, n: int | None = None) -> list[Event]:
    """The first `n` events of a journal (all by default). Raises JournalError at a damaged line."""
    lines = Path(path).read_bytes().split(b"\n")[:-1]
    return [_event(path, number, line) for number, line in enumerate(lines[:n], start=1)]


def _event(path: Path, number: int, line: bytes) -> Event:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise JournalError(f"{path}, line {number}: not JSON ({error}); remove the file to start anew") from error
    if not isinstance(event, dict) or "event" not in event:
        raise JournalError(f'{path}, line {number}: an event needs a key "event"; remove the file to start anew')
    return event


# ---------------------------------------------------------------- results as plain JSON, exact both ways
def result_to_json(result: Result) -> dict:
    execution = asdict(result.execution)
    execution["files"] = {name: str(path) for name, path in result.execution.files.items()}
    return {"execution": execution, "verdict": asdict(result.verdict)}


def result_from_json(data: Mapping) -> Result:
    execution, verdict = dict(data["execution"]), dict(data["verdict"])
    execution["status"] = ExecStatus(execution["status"])
    execution["isolation"] = Isolation(**execution["isolation"])
    execution["files"] = {name: Path(path) for name, path in execution["files"].items()}
    verdict["status"] = VerdictStatus(verdict["status"])
    verdict["medal"] = Medal(verdict["medal"])
    return Result(Execution(**execution), Verdict(**verdict))
