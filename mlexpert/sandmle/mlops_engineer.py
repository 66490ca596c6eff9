"""MLOps Engineer: puts a task on disk and proves its evaluator on the two submissions whose scores are known."""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict
from pathlib import Path

from mlexpert.sandmle.data_strategist import Spec
from mlexpert.sandmle.mle_developer import Ladder, Tables
from mlexpert.tasks import task as tasks
from mlexpert.tasks.grading import Grader
from mlexpert.tasks.task import Task
from mlexpert.types import Medal, VerdictStatus


class EvaluatorError(Exception):
    """A freshly written task does not grade its own sample or its own answers as it must."""


def deploy(folder: Path, spec: Spec, data: Tables, ladder: Ladder, description: str) -> Task:
    """Writes the task folder (whole or not at all) and checks its grading. Raises EvaluatorError or TaskError."""
    task = tasks.write(
        folder,
        id=spec.id,
        kind=spec.kind,
        domain=spec.domain,
        metric=spec.metric,
        id_column="id",
        target_column=spec.target,
        labels=spec.labels,
        thresholds=ladder.thresholds,
        seed=spec.entropy[1],
        family=spec.family,
        description=description,
        train=data.train,
        test=data.test,
        sample=data.sample,
        answers=data.answers,
        notes={"ladder": dict(ladder.scores), "called_for": ladder.called_for, "spec": asdict(spec)},
    )
    prove(task)
    return task


def prove(task: Task) -> None:
    """The sample submission must score what the ladder's constant scored, and no medal; the answers must win gold."""
    grader = Grader(task)
    sample = grader.grade(task.public / tasks.SAMPLE)
    if sample.status is not VerdictStatus.GRADED or sample.score is None:
        raise EvaluatorError(f"task {task.id}: its sample submission is {sample.status}: {sample.reason}")
    if not math.isclose(sample.score, task.thresholds.sample, rel_tol=1e-6) or sample.medal is not Medal.NONE:
        raise EvaluatorError(f"task {task.id}: its sample scores {sample.score}, expected {task.thresholds.sample}")
    with tempfile.TemporaryDirectory() as scratch:
        perfect = Path(scratch) / "submission.csv"
        perfect.write_bytes((task.private / tasks.ANSWERS).read_bytes())
        verdict = grader.grade(perfect)
    if verdict.medal is not Medal.GOLD:
        raise EvaluatorError(f"task {task.id}: its own answers are {verdict.status}, medal {verdict.medal.name}")
