"""WIRL: every execution result pays the window of tokens that led to it (MLExpert eq. 2).

    outcome                      reward
    execution error              -1.0            any end other than a clean exit: exception, timeout, memory, signal ...
    no submission                -0.6            ran, but the file is absent, unreadable or invalid
    valid, no medal              -0.4 + T
    bronze or silver              1.0 + T
    gold                          2.0 + T

The trend T is +0.2 / 0 / -0.2 when the score is better than / equal to / worse than that of the previous SCORED window
of the same episode; the first scored window has T = 0, and windows without a score leave the reference in place.
An infrastructure failure is not a result: crediting one is an error of the caller and raises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlexpert.types import Credit, ExecStatus, Medal, Outcome, Result, Verdict, VerdictStatus

REWARD = {
    Outcome.ERROR: -1.0,
    Outcome.NO_SUBMISSION: -0.6,
    Outcome.VALID: -0.4,
    Outcome.BRONZE: 1.0,
    Outcome.SILVER: 1.0,
    Outcome.GOLD: 2.0,
}
TREND = 0.2

_SCORED = {
    Medal.NONE: Outcome.VALID,
    Medal.BRONZE: Outcome.BRONZE,
    Medal.SILVER: Outcome.SILVER,
    Medal.GOLD: Outcome.GOLD,
}


def outcome(result: Result) -> Outcome:
    """What one execution came to.

    Raises:
      ValueError: the sandbox never ran the script, or a graded verdict has no finite score.
    """
    status = result.execution.status
    if status is ExecStatus.SETUP_FAILED:
        raise ValueError("an infrastructure failure has no outcome: fail its window instead of crediting it")
    if status is not ExecStatus.OK:
        return Outcome.ERROR
    if result.verdict.status is not VerdictStatus.GRADED:
        return Outcome.NO_SUBMISSION
    _score(result.verdict)
    return _SCORED[result.verdict.medal]


def credit(results: Sequence[Result], trend: bool = True) -> Credit:
    """Credit of the last of `results`, which are all results of one episode so far, oldest first.

    `trend=False` is the paper's ablation: T is 0 throughout.

    Raises:
      ValueError: `results` is empty or one of them cannot be credited (see `outcome`).
    """
    if not results:
        raise ValueError("no result to credit: a window closes with an execution result")
    outcomes = [outcome(result) for result in results]
    t = _trend(results, outcomes) if trend else 0.0
    return Credit(outcome=outcomes[-1], reward=REWARD[outcomes[-1]] + t, trend=t)


def _trend(results: Sequence[Result], outcomes: Sequence[Outcome]) -> float:
    scored = [r.verdict for r, o in zip(results, outcomes, strict=True) if o in _SCORED.values()]
    if outcomes[-1] not in _SCORED.values() or len(scored) < 2:
        return 0.0
    before, now = _score(scored[-2]), _score(scored[-1])
    if now == before:
        return 0.0
    return TREND if (now < before) == scored[-1].lower_is_better else -TREND


def _score(verdict: Verdict) -> float:
    if verdict.score is None or not math.isfinite(verdict.score):
        raise ValueError(f"a graded verdict needs a finite score, got {verdict.score}: the grader must call it invalid")
    return verdict.score
