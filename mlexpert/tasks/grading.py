"""What an answer is worth: intake against the public sample, then the metric against the hidden answers.

A `Grader` holds the answers of one task in memory and turns a path into a `Verdict`. Whatever is in the file, the
result is a verdict: one bad file never stops a batch. Errors of the task itself raise `TaskError` at construction.
"""

from __future__ import annotations

import csv
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from mlexpert.tasks.intake import Form, Predictions, Reason, Refusal, label_codes, read_submission
from mlexpert.tasks.medals import above_median, medal_for, quality
from mlexpert.tasks.metrics import METRICS, Needs, UndefinedMetric, encode
from mlexpert.tasks.task import ANSWERS, SAMPLE, Task, TaskError, column, header
from mlexpert.types import Medal, Verdict, VerdictStatus


def form_of(task: Task) -> Form:
    """The public form a submission must fill, read from the sample submission. Raises TaskError if that is unusable."""
    path = task.public / SAMPLE
    ids = tuple(column(path, task.id_column))
    form = Form(
        id_column=task.id_column,
        columns=tuple(name for name in header(path) if name != task.id_column),
        ids=ids,
        place={id: at for at, id in enumerate(ids)},
        needs=METRICS[task.metric].needs,
        codes=label_codes(task.labels),
    )
    sample = read_submission(path, form)
    if isinstance(sample, Refusal):
        raise TaskError(f"{path}: the sample submission is not valid itself ({sample.reason}); make the task again")
    return replace(form, sample=sample.values)


class Grader:
    """Grades files for one task; `grade` is pure and safe to call from several threads."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.metric = METRICS[task.metric]
        self.form = form_of(task)
        self.truth_R = _truth(task, self.form)

    def grade(self, path: Path | None) -> Verdict:
        """The verdict on the submission at `path` (None: nothing was handed in). Score at full precision."""
        submission = read_submission(path, self.form)
        if isinstance(submission, Refusal):
            return Verdict(submission.status, submission.reason, lower_is_better=self.task.lower_is_better)
        return self._value(submission)

    def _value(self, submission: Predictions) -> Verdict:
        lower, thresholds = self.task.lower_is_better, self.task.thresholds
        score = float(self.metric.score(self.truth_R, submission.values, len(self.task.labels)))
        if not math.isfinite(score):
            return Verdict(VerdictStatus.INVALID, Reason.UNDEFINED.value, lower_is_better=lower)
        return Verdict(
            status=VerdictStatus.GRADED,
            reason=submission.note,
            score=score,
            medal=medal_for(score, thresholds, lower),
            above_median=above_median(score, thresholds, lower),
            lower_is_better=lower,
            quality=quality(score, thresholds, lower),
        )


def _truth(task: Task, form: Form) -> np.ndarray:
    """Answers in the order of the form's ids."""
    path = task.private / ANSWERS
    answers = dict(zip(column(path, task.id_column), column(path, task.target_column), strict=True))
    if answers.keys() != form.place.keys():
        raise TaskError(f"{path}: its ids are not those of the sample submission; make the task again")
    metric = METRICS[task.metric]
    try:
        truth_R = encode(metric, [answers[id] for id in form.ids], task.labels)
        metric.check(truth_R, task.labels)
    except UndefinedMetric as error:
        raise TaskError(f"{path}: {error}; make the task again") from error
    return truth_R


def probe(task: Task) -> tuple[Verdict, Verdict]:
    """Verdicts on the sample submission and on the perfect answers: the check that a new task can be graded.

    Raises TaskError if the sample does not score what the thresholds say it does, or perfection is not gold.
    """
    grader = Grader(task)
    with tempfile.TemporaryDirectory() as folder:
        perfect_path = Path(folder) / "perfect.csv"
        _write_perfect(perfect_path, grader)
        sample, perfect = grader.grade(task.public / SAMPLE), grader.grade(perfect_path)
    expected = task.thresholds.sample
    if sample.score is None or not math.isclose(sample.score, expected, rel_tol=1e-6, abs_tol=1e-9):
        raise TaskError(f"task {task.id}: the sample scores {sample.score}, its threshold says {expected}")
    if perfect.medal is not Medal.GOLD:
        raise TaskError(f"task {task.id}: perfect answers score {perfect.score} ({perfect.reason or 'below gold'})")
    return sample, perfect


def _write_perfect(path: Path, grader: Grader) -> None:
    form, labels, truth_R = grader.form, grader.task.labels, grader.truth_R
    if form.needs is Needs.LABEL:
        cells = [[labels[code]] for code in truth_R]
    elif len(form.columns) > 1:
        cells = np.eye(len(labels))[truth_R].tolist()
    else:
        cells = [[value] for value in truth_R.tolist()]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([form.id_column, *form.columns])
        writer.writerows([id, *row] for id, row in zip(form.ids, cells, strict=True))
