"""Held-out numbers: k/n of every run, the mean over runs, its standard error (ddof = 1), and the runs themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlexpert.tasks.report import mean_and_error

MEASURES = ("any_medal", "valid", "gold")


def score_runs(lines: Iterable[Mapping[str, Any]], n_tasks: int, n_runs: int) -> dict[str, dict[str, Any]]:
    """Per measure: `runs` in percent of all tasks, their `counts`, `mean`, `sem`.

    `lines` are the records of `loops.heldout`, one an episode. A task without a record counts as a failure, it never
    drops from the mean. Raises ValueError on two records of one (run, task).
    """
    seen: set[tuple[int, str]] = set()
    counts = {measure: [0] * n_runs for measure in MEASURES}
    for line in lines:
        key = (line["run"], line["task"])
        if key in seen:
            raise ValueError(f"two records for run {key[0]} of task {key[1]}")
        seen.add(key)
        for measure in MEASURES:
            counts[measure][line["run"]] += bool(line[measure])
    return {measure: spread([100.0 * k / n_tasks for k in ks]) | {"counts": ks} for measure, ks in counts.items()}


def spread(runs: Sequence[float]) -> dict[str, Any]:
    """The runs with their `mean` and its standard error `sem`."""
    return {"runs": list(runs), **mean_and_error(runs)}


def cell(measure: Mapping[str, Any]) -> str:
    """`62.9 ± 2.1`"""
    sem = measure["sem"]
    return f"{measure['mean']:.1f}" + ("" if sem is None else f" ± {sem:.1f}")
