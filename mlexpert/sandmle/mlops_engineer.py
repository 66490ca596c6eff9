"""MLOps Engineer: puts a task on disk and proves its evaluator on the two submissions whose scores are known."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from mlexpert.sandmle.data_strategist import Spec
from mlexpert.sandmle.mle_developer import Ladder, Tables
from mlexpert.tasks import task as tasks
from mlexpert.tasks.grading import probe
from mlexpert.tasks.task import Task


def deploy(folder: Path, spec: Spec, data: Tables, ladder: Ladder, description: str) -> Task:
    """Writes the task folder (whole or not at all) and checks its grading. Raises TaskError."""
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
    probe(task)
    return task
