"""Human leaderboards: cleaned, checked against the metric's direction, and where a score stands among them.

The direction of a metric is always an argument. A board can only contradict it, and then it is an error: a board that
runs the wrong way belongs to another metric, and medals made from it would go to the worst.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class BoardError(ValueError):
    """A leaderboard cannot be used; the message says why."""


class Board(NamedTuple):
    scores: list[float]  # finite, best first
    dropped: int  # rows without a finite score

    @property
    def teams(self) -> int:
        return len(self.scores)


class Position(NamedTuple):
    """MLE-Dojo: the first place whose score is not better than ours, so that ties favour us; teams + 1 behind all."""

    place: int
    teams: int

    @property
    def score(self) -> float:
        """Share of the board that we are not behind: 1 in front of all, 0 behind all."""
        return (self.teams - self.place + 1) / self.teams


def clean(rows: Sequence[float | None], lower_is_better: bool) -> Board:
    """A board from its rows in any order. Raises BoardError if none has a finite score."""
    scores = [float(row) for row in rows if row is not None and math.isfinite(row)]
    if not scores:
        raise BoardError(f"no row of the leaderboard has a finite score ({len(rows)} rows): it gives no thresholds")
    return Board(sorted(scores, reverse=not lower_is_better), len(rows) - len(scores))


def check_direction(rows: Sequence[float | None], lower_is_better: bool) -> None:
    """For rows in the order of the published ranks. Raises BoardError if they run from the worst to the best.

    Rows that are in no order, and rows that are all equal, contradict nothing.
    """
    scores = [float(row) for row in rows if row is not None and math.isfinite(row)]
    if not scores or scores[0] == scores[-1] or scores != sorted(scores, reverse=lower_is_better):
        return
    better, first = ("lower", "highest") if lower_is_better else ("higher", "lowest")
    raise BoardError(
        f"{better} is better, but the leaderboard begins with its {first} score {scores[0]:g} and is sorted from there "
        f"to {scores[-1]:g}: it belongs to another metric"
    )


def position(score: float, board: Board, lower_is_better: bool) -> Position:
    """Raises ValueError for a score that is not finite: an invalid submission has no position, not the last one."""
    if isinstance(score, bool) or not math.isfinite(score):
        raise ValueError(f"score {score} is not finite and has no position")
    ours, scores = (score, board.scores) if lower_is_better else (-score, [-other for other in board.scores])
    return Position(bisect_left(scores, ours) + 1, board.teams)


def ties(score: float, board: Board) -> int:
    """Teams that have exactly this score: how wide a threshold is."""
    return board.scores.count(score)


def human_rank(score: float, boards: Mapping[str, Board], lower_is_better: bool) -> float | None:
    """HumanRank of one task: the mean position score over the boards that exist, None without one."""
    shares = [position(score, board, lower_is_better).score for board in boards.values()]
    return sum(shares) / len(shares) if shares else None
