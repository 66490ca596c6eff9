"""The sample submission of a made task: the constant solution, in the very form that the grader reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from mlexpert.factory.beliefs import Goal, nothing, predictions
from mlexpert.factory.records import Quarantine
from mlexpert.factory.solutions import solve, without_inputs
from mlexpert.factory.targets import Learnt
from mlexpert.tasks.grading import write_submission
from mlexpert.tasks.hidden import predicted_columns
from mlexpert.tasks.intake import Form, label_codes
from mlexpert.tasks.metrics import rows_sum_to_one
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import SAMPLE, Facts, metric_of

DIGITS = 6  # significant ones of a sample's numbers


def write_sample(folder: Path, facts: Facts, learnt: Learnt, ids: Sequence[str]) -> None:
    """Writes `sample_submission.csv` for the test rows `ids`. Raises Quarantine if the metric takes no constant."""
    metric = metric_of(facts)
    if learnt.goal is Goal.SHAPES:
        values = nothing(metric.needs, len(ids))
    else:
        belief = learnt.back(solve("constant", without_inputs(learnt, len(facts.labels), len(ids)), {}))
        values = predictions(metric, belief, learnt.names, _residuals(learnt))
    try:
        form = form_of(facts, columns_of(facts), ids)
        write_submission(folder / SAMPLE, form, facts.labels, rounded(values))
    except (ValueError, TaskError) as error:
        raise Quarantine("build", f"no sample submission can be made for {facts.metric}: {error}") from error


def columns_of(facts: Facts) -> list[str]:
    """What a made task asks for: its targets, a column per label, or numbered ones where a metric takes several."""
    n_targets, n_labels = len(facts.target_columns), len(facts.labels)
    wanted = metric_of(facts).columns(n_targets, n_labels)
    if wanted == n_targets:
        return list(facts.target_columns)
    if wanted == n_labels:
        return list(facts.labels)
    return [f"{facts.target_columns[0]}_{at + 1}" for at in range(wanted)]


def form_of(facts: Facts, names: Sequence[str], ids: Sequence[str]) -> Form:
    """The form of a submission with these columns and rows. Raises TaskError if the metric wants other columns."""
    metric = metric_of(facts)
    return Form(
        id_column=facts.id_column,
        columns=predicted_columns(facts, names),
        ids=tuple(ids),
        place={id: at for at, id in enumerate(ids)},
        needs=metric.needs,
        codes=label_codes(facts.labels),
        sum_to_one=rows_sum_to_one(metric, len(facts.target_columns), len(facts.labels)),
    )


def rounded(values: np.ndarray) -> np.ndarray:
    """Numbers with DIGITS significant digits, the same on every machine; anything else as it is."""
    if sparse.issparse(values) or values.dtype.kind != "f":
        return values
    return np.array([float(f"{value:.{DIGITS}g}") for value in values.ravel().tolist()]).reshape(values.shape)


def _residuals(learnt: Learnt) -> np.ndarray:
    """What the constant misses on the training rows."""
    if learnt.goal is not Goal.NUMBERS:
        return np.empty((0, 0))
    middle = np.median if learnt.absolute else np.mean
    return learnt.back(learnt.values) - learnt.back(middle(learnt.values, axis=0))
