"""What a task's answers are to its metric, and which columns a submission predicts, in the metric's order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mlexpert.tasks.metrics import Answers, Metric, Needs, UndefinedMetric, read_answers
from mlexpert.tasks.tables import TaskError, read_cells
from mlexpert.tasks.task import SAMPLE, Facts, metric_of


def predicted_columns(facts: Facts, names: Sequence[str]) -> tuple[str, ...]:
    """`names` of the sample submission (its id left out) in the order in which the metric takes them.

    They are the target columns, or all labels where one column per label is predicted; where a metric wants several
    columns for one target (quantiles, a value and its confidence) their names are free and the sample's order counts.
    Raises TaskError if the sample asks for anything else.
    """
    metric, targets, labels = metric_of(facts), facts.target_columns, facts.labels
    wanted = metric.columns(len(targets), len(labels))
    by_label = len(targets) == 1 and metric.needs in (Needs.SCORE, Needs.PROBABILITY) and len(labels) > 1
    if sorted(names) == sorted(targets) and wanted == len(targets):
        return targets
    # Of two labels a probability each is as good as one for the last.
    both = metric.needs is Needs.PROBABILITY and len(labels) == 2
    if by_label and sorted(names) == sorted(labels) and (wanted == len(labels) or both):
        return labels
    expected = labels if by_label and wanted == len(labels) else targets if wanted == len(targets) else ()
    if expected or len(names) != wanted or len(set(names)) != wanted:
        raise TaskError(f"{SAMPLE} asks for {list(names)}, not for {list(expected) or f'{wanted} columns'}")
    return tuple(names)


def _roles_of(facts: Facts, names: Iterable[str]) -> dict[str, list[str]]:
    """Role -> the columns of answers.csv that play it: those that are neither the id nor a target."""
    roles: dict[str, list[str]] = {}
    for name in names:
        if name != facts.id_column and name not in facts.target_columns:
            roles.setdefault(name.partition(":")[0], []).append(name)
    return roles


def hidden_answers(facts: Facts, path: Path, ids: Sequence[str]) -> Answers:
    """The answers in file `path`, in the order of `ids`, checked against the metric. Raises TaskError."""
    cells = read_cells(path)
    if missing := [name for name in (facts.id_column, *facts.target_columns) if name not in cells]:
        raise TaskError(f"{path.name} has no column {missing[0]!r}; it has {list(cells)}")
    found = cells[facts.id_column]
    if found != list(ids):
        place = dict(zip(found, range(len(found)), strict=True))
        if len(place) != len(found) or place.keys() != set(ids):
            raise TaskError(f"the ids of {path.name} are not those of {SAMPLE}, each once")
        order = [place[id] for id in ids]
        cells = {name: [column[at] for at in order] for name, column in cells.items()}
    roles = {role: _role(cells, names) for role, names in _roles_of(facts, cells).items()}
    return _checked(metric_of(facts), facts, cells, roles)


def _role(cells: Mapping[str, list[str]], names: list[str]) -> list:
    return cells[names[0]] if len(names) == 1 else [cells[name] for name in names]


def _checked(metric: Metric, facts: Facts, cells: Mapping[str, list[str]], roles: Mapping[str, list]) -> Answers:
    try:
        return read_answers(metric, [cells[name] for name in facts.target_columns], facts.labels, roles)
    except UndefinedMetric as error:
        raise TaskError(f"the answers of task {facts.id}: {error}") from error
