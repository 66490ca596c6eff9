"""The hidden answers of a task as arrays: columns of text -> what the metric compares with.

Besides the target columns a task may name further columns of its answers, by role. Any metric takes two of them:

    keep    rows where it is 0 or false are not scored, and what they answer is not read (a phase that does not count,
            padding, rows without a label)
    group   the score is the mean of the groups' scores, each group counting the same

and some read roles of their own (`Metric.roles`): a weight, an event, the height and width of an image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from mlexpert.tasks.metrics.cells import BadCell, number, read, read_indicators
from mlexpert.tasks.metrics.record import NUMERIC, Metric, Needs, UndefinedMetric

KEEP, GROUP = "keep", "group"
_GROUPED = (GROUP, "volume")  # columns of names, not of numbers
_BOOLEANS = {"1": True, "true": True, "1.0": True, "0": False, "false": False, "0.0": False}


@dataclass(frozen=True)
class Answers:
    """Answers of R rows, in the order of the ids."""

    values: Any  # int64 codes_R or codes_RxT, float64 values_R or values_RxT, an object array or a CSR matrix of R rows
    beside: Mapping[str, np.ndarray] = field(default_factory=dict)  # role -> R numbers, flags or group codes; or RxM

    @property
    def rows(self) -> int:
        return self.values.shape[0]


def encode(metric: Metric, answers: Sequence[str], labels: Sequence[str]) -> Any:
    """One target column of answers as values (see `cells`). Raises UndefinedMetric naming the row."""
    kind = metric.answers
    if kind is Needs.LABELS and (blank := [label for label in labels if len(label.split()) != 1]):
        raise UndefinedMetric(f"label {blank[0]!r} cannot stand in a list that blanks separate")
    try:
        return read(kind, answers, {label: code for code, label in enumerate(labels)})
    except BadCell as error:
        text, row = answers[error.row], error.row + 1
        if kind is Needs.LABEL:
            raise UndefinedMetric(f"answer {text!r} in row {row} is not one of the labels {list(labels)}") from error
        if kind in NUMERIC:
            raise UndefinedMetric(f"answer {text!r} in row {row} is not a finite number") from error
        raise UndefinedMetric(f"answer {text[:60]!r} in row {row}: {error.problem}") from error


def read_answers(
    metric: Metric,
    targets: Sequence[Sequence[str]],
    labels: Sequence[str] = (),
    beside: Mapping[str, Sequence[str] | Sequence[Sequence[str]]] | None = None,
) -> Answers:
    """The answers behind a metric whose settings are bound, checked: there is a value, and the best one can be reached.

    `targets` holds one sequence of cells per target column, `beside` those of each role (a role may have several
    columns). Raises UndefinedMetric naming column and row.
    """
    beside = dict(beside or {})
    _check_lengths(targets, beside)
    if KEEP in beside:
        targets, beside = _blind(targets, beside)
    roles = {role: _role(role, cells) for role, cells in beside.items()}
    if unknown := sorted(roles.keys() - {KEEP, GROUP, *metric.roles}):
        raise UndefinedMetric(f"{metric.name} reads no {unknown[0]!r} column; it reads {[KEEP, GROUP, *metric.roles]}")
    if missing := [role for role in metric.required if role not in roles]:
        raise UndefinedMetric(f"{metric.name} needs a {missing[0]!r} column in the answers")
    answers = Answers(_values(metric, targets, labels), roles)
    for rows_G in parts(metric, answers):
        metric.check(answers.values[rows_G], labels, **own(metric, answers, rows_G))
    return answers


def parts(metric: Metric, answers: Answers) -> list[np.ndarray]:
    """Row numbers of each group that is scored by itself, groups in order, without rows that do not count."""
    rows_R = np.flatnonzero(answers.beside[KEEP]) if KEEP in answers.beside else np.arange(answers.rows)
    if GROUP not in answers.beside or GROUP in metric.roles:
        return [rows_R]
    groups_R = answers.beside[GROUP][rows_R]
    order_R = np.argsort(groups_R, kind="stable")
    borders = np.flatnonzero(np.diff(groups_R[order_R])) + 1
    return [rows_R[part] for part in np.split(order_R, borders)]


def own(metric: Metric, answers: Answers, rows_G: np.ndarray) -> dict[str, np.ndarray]:
    """The columns beside the target that the metric itself reads, for these rows."""
    return {role: array[rows_G] for role, array in answers.beside.items() if role in metric.roles}


def _check_lengths(targets: Sequence[Sequence[str]], beside: Mapping[str, Any]) -> None:
    if not targets:
        raise UndefinedMetric("no target column")
    columns = [(f"target {at}", cells) for at, cells in enumerate(targets, start=1)]
    for role, cells in beside.items():
        columns += [(role, cells)] if not cells or isinstance(cells[0], str) else [(role, each) for each in cells]
    if wrong := [name for name, cells in columns if len(cells) != len(targets[0])]:
        raise UndefinedMetric(f"the {wrong[0]!r} column has another number of rows than the first target column")


def _blind(targets: Sequence[Sequence[str]], beside: Mapping[str, Any]) -> tuple[list[list[str]], dict[str, Any]]:
    """Cells of rows that do not count are replaced by those of the first row that does."""
    keep_R = _role(KEEP, beside[KEEP])
    if not keep_R.any():
        raise UndefinedMetric(f"no row counts: the {KEEP!r} column is false everywhere")
    first = int(np.argmax(keep_R))

    def column(cells: Sequence[str]) -> list[str]:
        return [cell if keep else cells[first] for cell, keep in zip(cells, keep_R, strict=True)]

    def columns(cells: Sequence[Any]) -> list[Any]:
        return column(cells) if isinstance(cells[0], str) else [column(each) for each in cells]

    roles = {role: cells if role == KEEP else columns(cells) for role, cells in beside.items()}
    return [column(cells) for cells in targets], roles


def _values(metric: Metric, targets: Sequence[Sequence[str]], labels: Sequence[str]) -> Any:
    least, largest = metric.targets
    if len(targets) < least or (largest is not None and len(targets) > largest):
        wanted = f"{least} or more" if largest is None else str(least)
        raise UndefinedMetric(f"{metric.name} has {wanted} target columns, not {len(targets)}")
    if len(targets) == 1:
        return encode(metric, targets[0], labels)
    if metric.answers is Needs.LABELS:
        return _indicators(targets)
    return np.stack([encode(metric, column, labels) for column in targets], axis=1)


def _indicators(targets: Sequence[Sequence[str]]) -> sparse.csr_matrix:
    try:
        return read_indicators(targets, {"0": 0, "1": 1})
    except BadCell as error:
        raise UndefinedMetric(
            f"answer in row {error.row + 1}: {error.problem}; one column per label holds 0 or 1"
        ) from error


def _role(role: str, cells: Sequence[Any]) -> np.ndarray:
    if cells and not isinstance(cells[0], str):
        return np.stack([_role(role, column) for column in cells], axis=1)
    if role in _GROUPED:
        return np.unique(np.array(cells, dtype=str), return_inverse=True)[1].astype(np.int64)
    if role == KEEP:
        flags = [_BOOLEANS.get(cell.strip().lower()) for cell in cells]
        if None in flags:
            row = flags.index(None)
            raise UndefinedMetric(f"{cells[row]!r} in row {row + 1} of the {role!r} column is neither true nor false")
        return np.array(flags, dtype=bool)
    values_R = np.array([number(cell) for cell in cells], dtype=np.float64)
    if len(bad := np.flatnonzero(~np.isfinite(values_R))):
        raise UndefinedMetric(f"{cells[bad[0]]!r} in row {bad[0] + 1} of the {role!r} column is not a finite number")
    return values_R
