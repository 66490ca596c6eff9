"""A task folder around a drawn case of any metric, and files that answer it."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from metric_cases import VARIANTS, Case, draw

from mlexpert.tasks.metrics import METRICS, Needs, perfect, spell
from mlexpert.tasks.seal import write
from mlexpert.tasks.task import Facts, Provenance, Split, Task, Thresholds

ROWS = 3  # at least


def case_of(name: str, variant: int) -> Case:
    """The first drawn case that is large enough."""
    cases = (draw(name, variant, np.random.default_rng((variant, seed))) for seed in range(100))
    return next(case for case in cases if case.answers.rows >= ROWS)


def columns_of(case: Case) -> list[str]:
    n_targets, n_labels = len(case.targets), len(case.labels)
    wanted = case.metric.columns(n_targets, n_labels)
    if wanted == n_targets:
        return [f"t{at}" for at in range(n_targets)]
    return list(case.labels) if wanted == n_labels else [f"p{at}" for at in range(wanted)]


def spelled(case: Case, values: Any) -> list[list[str]]:
    if case.metric.needs is Needs.LABELS or values.ndim == 1:
        return [spell(case.metric.needs, values, case.labels)]
    return [spell(case.metric.needs, values[:, at], case.labels) for at in range(values.shape[1])]


def best_of(case: Case) -> list[list[str]]:
    return spelled(case, perfect(case.metric, case.answers, len(case.labels)))


def text_of(ids: list[str], names: list[str], columns: list[list[str]]) -> str:
    file = io.StringIO(newline="")
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["id", *names])
    rows.writerows(zip(ids, *columns, strict=True))
    return file.getvalue()


def make_task(folder: Path, name: str, variant: int, **more: Any) -> tuple[Task, Case]:
    """Sample submission: the drawn predictions. Ids r0, r1, ..."""
    case = case_of(name, variant)
    ids, targets = [f"r{row}" for row in range(case.answers.rows)], [f"t{at}" for at in range(len(case.targets))]
    answers = pd.DataFrame({"id": ids, **dict(zip(targets, case.targets, strict=True))})
    for role, cells in case.beside.items():
        for at, column in enumerate(cells if isinstance(cells[0], list) else [cells]):
            answers[f"{role}:{at}"] = column
    facts = Facts(
        id=f"{name}-{variant}".replace("_", "-"), modality="tabular", domain="tests", metric=name,
        settings=VARIANTS[name][variant][0], id_column="id", target_columns=tuple(targets), labels=case.labels,
        provenance=Provenance("test", "", "none", True, name), split=Split("generated", 0, 0.5),
        thresholds_from="reference solutions",
    )  # fmt: skip
    lower = METRICS[name].lower_is_better
    lines = Thresholds(0.1, 0.2, 0.3, 0.4, 0.5) if lower else Thresholds(0.9, 0.8, 0.7, 0.6, 0.5)
    sample = pd.DataFrame(
        {"id": ids, **dict(zip(columns_of(case), spelled(case, case.predictions), strict=True))}, dtype=object
    )
    task = write(
        folder, facts, lines, description="# Any\n", train=answers.head(2), test=pd.DataFrame({"id": ids}),
        sample=sample, answers=answers, **more,
    )  # fmt: skip
    return task, case
