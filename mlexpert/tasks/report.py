"""What a batch of submissions was worth: one report per submission in MLE-bench's JSON schema, and the aggregate.

A report holds every field of MLE-bench's under its name, and further ones that its readers pass over. Scores keep full
precision. Reading back what was written gives an equal record; a report that MLE-bench wrote can be read too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from mlexpert.tasks.boards import Board, clean, human_rank, position, ties
from mlexpert.tasks.medals import next_medal
from mlexpert.tasks.reasons import Refusal
from mlexpert.tasks.task import Task, boards, digest
from mlexpert.types import Medal, Verdict, VerdictStatus


@dataclass(frozen=True, kw_only=True)
class Report:
    # MLE-bench's
    competition_id: str
    score: float | None
    gold_threshold: float
    silver_threshold: float
    bronze_threshold: float
    median_threshold: float
    any_medal: bool
    gold_medal: bool
    silver_medal: bool
    bronze_medal: bool
    above_median: bool
    submission_exists: bool
    valid_submission: bool
    is_lower_better: bool
    created_at: str  # ISO 8601
    submission_path: str
    # further
    run: str = ""  # which of several runs of the same task
    metric: str = ""
    status: str = ""  # absent, unreadable, invalid or graded
    reason: str = ""  # why it has no score, or a remark
    reason_code: str = ""  # the entry of the catalogue
    reason_column: str = ""
    reason_line: int = 0
    reason_count: int = 0
    standard_error: float | None = None  # of the score, over the test rows
    next_medal: str = ""  # the nearest that was not reached, with its threshold's distance in the metric's unit
    next_distance: float | None = None
    ties: Mapping[str, int] = field(default_factory=dict)  # medal -> teams of the private board AT its threshold
    places: Mapping[str, Sequence[int]] = field(default_factory=dict)  # board -> [place, teams]
    human_rank: float | None = None  # mean position score over the boards; 0 without a valid submission
    thresholds_from: str = ""
    task_digest: str = ""


def report(
    task: Task,
    verdict: Verdict,
    refusal: Refusal | None = None,
    standard_error: float | None = None,
    *,
    path: str = "",
    run: str = "",
    created_at: str = "",
) -> Report:
    """The report of one verdict on a submission of `task`, read from `path`. `created_at` is now by default."""
    lines, lower = task.thresholds, task.lower_is_better
    cleaned = {name: clean(rows, lower) for name, rows in boards(task).items()}
    return Report(
        competition_id=task.id,
        score=verdict.score,
        gold_threshold=lines.gold,
        silver_threshold=lines.silver,
        bronze_threshold=lines.bronze,
        median_threshold=lines.median,
        any_medal=verdict.medal > Medal.NONE,
        gold_medal=verdict.medal is Medal.GOLD,
        silver_medal=verdict.medal is Medal.SILVER,
        bronze_medal=verdict.medal is Medal.BRONZE,
        above_median=verdict.above_median,
        submission_exists=verdict.status is not VerdictStatus.ABSENT,
        valid_submission=verdict.status is VerdictStatus.GRADED,
        is_lower_better=lower,
        created_at=created_at or datetime.now(UTC).isoformat(timespec="seconds"),
        submission_path=path,
        run=run,
        metric=task.metric,
        status=verdict.status.value,
        reason=verdict.reason,
        standard_error=standard_error,
        thresholds_from=task.thresholds_from,
        task_digest=digest(task),
        **_refused(refusal),
        **_standing(task, verdict.score, cleaned),
    )


def _refused(refusal: Refusal | None) -> dict[str, Any]:
    if refusal is None or refusal.code is None:
        return {}
    return {
        "reason_code": refusal.code.name.lower(),
        "reason_column": refusal.column,
        "reason_line": refusal.line,
        "reason_count": refusal.count,
    }


def _standing(task: Task, score: float | None, cleaned: Mapping[str, Board]) -> dict[str, Any]:
    """Where the score stands among humans and between the thresholds."""
    lower, lines = task.lower_is_better, task.thresholds
    told: dict[str, Any] = {}
    if "private" in cleaned:
        told["ties"] = {name: ties(getattr(lines, name), cleaned["private"]) for name in ("gold", "silver", "bronze")}
    if score is None:
        return told | {"human_rank": 0.0 if cleaned else None}
    if gap := next_medal(score, lines, lower):
        told |= {"next_medal": gap.medal.name.lower(), "next_distance": gap.distance}
    told["places"] = {name: list(position(score, board, lower)) for name, board in cleaned.items()}
    return told | {"human_rank": human_rank(score, cleaned, lower)}


# ---------------------------------------------------------------- JSON
def to_json(one: Report) -> dict[str, Any]:
    return asdict(one)


def from_json(data: Mapping[str, Any]) -> Report:
    """The record behind `to_json`, or behind a report of MLE-bench. Raises ValueError naming a missing field."""
    known = {each.name for each in fields(Report)}
    try:
        return Report(**{name: value for name, value in data.items() if name in known})
    except TypeError as error:
        raise ValueError(f"not a grading report: {error}") from error


# ---------------------------------------------------------------- many
def aggregate(reports: Sequence[Report], tasks: Sequence[str]) -> dict[str, Any]:
    """MLE-bench's totals and, over runs, the share of `tasks` with a medal.

    A task that a run has no report on counts as a failure of that run, and is named under `padded`. Raises ValueError
    for two reports of one task in one run, and for a report on a task that is not in `tasks`.
    """
    runs = sorted({one.run for one in reports})
    seen = {(one.run, one.competition_id): one for one in reports}
    if len(seen) < len(reports):
        raise ValueError("two reports of one task in one run; name the runs apart")
    if foreign := sorted({one.competition_id for one in reports} - set(tasks)):
        raise ValueError(f"a report on {foreign[0]}, which is not one of the {len(tasks)} tasks")
    return {
        "total_runs": len(reports),
        "total_runs_with_submissions": sum(one.submission_exists for one in reports),
        "total_valid_submissions": sum(one.valid_submission for one in reports),
        "total_medals": sum(one.any_medal for one in reports),
        "total_gold_medals": sum(one.gold_medal for one in reports),
        "total_silver_medals": sum(one.silver_medal for one in reports),
        "total_bronze_medals": sum(one.bronze_medal for one in reports),
        "total_above_median": sum(one.above_median for one in reports),
        "tasks": len(tasks),
        "padded": [[run, id] for run in runs for id in tasks if (run, id) not in seen],
        "any_medal_percentage": _rate(seen, runs, tasks, "any_medal"),
        "gold_medal_percentage": _rate(seen, runs, tasks, "gold_medal"),
        "valid_percentage": _rate(seen, runs, tasks, "valid_submission"),
        "human_rank": _human_rank(reports),
        "competition_reports": [to_json(one) for one in reports],
    }


def _rate(
    seen: Mapping[tuple[str, str], Report], runs: Sequence[str], tasks: Sequence[str], name: str
) -> dict[str, Any]:
    counts = [sum(bool(getattr(seen.get((run, id)), name, False)) for id in tasks) for run in runs]
    return {"runs": dict(zip(runs, counts, strict=True)), **_spread([100.0 * k / len(tasks) for k in counts])}


def _human_rank(reports: Sequence[Report]) -> dict[str, Any] | None:
    """In percent, over all reports on tasks that have a board."""
    ranks = [one.human_rank for one in reports if one.human_rank is not None]
    return {"reports": len(ranks), "mean": 100.0 * statistics.fmean(ranks)} if ranks else None


def _spread(values: Sequence[float]) -> dict[str, Any]:
    """`mean_and_error` and the 95 % interval of the normal."""
    found = mean_and_error(values)
    mean, sem = found["mean"], found["sem"]
    return {**found, "interval": None if mean is None or sem is None else [mean - 1.96 * sem, mean + 1.96 * sem]}


def mean_and_error(values: Sequence[float]) -> dict[str, float | None]:
    """`mean`, and its standard error `sem` (ddof = 1): of a single run it is unknown (None), not zero."""
    mean = statistics.fmean(values) if values else None
    return {"mean": mean, "sem": statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None}
