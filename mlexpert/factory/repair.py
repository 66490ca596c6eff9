"""What a changed blueprint can mend, one change at a time and a bounded number of times.

    single_column, presence     the column is dropped
    id_order                    the source's ids are dropped and new ones made
    duplicate_rows              equal rows are kept once
    one_class, unseen_label,    a random split is stratified; then rare labels are merged; a split by groups is drawn
    undefined                   anew with the next seed
    shared_file                 the split is grouped by the file

Everything else needs a person. A change that leaves the blueprint as it was is no repair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from mlexpert.factory.records import Blueprint, Finding, Quarantine, Raw
from mlexpert.factory.rows import read
from mlexpert.tasks.metrics import METRICS, Needs

ATTEMPTS = 4  # of one task
RARE = 5  # rows below which a label is merged
OTHER = "other"


class Problem(NamedTuple):
    """Findings of one kind that keep the task out, or one that a stage ran into."""

    kind: str
    text: str
    columns: tuple[str, ...] = ()


class Repair(NamedTuple):
    plan: Blueprint
    text: str  # what was changed and why


def problem_of(error: Quarantine) -> Problem:
    return Problem(error.kind, error.reason)


def problems_of(findings: Sequence[Finding]) -> list[Problem]:
    """One problem per kind of finding that refuses the task, in the order found."""
    refused = [finding for finding in findings if finding.severity == "refuse"]
    by_kind = {
        kind: [each for each in refused if each.kind == kind] for kind in dict.fromkeys(each.kind for each in refused)
    }
    return [
        Problem(
            kind,
            "; ".join(each.text for each in some),
            tuple(dict.fromkeys(each.column for each in some if each.column)),
        )
        for kind, some in by_kind.items()
    ]


def repair(raw: Raw, plan: Blueprint, problem: Problem) -> Repair | None:
    """The blueprint changed against the problem; None if there is nothing to try. A prepared task is never changed."""
    if plan.public_folder or problem.kind not in _REPAIRS:
        return None
    found = _REPAIRS[problem.kind](raw, plan, problem)
    return found if found and found.plan != plan else None


# ---------------------------------------------------------------- the changes
def _drop(raw: Raw, plan: Blueprint, problem: Problem) -> Repair | None:
    needed = (
        plan.id_column,
        plan.group_column,
        plan.time_column,
        plan.files_column,
        *plan.target_columns,
        *plan.roles.values(),
    )
    columns = [name for name in problem.columns if name not in needed and name not in plan.drop]
    if not columns:
        return None
    changed = replace(plan, drop=dict(plan.drop) | dict.fromkeys(columns, problem.text))
    return Repair(changed, f"dropped {', '.join(columns)}: {problem.text}")


def _new_ids(raw: Raw, plan: Blueprint, problem: Problem) -> Repair | None:
    if not plan.id_column or plan.answers:
        return None
    changed = replace(plan, id_column="", drop=dict(plan.drop) | {plan.id_column: problem.text})
    return Repair(changed, f"made new ids in place of {plan.id_column}: {problem.text}")


def _distinct(raw: Raw, plan: Blueprint, problem: Problem) -> Repair | None:
    return None if plan.distinct else Repair(replace(plan, distinct=True), f"kept equal rows once: {problem.text}")


def _other_split(raw: Raw, plan: Blueprint, problem: Problem) -> Repair | None:
    if plan.recipe == "random":
        return Repair(replace(plan, recipe="stratified"), f"stratified the split: {problem.text}")
    if merged := _merge(raw, plan, problem):
        return merged
    if plan.recipe in ("grouped", "source"):
        seed = plan.seed + 1
        return Repair(replace(plan, seed=seed), f"drew the groups again with seed {seed}: {problem.text}")
    return None


def _merge(raw: Raw, plan: Blueprint, problem: Problem) -> Repair | None:
    """Labels of fewer than RARE rows become one; where only one is rare, the next rarest goes with it."""
    target, *others = plan.target_columns
    if METRICS[plan.metric].answers is not Needs.LABEL or others or plan.merge_labels or plan.labels:
        return None
    counts = Counter(read(raw.folder / plan.train)[target].tolist())
    del counts[""]
    rarest = sorted(counts, key=lambda label: (counts[label], label))
    rare = [label for label in rarest if counts[label] < RARE]
    if len(rare) == 1:
        rare = rarest[:2]
    if not rare or len(rarest) - len(rare) < 2:
        return None
    other = OTHER if OTHER not in counts else f"{OTHER} labels"
    changed = replace(plan, merge_labels=dict.fromkeys(rare, other))
    return Repair(changed, f"merged {len(rare)} rare labels into {other!r}: {problem.text}")


def _by_file(raw: Raw, plan: Blueprint, problem: Problem) -> Repair | None:
    changed = replace(plan, recipe="grouped", group_column=plan.files_column)
    return None if plan.recipe == "ready" else Repair(changed, f"grouped the split by file: {problem.text}")


_REPAIRS: dict[str, Callable[[Raw, Blueprint, Problem], Repair | None]] = {
    "single_column": _drop,
    "presence": _drop,
    "id_order": _new_ids,
    "duplicate_rows": _distinct,
    "one_class": _other_split,
    "unseen_label": _other_split,
    "undefined": _other_split,
    "shared_file": _by_file,
}
