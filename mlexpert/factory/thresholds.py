"""Scores that separate the medals: of people where a leaderboard speaks of the same thing, else of reference solutions.

A board is used if its direction is the metric's (else the task is refused: one of the two is wrong) and its scale is
ours: the best reference solution has to find a place between its first and its last teams. Without a board the medals
lie between the best solution and the median one: gold is reached BANDS["gold"] of that way below the best, and so on.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from mlexpert.factory.boards import Boards
from mlexpert.factory.records import Finding, Quarantine
from mlexpert.factory.reference import SAMPLE_SCORE
from mlexpert.tasks.boards import BoardError
from mlexpert.tasks.boards import check_direction as against
from mlexpert.tasks.medals import thresholds_from_board
from mlexpert.tasks.metrics import Metric
from mlexpert.tasks.task import Thresholds

BANDS = {"gold": 0.05, "silver": 0.15, "bronze": 0.30}
REFERENCE_SOLUTIONS = "reference solutions"
LAST = 0.98  # share of the teams that the best reference solution must not be worse than
DIGITS = 9


class Decision(NamedTuple):
    thresholds: Thresholds
    thresholds_from: str
    findings: tuple[Finding, ...] = ()


def decide(metric: Metric, scores: Mapping[str, float], boards: Boards | None) -> Decision:
    """Thresholds for a task on which the reference solutions got `scores`. Raises Quarantine("verify", ...)."""
    findings = []
    if boards:
        check_direction(metric, boards)
        if finding := scale(metric, scores, boards):
            findings.append(finding)
        else:
            return _by_people(metric, scores, boards)
    return Decision(by_solutions(metric, scores), REFERENCE_SOLUTIONS, tuple(findings))


def gain(metric: Metric, score: float, reference: float) -> float:
    """How much better `score` is; negative if it is worse."""
    return reference - score if metric.lower_is_better else score - reference


def solved(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores of solutions that learnt something: neither the sample submission nor the constant."""
    return {name: score for name, score in scores.items() if name not in (SAMPLE_SCORE, "constant")}


def best(metric: Metric, scores: Mapping[str, float]) -> tuple[str, float]:
    """Name and score of the best solution. Raises ValueError if there is none."""
    return max(solved(scores).items(), key=lambda item: gain(metric, item[1], 0.0))


# ---------------------------------------------------------------- people
def check_direction(metric: Metric, boards: Boards) -> None:
    """Raises Quarantine if the ranks of a board run against the metric."""
    for name, scores in (("private", boards.private), ("public", boards.public)):
        try:
            against(scores, metric.lower_is_better)
        except BoardError as error:
            raise Quarantine(
                "verify",
                f"the {name} leaderboard of {boards.competition!r} does not fit {metric.name}: {error}; "
                "correct the metric or the board",
                kind="direction",
            ) from error


def scale(metric: Metric, scores: Mapping[str, float], boards: Boards) -> Finding | None:
    """Why the board's scores are not comparable with ours; None if they are, or if no solution of ours can tell."""
    if not solved(scores):
        return None
    name, ours = best(metric, scores)
    ranked = sorted(boards.scores, reverse=not metric.lower_is_better)
    last = ranked[round(LAST * (len(ranked) - 1))]
    if gain(metric, ours, ranked[0]) <= 0 <= gain(metric, ours, last):
        return None
    text = (
        f"{LAST:.0%} of the teams of {boards.competition!r} ({boards.name}) lie between {ranked[0]:g} and {last:g}, "
        f"our {name} scores {ours:g}: another scale or another test set, so the board gives no thresholds"
    )
    return Finding("board_scale", "warn", text, value=ours)


def _by_people(metric: Metric, scores: Mapping[str, float], boards: Boards) -> Decision:
    found = thresholds_from_board(boards.scores, metric.lower_is_better, scores[SAMPLE_SCORE])
    told = f"leaderboard of {boards.competition}, {len(boards.scores)} teams ({boards.name})"
    if not boards.no_score:
        return Decision(found, told)
    text = f"{boards.no_score} rows of the leaderboards have no score and are left out"
    return Decision(found, told, (Finding("board_rows", "note", text, value=float(boards.no_score)),))


# ---------------------------------------------------------------- solutions
def by_solutions(metric: Metric, scores: Mapping[str, float]) -> Thresholds:
    """Places between the best and the median solution; the median is at least the constant.

    Raises Quarantine if nothing lies between them.
    """
    if not solved(scores):
        raise Quarantine(
            "verify",
            f"no reference solution applies to {metric.name} on these tables, so nothing separates the medals; "
            "name a human leaderboard in the blueprint's `board`",
        )
    constant = scores[SAMPLE_SCORE]
    top = best(metric, scores)[1]
    middle = statistics.median([constant, *solved(scores).values()])
    if gain(metric, middle, constant) < 0:
        middle = constant
    if gain(metric, top, middle) <= 0:
        raise Quarantine(
            "verify",
            f"the best reference solution scores {top:g}, the median one {middle:g}, a constant {constant:g} "
            f"({metric.name}): the inputs say nothing of the target, or the metric is too coarse for so few test rows",
            kind="nothing_learnt",
        )
    at = {medal: float(f"{top + share * (middle - top):.{DIGITS}g}") for medal, share in BANDS.items()}
    return Thresholds(at["gold"], at["silver"], at["bronze"], middle, constant)
