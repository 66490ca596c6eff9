"""Medals by the MLE-bench rule: positions on a leaderboard of N teams give thresholds, thresholds give medals.

    teams       gold                   silver            bronze
    1-99        10 % (at least 1)      20 % (1)          40 % (1)
    100-249     10                     20 %              40 %
    250-999     10 + 0.2 %             50                100
    1000-       10 + 0.2 %             5 %               10 %

Shares are rounded down, so 1 to 4 teams have one place for all medals and with 5 to 9 gold and silver share the first.
Direction is always an argument, never guessed from a board. Comparisons are at full precision: a medal is reached AT
its threshold, the median must be beaten. Scores that are not finite are an error here: they never reach a ranking.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from mlexpert.tasks.boards import clean
from mlexpert.tasks.task import Thresholds
from mlexpert.types import Medal


class Positions(NamedTuple):
    """1-based places on a board sorted best first."""

    gold: int
    silver: int
    bronze: int


def positions(n_teams: int) -> Positions:
    """Last place of each medal among `n_teams` (MLE-bench rule). Raises ValueError without a team."""
    if n_teams < 1:
        raise ValueError(f"a board of {n_teams} teams has no medal positions")
    if n_teams < 100:
        gold = max(1, n_teams // 10)
    elif n_teams < 250:
        gold = 10
    else:
        gold = 10 + n_teams * 2 // 1000
    if n_teams < 250:
        return Positions(gold, max(1, n_teams // 5), max(1, n_teams * 2 // 5))
    if n_teams < 1000:
        return Positions(gold, 50, 100)
    return Positions(gold, n_teams // 20, n_teams // 10)


def thresholds_from_board(rows: Sequence[float | None], lower_is_better: bool, sample: float) -> Thresholds:
    """Thresholds of a human leaderboard in any order; `sample` is the score of the sample submission.

    Rows without a finite score do not count as teams. Raises BoardError for a board without one.
    """
    board = clean(rows, lower_is_better)
    gold, silver, bronze = (board.scores[place - 1] for place in positions(board.teams))
    return Thresholds(gold, silver, bronze, float(statistics.median(board.scores)), sample)


def medal_for(score: float, thresholds: Thresholds, lower_is_better: bool) -> Medal:
    """The best medal whose threshold `score` reaches."""
    for medal, line in _lines(thresholds):
        if _gain(score, line, lower_is_better) >= 0:
            return medal
    return Medal.NONE


def above_median(score: float, thresholds: Thresholds, lower_is_better: bool) -> bool:
    return _gain(score, thresholds.median, lower_is_better) > 0


class Gap(NamedTuple):
    """What is missing to the next better medal: `distance` in the metric's unit, 0 only AT a line."""

    medal: Medal
    threshold: float
    distance: float


def next_medal(score: float, thresholds: Thresholds, lower_is_better: bool) -> Gap | None:
    """The nearest medal that `score` has not reached, None at gold."""
    for medal, line in reversed(_lines(thresholds)):
        if (gain := _gain(score, line, lower_is_better)) < 0:
            return Gap(medal, line, -gain)
    return None


def _lines(thresholds: Thresholds) -> list[tuple[Medal, float]]:
    """Medals with their thresholds, the best first."""
    return [(Medal.GOLD, thresholds.gold), (Medal.SILVER, thresholds.silver), (Medal.BRONZE, thresholds.bronze)]


def quality(score: float, thresholds: Thresholds, lower_is_better: bool) -> float:
    """Place of `score` between the sample submission (0) and gold (1), clipped to [0, 1].

    If the sample already scores gold there is nothing between them: 1 at gold, else 0.
    """
    span = _gain(thresholds.gold, thresholds.sample, lower_is_better)
    if span <= 0:
        return float(_gain(score, thresholds.gold, lower_is_better) >= 0)
    return min(1.0, max(0.0, _gain(score, thresholds.sample, lower_is_better) / span))


def _gain(score: float, reference: float, lower_is_better: bool) -> float:
    """How much better than `reference` the score is; negative when worse, 0 only at equality."""
    if isinstance(score, bool) or not math.isfinite(score):
        raise ValueError(f"score {score} is not finite and cannot be ranked")
    return reference - score if lower_is_better else score - reference
