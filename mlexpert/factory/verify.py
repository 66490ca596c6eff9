"""A sealed task is graded the way a policy's files will be, on submissions whose worth is known.

    the sample submission     scores what the thresholds say, and is valid
    reference solutions       score from their files what they scored from their arrays
    learning pays             a linear or a boosted solution beats the constant
    perfect answers           win gold, and nothing beats them
    shuffled perfect answers  are worse than the best solution: the ids really align

Raises Quarantine("verify", ...) for the first that fails; what is merely odd comes back as findings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mlexpert.factory.records import Finding, Quarantine
from mlexpert.factory.reference import SAMPLE_SCORE
from mlexpert.factory.thresholds import best, gain, solved
from mlexpert.tasks.grading import Grader, probe
from mlexpert.tasks.grading import best as perfect_predictions
from mlexpert.tasks.metrics import InvalidPrediction, evaluate
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import Task
from mlexpert.types import VerdictStatus

SHUFFLES = 5
WEAK = 0.01  # share of the constant's score by which the best solution should beat it
LEARNERS = ("linear", "boosted")


def verify(task: Task, scores: Mapping[str, float], submissions: Path) -> list[Finding]:
    """Findings about a task whose reference solutions, in files below `submissions`, got `scores`."""
    try:
        grader = Grader(task)
        probe(grader)
    except TaskError as error:
        raise Quarantine("verify", f"{error}") from error
    _check_files(grader, scores, submissions)
    top = _check_perfect(grader, scores)
    return [*_check_learning(grader, scores), *_check_shuffled(grader, scores, top)]


def _check_files(grader: Grader, scores: Mapping[str, float], submissions: Path) -> None:
    for name, expected in scores.items():
        if name == SAMPLE_SCORE:
            continue
        verdict = grader.grade(submissions / f"{name}.csv")
        if verdict.status is not VerdictStatus.GRADED or verdict.score is None:
            raise Quarantine("verify", f"the submission of the {name!r} solution is not valid: {verdict.reason}")
        if not math.isclose(verdict.score, expected, rel_tol=1e-6, abs_tol=1e-9):
            raise Quarantine(
                "verify",
                f"the {name!r} solution scores {verdict.score:g} as a file, {expected:g} as numbers: cells are rounded",
            )


def _check_perfect(grader: Grader, scores: Mapping[str, float]) -> float:
    """The score of perfect answers, if nothing beats it."""
    top = evaluate(grader.metric, grader.answers, perfect_predictions(grader), len(grader.task.labels))
    for name, score in scores.items():
        if gain(grader.metric, score, top) > 1e-9 * max(1.0, abs(top)):
            raise Quarantine(
                "verify",
                f"the {name!r} solution scores {score:g}, perfect answers {top:g}: the metric's direction is wrong",
                kind="direction",
            )
    return top


def _check_learning(grader: Grader, scores: Mapping[str, float]) -> list[Finding]:
    if not solved(scores):
        return [
            Finding("no_reference", "warn", f"no reference solution applies to {grader.task.metric} on these tables")
        ]
    (name, ours), constant = best(grader.metric, scores), scores[SAMPLE_SCORE]
    if gain(grader.metric, ours, constant) <= 0:
        raise Quarantine(
            "verify",
            f"no solution beats a constant ({constant:g}; best: {name} {ours:g}): the inputs say nothing of the "
            "target, the ids do not align, or the metric's direction is wrong",
            kind="nothing_learnt",
        )
    findings = []
    worse = [each for each in LEARNERS if each in scores and gain(grader.metric, scores[each], constant) < 0]
    if worse:
        told = ", ".join(f"{each} {scores[each]:g}" for each in worse)
        findings.append(Finding("order", "warn", f"worse than a constant ({constant:g}): {told}"))
    share = gain(grader.metric, ours, constant) / max(abs(constant), 1e-12)
    if share < WEAK:
        text = f"the best solution ({name} {ours:g}) beats a constant ({constant:g}) by {share:.2%} only"
        findings.append(Finding("weak_signal", "warn", text, value=share))
    return findings


def _check_shuffled(grader: Grader, scores: Mapping[str, float], top: float) -> list[Finding]:
    """Perfect answers given to the wrong rows; a shuffle that is no valid prediction is bad enough."""
    perfect, rng = perfect_predictions(grader), np.random.default_rng(0)
    found = []
    for _ in range(SHUFFLES):
        shuffled = perfect[rng.permutation(perfect.shape[0])]
        try:
            found.append(evaluate(grader.metric, grader.answers, shuffled, len(grader.task.labels)))
        except InvalidPrediction:
            continue
    if not found:
        return []
    score = float(np.mean(found))
    bar = best(grader.metric, scores)[1] if solved(scores) else top
    if gain(grader.metric, score, bar) >= 0:
        raise Quarantine(
            "verify",
            f"perfect answers in the wrong rows score {score:g}, the best solution {bar:g}: rows or ids do not matter "
            "to this metric, or too few test rows differ",
        )
    return [Finding("shuffled", "note", f"perfect answers in the wrong rows score {score:g}", value=score)]
