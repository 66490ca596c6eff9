"""MLOps Engineer: puts a task on disk and proves its evaluator on the two submissions whose scores are known."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from mlexpert.sandmle.data_strategist import Spec
from mlexpert.sandmle.mle_developer import Ladder, Tables
from mlexpert.tasks.grading import Grader, probe
from mlexpert.tasks.seal import write
from mlexpert.tasks.task import Facts, Provenance, Split, Task


def deploy(folder: Path, spec: Spec, data: Tables, ladder: Ladder, description: str) -> Task:
    """Writes the task folder (whole or not at all) and checks its grading. Raises TaskError."""
    task = write(
        folder,
        facts(spec),
        ladder.thresholds,
        description=description,
        train=data.train,
        test=data.test,
        sample=data.sample,
        answers=data.answers,
        seed=spec.entropy[1],
        family=spec.family,
        notes={"ladder": dict(ladder.scores), "called_for": ladder.called_for, "spec": asdict(spec)},
    )
    probe(Grader(task))
    return task


def facts(spec: Spec) -> Facts:
    """Each task is a source of its own: its rule and its rows are drawn for it alone."""
    return Facts(
        id=spec.id,
        modality=spec.kind,
        domain=spec.domain,
        metric=spec.metric,
        id_column="id",
        target_columns=(spec.target,),
        labels=spec.labels,
        columns=columns(spec),
        provenance=Provenance("sandmle", "", "generated, free of rights", True, f"sandmle:{spec.id}"),
        split=Split("generated", spec.entropy[1], spec.n_test / (spec.n_train + spec.n_test)),
        thresholds_from="reference solutions",
    )


def columns(spec: Spec) -> dict[str, str]:
    kinds = {"id": "id"} | dict.fromkeys(spec.numeric, "number")
    if spec.category:
        kinds[spec.category] = "text" if spec.kind == "text" else "label"
    return kinds | {spec.target: "label" if spec.classification else "number"}
