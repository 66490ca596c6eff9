"""Human leaderboards: files with a `score` column, in the order of their `rank` -> scores.

    <folder>/<competition>/{public,private}.csv  or  {public,private}_leaderboard.csv; a single CSV is a private board

Which board a task uses, how many teams it has and how many of its rows have no score goes into the task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlexpert.factory.records import Blueprint, Quarantine, Raw
from mlexpert.tasks.metrics import number
from mlexpert.tasks.tables import TaskError, read_table
from mlexpert.tasks.task import sha256

NAMES = ("private", "public")  # medals are won on the private board


@dataclass(frozen=True)
class Boards:
    """Finite scores in the order of rank, best first as the competition saw it; () where there is no such board."""

    competition: str
    private: tuple[float, ...]
    public: tuple[float, ...]
    no_score: int = 0  # rows of both boards without a finite score

    @property
    def name(self) -> str:
        return "private" if self.private else "public"

    @property
    def scores(self) -> tuple[float, ...]:
        """Of the board that gives the medals."""
        return self.private or self.public


def find(plan: Blueprint, raw: Raw, folder: Path | None) -> Boards | None:
    """The boards that the blueprint names, among the raw files or in `folder`; None without a name or a folder.

    Raises Quarantine("build", ...) for a board that should be there and is not, or that cannot be read.
    """
    place = _place(plan, raw, folder)
    if place is None:
        return None
    paths = _paths(place)
    if not paths:
        raise Quarantine(
            "build", f"no leaderboard of {plan.board!r} at {place}; put it there or clear the blueprint's `board`"
        )
    found = {name: _read(path) for name, path in paths.items()}
    scores = {name: tuple(filter(math.isfinite, each)) for name, each in found.items()}
    if not any(scores.values()):
        raise Quarantine(
            "build", f"the leaderboard of {plan.board!r} has no finite score; clear the blueprint's `board`"
        )
    no_score = sum(map(len, found.values())) - sum(map(len, scores.values()))
    competition = raw.id if (raw.folder / plan.board).exists() else plan.board
    return Boards(competition, scores.get("private", ()), scores.get("public", ()), no_score)


def _place(plan: Blueprint, raw: Raw, folder: Path | None) -> Path | None:
    """Where the board of a blueprint is looked for."""
    if not plan.board:
        return None
    own = raw.folder / plan.board
    return own if own.exists() else folder and Path(folder) / plan.board


def digest(place: Path | None) -> str:
    """SHA-256 of each board file there, joined; "" without one."""
    return " ".join(sha256(path) for path in _paths(place).values()) if place else ""


def write(folder: Path, name: str, scores: Sequence[str]) -> None:
    """A board as `find` reads it; `scores` as they are spelled, in the order of rank."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["rank,score", *(f"{rank},{score}" for rank, score in enumerate(scores, start=1))]
    (folder / f"{name}_leaderboard.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _paths(place: Path) -> dict[str, Path]:
    if place.is_file():
        return {"private": place}
    candidates = {name: [place / f"{name}.csv", place / f"{name}_leaderboard.csv"] for name in NAMES}
    existing = {name: [path for path in paths if path.is_file()] for name, paths in candidates.items()}
    return {name: paths[0] for name, paths in existing.items() if paths}


def _read(path: Path) -> list[float]:
    try:
        table = read_table(path)
    except TaskError as error:
        raise Quarantine("build", f"leaderboard {path}: {error}") from error
    names = {name.strip().lower(): name for name in table.columns}
    if "score" not in names:
        raise Quarantine("build", f"leaderboard {path} has no column 'score'; it has {', '.join(table.columns)}")
    scores = [number(cell) for cell in table[names["score"]]]
    if "rank" not in names:
        return scores
    ranks = [number(cell) for cell in table[names["rank"]]]
    return [scores[row] for row in sorted(range(len(scores)), key=lambda row: (math.isnan(ranks[row]), ranks[row]))]
