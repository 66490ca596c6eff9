"""What the task says about itself, held against its tables: described labels, the recipe of its split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlexpert.factory.columns import times_of
from mlexpert.factory.leaks.view import View
from mlexpert.factory.records import Finding
from mlexpert.tasks.metrics import Needs
from mlexpert.tasks.tables import header
from mlexpert.tasks.task import SAMPLE, description, metric_of


def labels(view: View) -> Iterator[Finding]:
    """Answers that a policy cannot know of: in no train row, no column of the sample and no word of the description."""
    kind = metric_of(view.task).answers
    if kind not in (Needs.LABEL, Needs.LABELS) or view.train is None:
        return
    told = description(view.task)
    sample = set(header(view.task.public / SAMPLE))
    for name in view.task.target_columns:
        apart = (lambda cell: cell.split()) if kind is Needs.LABELS else (lambda cell: [cell])
        known = {label for cell in view.train[name] for label in apart(cell)} | sample
        asked = [label for cell in view.answers[name] for label in apart(cell)]
        lost = sorted({label for label in asked if label not in known and label not in told})
        if lost:
            share = sum(label in set(lost) for label in asked) / len(asked)
            text = (
                f"{len(lost)} labels of {name!r} are answers ({share:.1%}) and stand neither in train nor in the "
                "description: merge rare labels, or split so that train has all of them"
            )
            yield Finding("labels", "refuse", text, name, share)


def groups(view: View) -> Iterator[Finding]:
    """Groups on both sides of a split by groups or by source."""
    by = view.task.split.by
    if view.task.split.recipe not in ("grouped", "source") or by not in view.features:
        return
    train, test = view.cells(by)
    both = set(train) & set(test)
    if both:
        share = sum(cell in both for cell in test) / len(test)
        text = f"{len(both)} groups of {by!r} stand on both sides ({share:.0%} of the test rows): split again"
        yield Finding("groups", "refuse", text, "", share)


def time_order(view: View) -> Iterator[Finding]:
    """Train rows that are later than test rows of a split by time."""
    by = view.task.split.by
    if view.task.split.recipe != "temporal" or by not in view.features:
        return
    train, test = view.cells(by)
    try:
        known, asked = times_of(train, test)
        late = float((known > np.nanmin(asked, initial=np.inf)).mean())
    except ValueError:  # what cannot be read as times is compared as text
        first = min(test)
        late = sum(moment > first for moment in train) / len(train)
    if late > 0:
        text = f"{late:.1%} of the train rows have a {by!r} after the first test row: split again"
        yield Finding("time_order", "refuse", text, "", late)
