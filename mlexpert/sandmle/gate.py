"""The sanity gate (SandMLE): a task is kept if its executed ladder is strictly monotone, wide enough and truthful.

In the metric's direction: gold > silver > bronze > median > sample submission; best and median differ visibly; and
the approach that the note calls for reaches bronze, so that reading the note pays. Drops are counted by reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from mlexpert.sandmle.mle_developer import Ladder
from mlexpert.tasks.medals import medal_for
from mlexpert.tasks.task import PRIVATE_FACTS, Task, Thresholds
from mlexpert.types import Medal

MIN_SPREAD_ERROR = 0.12  # lower is better: share of the median rung's error that the best rung removes
MIN_SPREAD_SCORE = 0.05  # higher is better: points between best and median rung

REASONS = ("ladder not monotone", "sample not worse than median", "spread too small", "note misleads")


def reason(ladder: Ladder) -> str:
    """Why the task is dropped: one of `REASONS`, or "" if it is kept."""
    limits = ladder.thresholds
    if not monotone(limits, ladder.lower_is_better):
        return "ladder not monotone"
    if gain(limits.median, limits.sample, ladder.lower_is_better) <= 0:
        return "sample not worse than median"
    best = min(ladder.scores.values()) if ladder.lower_is_better else max(ladder.scores.values())
    spread = gain(best, limits.median, ladder.lower_is_better)
    if spread < (MIN_SPREAD_ERROR * limits.median if ladder.lower_is_better else MIN_SPREAD_SCORE):
        return "spread too small"
    if not medals(ladder.scores, limits, ladder.lower_is_better)[f"{ladder.called_for}.0"]:
        return "note misleads"
    return ""


def monotone(limits: Thresholds, lower_is_better: bool) -> bool:
    steps = ((limits.gold, limits.silver), (limits.silver, limits.bronze), (limits.bronze, limits.median))
    return all(gain(better, worse, lower_is_better) > 0 for better, worse in steps)


def gain(score: float, reference: float, lower_is_better: bool) -> float:
    return reference - score if lower_is_better else score - reference


def medals(scores: Mapping[str, float], limits: Thresholds, lower_is_better: bool) -> dict[str, Medal]:
    return {rung: medal_for(score, limits, lower_is_better) for rung, score in scores.items()}


def balance(tasks: Iterable[Task]) -> dict[str, float]:
    """Any-medal rate of every fixed pipeline over `tasks` (a pipeline that does not apply wins nothing).

    Plus "called for": the rate of the approach that each task's note calls for. Read from the ladders that were
    executed when the tasks were made. Raises ValueError without a task.
    """
    won: dict[str, int] = {}
    count = 0
    for task in tasks:
        notes = json.loads((task.private / PRIVATE_FACTS).read_text(encoding="utf-8"))["notes"]
        rungs = medals(notes["ladder"], task.thresholds, task.lower_is_better)
        rungs["called for"] = rungs[f"{notes['called_for']}.0"]
        for rung, medal in rungs.items():
            won[rung] = won.get(rung, 0) + (medal > Medal.NONE)
        count += 1
    if not count:
        raise ValueError("balance of no tasks")
    return {rung: wins / count for rung, wins in sorted(won.items(), key=lambda item: -item[1])}
