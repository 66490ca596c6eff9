"""Training and held-out tasks never share a source data set: the split is made by source and recorded with the set.

One data set appears under several names and in several tasks, so a task names what lies under it
(`provenance.source_dataset`) and all tasks of one source fall on one side. A source's side is a hash of the seed and of
its name: it does not depend on what else is in the set, and a source that was assigned once stays where it is.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import Facts, read_json, write_json

FILE = "sources.json"  # in the folder of a set


@dataclass(frozen=True)
class Sources:
    train: tuple[str, ...]  # names as `name` writes them, sorted
    held_out: tuple[str, ...]
    share: float  # of the sources, that was asked for
    seed: int


def name(source_dataset: str) -> str:
    """One spelling of a source's name: "Ames Housing" and "ames_housing" are the same data."""
    return re.sub(r"[^a-z0-9:]+", "-", source_dataset.casefold()).strip("-")


def assign(tasks: Iterable[Facts], share: float, seed: int, recorded: Sources | None = None) -> Sources:
    """The split of the tasks' sources; those in `recorded` stay. With two sources or more both sides get one.

    Raises ValueError for a share outside of 0 to 1.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share {share}: the held-out part of the sources, between 0 and 1")
    train, held_out = (set(recorded.train), set(recorded.held_out)) if recorded else (set(), set())
    fresh = {name(task.provenance.source_dataset) for task in tasks} - train - held_out
    ranked = sorted(fresh, key=lambda source: (_draw(source, seed), source))
    chosen = {source for source in ranked if _draw(source, seed) < share}
    if ranked and 0.0 < share < 1.0 and len(train | held_out | fresh) > 1:
        if not held_out | chosen:
            chosen = {ranked[0]}
        elif not train | (fresh - chosen):
            chosen = chosen - {ranked[-1]}
    return Sources(tuple(sorted(train | (fresh - chosen))), tuple(sorted(held_out | chosen)), share, seed)


def _draw(source: str, seed: int) -> float:
    """Between 0 and 1, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{source}".encode(), digest_size=8).digest()) / 2**64


def record(folder: Path, sources: Sources) -> None:
    """Writes `sources.json` of the set in one rename."""
    aside = Path(folder) / f".{FILE}.{os.getpid()}"
    write_json(aside, asdict(sources))
    aside.rename(Path(folder) / FILE)


def recorded(folder: Path) -> Sources | None:
    """The split of a set, None if none was made. Raises TaskError for a damaged file."""
    path = Path(folder) / FILE
    if not path.exists():
        return None
    told = read_json(path)
    try:
        return Sources(tuple(told["train"]), tuple(told["held_out"]), told["share"], told["seed"])
    except (KeyError, TypeError) as error:
        raise TaskError(f"{path}: bad field {error}; assign the sources again") from error


def refuse_held_out(tasks: Iterable[Facts], sources: Sources) -> None:
    """Raises TaskError if one of `tasks`, which are to be trained on, touches a held-out source, or one of no side."""
    for task in tasks:
        source = name(task.provenance.source_dataset)
        if source in sources.held_out:
            raise TaskError(f"task {task.id} is made from {source!r}, which is held out: it must not be trained on")
        if source not in sources.train:
            raise TaskError(f"task {task.id} is made from {source!r}, which is on no side yet: assign them again")
