"""Makes a set of micro tasks: candidates are drawn in order of their index and the first n that pass the gate are kept.

Invariants: the set is a function of (split, seed, kinds, n) alone, whatever the number of workers; a finished task is
never made again; a half-written folder is never taken for a task.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from threadpoolctl import threadpool_limits

from mlexpert.sandmle import data_strategist, gate, mle_developer, mlops_engineer, technical_writer
from mlexpert.sandmle.names import Split
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import load

MAX_CANDIDATES_PER_TASK = 5


class FunnelError(Exception):
    """The gate drops nearly everything; the message carries the counts."""


@dataclass
class Report:
    """The funnel of a set: `kept` ids in order, drops by reason, tasks found finished."""

    kept: list[str] = field(default_factory=list)
    drops: dict[str, int] = field(default_factory=dict)
    found: int = 0

    @property
    def drawn(self) -> int:
        return len(self.kept) + sum(self.drops.values())


def make_task(folder: Path, split: Split, seed: int, index: int, kind: str) -> tuple[str, str, bool]:
    """Candidate `index` -> (id, reason for which it was dropped or "", whether it was already there)."""
    spec = data_strategist.design(split, seed, index, kind)
    root = Path(folder) / spec.id
    if root.exists():
        try:
            load(root)
            return spec.id, "", True
        except TaskError:
            shutil.rmtree(root)  # half-written or altered: made again below
    data = mle_developer.tables(spec)
    with threadpool_limits(1):  # workers share the cores
        ladder = mle_developer.ladder(spec, data)
    if reason := gate.reason(ladder):
        return spec.id, reason, False
    mlops_engineer.deploy(folder, spec, data, ladder, technical_writer.describe(spec))
    return spec.id, "", False


def make_set(
    folder: Path,
    n: int,
    split: Split,
    seed: int,
    kinds: tuple[str, ...] = ("tabular",),
    workers: int = 2,
    progress: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Makes or completes a set of `n` tasks in `folder`; candidate i is of kind i modulo the kinds.

    `progress` is called after every candidate. Raises FunnelError if five times `n` candidates do not suffice; an
    exception in a worker is raised here.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    report = Report()
    with candidates(Path(folder), split, seed, kinds, workers, MAX_CANDIDATES_PER_TASK * n) as results:
        for id, reason, found in results:
            if len(report.kept) == n:
                break
            report.found += found
            if reason:
                report.drops[reason] = report.drops.get(reason, 0) + 1
            else:
                report.kept.append(id)
            progress(report)
    if len(report.kept) < n:
        raise FunnelError(f"only {len(report.kept)} of {report.drawn} candidates were kept, {n} wanted: {report.drops}")
    remove_surplus(Path(folder), f"{split}-{seed}-", report.kept)
    return report


@contextmanager
def candidates(
    folder: Path, split: Split, seed: int, kinds: tuple[str, ...], workers: int, limit: int
) -> Iterator[Iterator[tuple[str, str, bool]]]:
    """Results of candidates 0, 1, ... in order, made by `workers` single-threaded processes (0: in this process)."""
    if workers == 0:
        yield (make_task(folder, split, seed, index, kinds[index % len(kinds)]) for index in range(limit))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=follow_parent) as pool:
        yield in_order(pool, folder, split, seed, kinds, 4 * workers, limit)
        pool.shutdown(cancel_futures=True)


def follow_parent() -> None:
    """In a worker: leave Ctrl-C to the parent, and end when the parent is gone, however it went."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _end_with(parent: BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)


def in_order(
    pool: ProcessPoolExecutor, folder: Path, split: Split, seed: int, kinds: tuple[str, ...], ahead: int, limit: int
) -> Iterator[tuple[str, str, bool]]:
    """At most `ahead` candidates are in work at a time, so little is made in vain."""
    pending = []
    for index in range(limit):
        pending.append(pool.submit(make_task, folder, split, seed, index, kinds[index % len(kinds)]))
        if len(pending) == ahead:
            yield pending.pop(0).result()
    for future in pending:
        yield future.result()


def remove_surplus(folder: Path, prefix: str, kept: list[str]) -> None:
    """Deletes this set's tasks beyond the first n, and what an interrupted write left aside. Other sets stay."""
    wanted = set(kept)
    for root in folder.iterdir():
        if root.name.removeprefix(".").startswith(prefix) and root.name not in wanted:
            shutil.rmtree(root)
