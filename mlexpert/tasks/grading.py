"""What an answer is worth: intake against the public sample, then the metric against the hidden answers.

A `Grader` holds the answers of one task in memory and turns a path into a `Verdict`. Whatever is in the file, the
result is a verdict: one bad file never stops a batch. Errors of the task itself raise `TaskError` at construction.
Whether a submission is valid follows from the submission, its public form and the metric's settings alone, also where
the metric is what refuses it; the reason may be shown to the policy.
"""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlexpert.tasks.hidden import hidden_answers, predicted_columns
from mlexpert.tasks.intake import Form, Predictions, label_codes, line_of, read_submission
from mlexpert.tasks.medals import above_median, medal_for, quality
from mlexpert.tasks.metrics import (
    Answers,
    InvalidPrediction,
    Metric,
    Needs,
    evaluate,
    perfect,
    rows_sum_to_one,
    spell,
)
from mlexpert.tasks.metrics.record import NUMERIC
from mlexpert.tasks.reasons import Reason, Refusal, invalid
from mlexpert.tasks.tables import TaskError, column, header
from mlexpert.tasks.task import ANSWERS, SAMPLE, Task, metric_of
from mlexpert.types import Medal, Verdict, VerdictStatus


def form_of(task: Task) -> Form:
    """The public form a submission must fill, read from the sample submission. Raises TaskError if that is unusable."""
    path, metric = task.public / SAMPLE, metric_of(task)
    ids = tuple(column(path, task.id_column))
    predicted = predicted_columns(task, [name for name in header(path) if name != task.id_column])
    form = Form(
        id_column=task.id_column,
        columns=predicted,
        ids=ids,
        place={id: at for at, id in enumerate(ids)},
        needs=metric.needs,
        codes=label_codes(task.labels),
        sum_to_one=_is_distribution(task, metric, predicted),
    )
    sample = read_submission(path, form)
    if isinstance(sample, Refusal):
        raise TaskError(f"{path}: the sample submission is not valid itself ({sample.reason}); make the task again")
    return replace(form, sample=sample.values)


def _is_distribution(task: Task, metric: Metric, columns: Sequence[str]) -> bool:
    """Whether the columns of a row are shares of 1: one per label (also of two labels), or shares as answers."""
    both = metric.needs is Needs.PROBABILITY and len(columns) == 2 and tuple(columns) == task.labels
    return both or rows_sum_to_one(metric, len(task.target_columns), len(task.labels))


@dataclass(frozen=True)
class Assessment:
    """A verdict and what it rests on. Only `verdict.reason` may be shown to the policy."""

    verdict: Verdict
    refusal: Refusal | None = None  # None for a graded submission
    predictions: Predictions | None = None


class Grader:
    """Grades files for one task; `grade` is pure and safe to call from several threads."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.metric = metric_of(task)
        self.form = form_of(task)
        self.answers = hidden_answers(task, task.private / ANSWERS, self.form.ids)

    def grade(self, path: Path | None) -> Verdict:
        """The verdict on the submission at `path` (None: nothing was handed in). Score at full precision."""
        return self.assess(path).verdict

    def assess(self, path: Path | None) -> Assessment:
        """The same with the catalogued reason, or the predictions that were graded."""
        lower = self.task.lower_is_better
        submission = read_submission(path, self.form)
        if isinstance(submission, Predictions):
            graded = self._graded(submission)
            if isinstance(graded, Verdict):
                return Assessment(graded, predictions=submission)
            submission = graded
        return Assessment(Verdict(submission.status, submission.reason, lower_is_better=lower), submission)

    def _graded(self, submission: Predictions) -> Verdict | Refusal:
        lower, thresholds, n_labels = self.task.lower_is_better, self.task.thresholds, len(self.task.labels)
        try:
            _check_every_row(self.metric, self.answers, submission.values, n_labels)
            score = evaluate(self.metric, self.answers, submission.values, n_labels)
        except InvalidPrediction as error:
            return _refused(error, submission)
        return Verdict(
            status=VerdictStatus.GRADED,
            reason=submission.note,
            score=score,
            medal=medal_for(score, thresholds, lower),
            above_median=above_median(score, thresholds, lower),
            lower_is_better=lower,
            quality=quality(score, thresholds, lower),
        )


def _check_every_row(metric: Metric, answers: Answers, values: Any, n_labels: int) -> None:
    """Rows that do not count, and the groups, are hidden: which row is found bad must not depend on them.

    Of numbers only: whether a mask or an order of items is possible depends on its own row, which is empty where it
    does not count.
    """
    seen = {role: column for role, column in answers.beside.items() if role in metric.roles}
    if len(seen) == len(answers.beside) or metric.needs not in NUMERIC:
        return
    try:
        evaluate(metric, Answers(answers.values, seen), values, n_labels)
    except InvalidPrediction as error:
        if error.row is not None:
            raise


def _refused(error: InvalidPrediction, submission: Predictions) -> Refusal:
    if error.row is None:
        return invalid(Reason.UNDEFINED).refusal
    line = line_of(submission, error.row)
    return invalid(Reason.CELL, line, error.problem, line=line, count=1).refusal


def probe(grader: Grader) -> tuple[Verdict, Verdict]:
    """Verdicts on the sample submission and on the perfect answers: the check that a new task can be graded.

    Raises TaskError if the sample does not score what the thresholds say it does, or perfection is not gold.
    """
    task = grader.task
    with tempfile.TemporaryDirectory() as folder:
        perfect_path = Path(folder) / "perfect.csv"
        write_submission(perfect_path, grader.form, task.labels, best(grader))
        sample, perfection = grader.grade(task.public / SAMPLE), grader.grade(perfect_path)
    expected = task.thresholds.sample
    if sample.score is None or not math.isclose(sample.score, expected, rel_tol=1e-6, abs_tol=1e-9):
        raise TaskError(f"task {task.id}: the sample scores {sample.score}, its threshold says {expected}")
    if perfection.medal is not Medal.GOLD:
        told = f"{perfection.score} ({perfection.reason or 'below gold'})"
        raise TaskError(f"task {task.id}: perfect answers score {told}")
    return sample, perfection


def best(grader: Grader) -> Any:
    """Predictions that get the best score there is."""
    return perfect(grader.metric, grader.answers, len(grader.task.labels))


def write_submission(path: Path, form: Form, labels: Sequence[str], values: Any) -> None:
    """A submission that holds `values`, in the shape of `Predictions.values`."""
    columns = [spell(form.needs, values, tuple(labels))] if len(form.columns) == 1 else _spelled(form, values)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([form.id_column, *form.columns])
        writer.writerows(zip(form.ids, *columns, strict=True))


def _spelled(form: Form, values: Any) -> list[list[str]]:
    """Several columns: numbers, or 0 and 1 where sets of labels are written as one column per label."""
    if form.needs is Needs.LABELS:
        return [list(map(str, column)) for column in values.toarray().T.tolist()]
    return [spell(form.needs, column) for column in values.T]
