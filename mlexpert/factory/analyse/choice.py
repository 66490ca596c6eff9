"""The metric of a task: the first that the prose names and the target can have, else the usual one for its kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlexpert.factory.analyse.metric import Named, named
from mlexpert.factory.analyse.roles import Roles
from mlexpert.factory.analyse.target import Target
from mlexpert.tasks.metrics import METRICS, Needs, UndefinedMetric, bind, number
from mlexpert.tasks.tables import GAPS

MANY = 20  # whole numbers of more different values than this are amounts, not classes
RUNS = re.compile(r"(\d+ \d+)( \d+ \d+)*")


@dataclass(frozen=True)
class Shape:
    """What the target looks like."""

    n_targets: int
    n_classes: int  # different values of the first target
    is_number: bool
    is_whole: bool
    is_class: bool
    is_text: bool
    is_runs: bool
    is_sets: bool  # several labels in a cell
    per_label: bool  # the sample submission has a column per label
    as_share: bool  # the sample submission holds numbers between 0 and 1 for labels


def shape(given: Roles, found: Target) -> Shape:
    cells = [cell for name in found.columns for cell in given.train.cells[name] if cell not in GAPS]
    values, numbers = set(cells), [number(cell) for cell in set(cells)]
    is_number = bool(numbers) and all(value == value for value in numbers)
    is_whole = is_number and all(value == int(value) for value in numbers)
    words = [cell.split() for cell in values]
    vocabulary = {word for row in words for word in row}
    several = not is_number and any(len(row) > 1 for row in words)
    is_runs = several and all(RUNS.fullmatch(cell) for cell in values)
    is_sets = several and not is_runs and len(vocabulary) < min(len(values), 500) and len(values) > 2
    is_text = several and not is_runs and not is_sets and len(values) > len(cells) / 2
    first = set(given.train.cells[found.columns[0]]) - GAPS
    asked = [
        cell
        for name, column in (given.sample.cells if given.sample else {}).items()
        if name != found.id_column
        for cell in column[:50]
    ]
    return Shape(
        n_targets=len(found.columns),
        n_classes=len(first),
        is_number=is_number,
        is_whole=is_whole,
        is_class=not (is_runs or is_sets or is_text) and (not is_number or (is_whole and len(first) <= MANY)),
        is_text=is_text,
        is_runs=is_runs,
        is_sets=is_sets,
        per_label=bool(found.labels),
        as_share=any("." in cell and 0 <= number(cell) <= 1 for cell in asked),
    )


def choose(given: Roles, found: Target, text: str) -> tuple[str, Mapping[str, Any]]:
    """Metric and settings."""
    seen = shape(given, found)
    for one in named(text):
        if (chosen := fitted(one, seen, given, found)) is not None:
            return chosen
    return usual(seen)


def fitted(one: Named, seen: Shape, given: Roles, found: Target) -> tuple[str, Mapping[str, Any]] | None:
    """The metric that `one` means for such a target, with the settings that the values decide; None if none."""
    name, settings = one.metric, dict(one.settings)
    if name == "f1" and seen.is_sets:
        return "multilabel_f", {"average": "samples"}
    if name == "f1" and seen.n_classes > 2:
        name = "macro_f1"
    if name == "auc" and seen.n_targets == 1 and seen.n_classes > 2 and seen.is_class:
        return "multiclass_auc", {"mode": "ovr"}
    if name == "f_beta":
        settings["average"] = "binary" if seen.n_classes == 2 else "macro"
    if name == "qwk" and seen.is_whole and seen.n_targets == 1:
        values = [int(number(cell)) for cell in given.train.cells[found.columns[0]] if cell not in GAPS]
        settings |= {"low": min(values), "high": max(values)}
    if name == "concordance":
        settings["predicts"] = "time"
    try:
        bind(METRICS[name], settings)
    except UndefinedMetric:  # the text leaves open what the metric needs to know
        return None
    return (name, settings) if _can_have(METRICS[name].answers, seen) and _counts(name, seen) else None


def _can_have(kind: Needs, seen: Shape) -> bool:
    return {
        Needs.LABEL: seen.is_class,
        Needs.NUMBER: seen.is_number,
        Needs.RATING: seen.is_whole,
        Needs.LABELS: seen.is_sets,
        Needs.RANKED: not seen.is_runs and not seen.is_text,
        Needs.TEXT: not seen.is_number,
        Needs.RUNS: seen.is_runs,
    }.get(kind, False)


def _counts(name: str, seen: Shape) -> bool:
    least, most = METRICS[name].targets
    return least <= seen.n_targets and (most is None or seen.n_targets <= most)


def usual(seen: Shape) -> tuple[str, Mapping[str, Any]]:
    """The metric that such a target mostly has."""
    if seen.is_sets:
        return "multilabel_f", {"average": "samples"}
    if seen.is_runs:
        return "dice", {}
    if seen.is_text:
        return "exact_match", {}
    if not seen.is_class:
        return "rmse", {}
    if seen.n_targets > 1:
        return ("auc", {}) if seen.n_classes == 2 else ("rmse", {}) if seen.is_number else ("logloss", {})
    if seen.per_label:
        return "logloss", {}
    return ("auc", {}) if seen.n_classes == 2 and seen.as_share else ("accuracy", {})
