"""What people decided about the tasks of a set: accepted or rejected, by whom, when and why.

    <set>/review.json    every decision ever made, oldest first; of those about one version of a task the last counts

A decision is about a task's digest. A task that was made again differently is undecided, but if it was rejected it
stays out of training until somebody has looked at the new version.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mlexpert.loops.workdir import write_atomic
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import Task, sha256

FILE = "review.json"
ACCEPTED, REJECTED, UNDECIDED = "accepted", "rejected", "undecided"


@dataclass(frozen=True)
class Decision:
    task: str  # its id
    digest: str
    decision: str  # ACCEPTED or REJECTED
    who: str
    when: str  # ISO 8601, UTC
    why: str = ""


@dataclass(frozen=True)
class Standing:
    """Where a task stands: `state` of this very version; `decision` is the last word on it or on an earlier one."""

    state: str
    decision: Decision | None = None

    @property
    def is_barred(self) -> bool:
        """Whether it must not be trained on: rejected, or rejected in an earlier version and not looked at since."""
        return self.decision is not None and self.decision.decision == REJECTED


def read(folder: Path) -> list[Decision]:
    """All decisions about a set; [] if there are none. Raises TaskError for a damaged file."""
    path = Path(folder) / FILE
    try:
        found = [Decision(**each) for each in json.loads(path.read_text(encoding="utf-8"))["decisions"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise TaskError(f"{path}: not decisions ({error}); restore it, or move it away and decide again") from error
    if wrong := [each for each in found if each.decision not in (ACCEPTED, REJECTED)]:
        raise TaskError(f"{path}: {wrong[0].decision!r} of {wrong[0].task} is neither {ACCEPTED} nor {REJECTED}")
    return found


def record(folder: Path, made: Iterable[Decision]) -> None:
    """Adds decisions; two people who decide at once do not lose each other's."""
    with (Path(folder) / f".{FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        every = [*read(folder), *made]
        write_atomic(Path(folder) / FILE, json.dumps({"decisions": [asdict(each) for each in every]}, indent=1) + "\n")


def standing(task: Task, made: Sequence[Decision]) -> Standing:
    """Where the task stands after these decisions."""
    return standing_in(task.root, made)


def standing_in(root: Path, made: Sequence[Decision]) -> Standing:
    """The same of the task in folder `root`, which is not loaded for it."""
    mine = [each for each in made if each.task == root.name]
    if not mine:
        return Standing(UNDECIDED)
    now = sha256(root / "task.json")  # `task.digest`
    here = [each for each in mine if each.digest == now]
    return Standing(here[-1].decision, here[-1]) if here else Standing(UNDECIDED, mine[-1])
