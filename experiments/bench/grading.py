"""How long grading takes: files of 200 rows and of a million, in this process and in the grader's own.

    python -m experiments.bench.grading [--rows 1000000] [--rounds 5]
    two CPU cores, about a minute and 2 GiB; prints medians, the worst round and the target of each line

Reading a file, checking and aligning it and scoring it is all in the time; starting the grader and reading the task's
answers is told apart, since both happen once.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from mlexpert.tasks.grader_process import ProcessGrader
from mlexpert.tasks.grading import Grader
from mlexpert.tasks.seal import write
from mlexpert.tasks.task import Facts, Provenance, Split, Task, Thresholds

LABELS = ("cat", "dog", "owl")


def make(folder: Path, metric: str, rows: int) -> tuple[Task, Path]:
    """A task of that many rows, and a submission in another order of rows with random predictions."""
    rng = np.random.default_rng(0)
    ids = [f"row_{at:07d}" for at in range(rows)]
    lower = metric == "rmse"
    truth = pd.DataFrame({"id": ids, "y": rng.normal(size=rows) if lower else rng.choice(LABELS, rows)})
    facts = Facts(
        id=f"{metric}-{rows}", modality="tabular", domain="bench", metric=metric, id_column="id", target_columns=("y",),
        labels=() if lower else LABELS, provenance=Provenance("bench", "", "generated", True, "bench"),
        split=Split("generated", 0, 0.5), thresholds_from="reference solutions",
    )  # fmt: skip
    lines = Thresholds(0.1, 0.2, 0.3, 0.4, 1.0) if lower else Thresholds(0.9, 0.8, 0.7, 0.6, 0.3)
    task = write(
        folder, facts, lines, description="bench\n", train=truth.head(3), test=truth.drop(columns="y"),
        sample=truth.assign(y=0.0 if lower else "cat"), answers=truth,
    )  # fmt: skip
    path = folder / f"{facts.id}.csv"
    guess = rng.normal(size=rows) if lower else rng.choice(LABELS, rows)
    truth.assign(y=guess).iloc[rng.permutation(rows)].to_csv(path, index=False)
    return task, path


def measured(call: Callable[[], object], rounds: int) -> str:
    """Median and worst of some rounds, after one that does not count; CPU time is this process's alone."""
    times, cpu = [], []
    for _ in range(rounds + 1):
        start, begun = time.perf_counter(), time.process_time()
        call()
        times.append(1000 * (time.perf_counter() - start))
        cpu.append(1000 * (time.process_time() - begun))
    middle, middle_cpu = statistics.median(times[1:]), statistics.median(cpu[1:])
    return f"{middle:,.1f} ms (worst {max(times[1:]):,.1f}; CPU {middle_cpu:,.1f})"


def lines(folder: Path, rows: int, rounds: int) -> list[str]:
    told = []
    processes = ProcessGrader()
    for metric in ("rmse", "accuracy"):
        for size, target in ((200, "50 ms"), (rows, "5,000 ms")):
            task, path = make(folder, metric, size)
            start = time.perf_counter()
            own = Grader(task)
            ready = time.perf_counter() - start
            here = measured(lambda grader=own, path=path: grader.grade(path), rounds)
            there = measured(lambda task=task, path=path: processes.grade(task, path), rounds)
            told.append(
                f"{metric}, {size:,} rows: {here} here, {there} in the grader's process; target {target}; "
                f"{ready:.2f} s to read the answers"
            )
    processes.close()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description="How long grading takes.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(lines(Path(folder), asked.rows, asked.rounds)))
    here, there = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"most memory: {here:,.0f} MB here, {there:,.0f} MB in the grader's process")


if __name__ == "__main__":
    main()
