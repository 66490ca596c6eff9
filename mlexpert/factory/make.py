"""Drives an origin through all stages into a set of tasks.

    discover -> fetch -> plan -> [split, build -> verify -> leaks -> repair ...] -> seal

Invariants: a task appears in the set when it has passed every stage; what was decided is in the ledger before the next
stage starts; one bad task never stops the others; what is finished and unchanged is not made again. A task that is
made again and fails is taken out of the set, so nothing outdated is trained on.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mlexpert.factory import boards as leaderboards
from mlexpert.factory.attempt import make_task
from mlexpert.factory.ledger import Entry, Ledger
from mlexpert.factory.records import Lead, Origin, Quarantine, digest
from mlexpert.factory.reference import RESOURCES
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import load

LEDGER = "ledger.jsonl"
WORKERS = 2
RETRIED = ("fetch", "fault")  # stages whose failures another run may not meet again


@dataclass
class Report:
    """What a run did. Ids are in the order in which the origin names them."""

    kept: list[str] = field(default_factory=list)
    repaired: dict[str, list[str]] = field(default_factory=dict)  # of those kept: what was changed
    quarantined: dict[str, str] = field(default_factory=dict)  # id -> reason
    found: list[str] = field(default_factory=list)  # of those kept: finished in an earlier run
    details: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # of those kept: see `attempt.detail`
    seconds: float = 0.0


def make(
    origin: Origin,
    folder: Path,
    work: Path,
    *,
    boards: Path | None = None,
    progress: Callable[[int, int, str, str], None] = lambda done, total, id, state: None,
    workers: int = WORKERS,
) -> Report:
    """Makes or completes the set in `folder`; raw files and drafts lie below `work`.

    `progress` is called after every task with the number done, of how many, its id and "kept", "found", "repaired" or
    "quarantined". Raises Quarantine if the origin cannot be searched at all, LedgerError for a damaged ledger.
    """
    start, report = time.monotonic(), Report()
    leads = _distinct(origin.discover())
    ledger = Ledger(Path(folder) / LEDGER)
    ends: dict[str, Entry] = {}
    with ThreadPoolExecutor(workers) as pool, threadpool_limits(1):
        futures = [pool.submit(one, origin, lead, Path(folder), Path(work), boards, ledger) for lead in leads]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                entry, state = future.result()
                ends[entry.task] = entry
                report.found += [entry.task] if state == "found" else []
                progress(done, len(futures), entry.task, state)
        except BaseException:  # stopped: what is in work is finished, nothing new begins
            pool.shutdown(cancel_futures=True)
            raise
    for lead in leads:
        _count(report, ends[lead.id])
    report.found = [id for id in report.kept if id in report.found]
    report.seconds = time.monotonic() - start
    return report


def one(origin: Origin, lead: Lead, folder: Path, work: Path, boards: Path | None, ledger: Ledger) -> tuple[Entry, str]:
    """The last entry about this lead after everything that can be done for it, and the state for `progress`."""
    key = digest([lead.digest(), origin.version])
    last = ledger.last(lead.id)
    if last and last.digest == key and _stands(last, folder, boards):
        return last, "found" if last.state != "quarantined" else "quarantined"
    try:
        made = make_task(origin, lead, folder, work / lead.id, boards, ledger, key)
        entry = Entry(
            lead.id, "seal", "repaired" if made.repairs else "done", "; ".join(made.repairs), key, made.detail
        )
    except Quarantine as error:
        entry = Entry(lead.id, error.stage, "quarantined", error.reason, key, {"kind": error.kind})
    except Exception as error:  # a fault of this program or of the origin's: its task stands still, the others go on
        entry = Entry(lead.id, "fault", "quarantined", _told(error, work / lead.id), key)
    if entry.state == "quarantined" and (folder / lead.id).exists():
        shutil.rmtree(folder / lead.id)
    ledger.append(entry)
    return entry, "kept" if entry.state == "done" else entry.state


def _stands(last: Entry, folder: Path, boards: Path | None) -> bool:
    """Whether the ledger's last word still holds: the same leaderboard, and a whole task where there should be one."""
    if last.state == "quarantined":
        return last.stage not in RETRIED and last.detail.get("kind") != RESOURCES
    if last.stage != "seal":
        return False  # the process died between two stages
    name = last.detail.get("board", "")
    place = boards and Path(boards) / name if name else None
    if last.detail.get("board_digest", "") != leaderboards.digest(place):
        return False
    try:
        load(folder / last.task)
    except TaskError:
        return False
    return True


def _told(error: Exception, work: Path) -> str:
    work.mkdir(parents=True, exist_ok=True)
    (work / "fault.txt").write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"a fault of the program ({type(error).__name__}: {error}); the whole of it is in {work.name}/fault.txt"


def _distinct(leads: Sequence[Lead]) -> list[Lead]:
    """Raises Quarantine for two leads of one id: whichever came last would win."""
    ids = [lead.id for lead in leads]
    if repeated := sorted({id for id in ids if ids.count(id) > 1}):
        raise Quarantine("discover", f"two tasks are called {repeated[0]!r}; rename one")
    return list(leads)


def _count(report: Report, entry: Entry) -> None:
    if entry.state == "quarantined":
        report.quarantined[entry.task] = f"{entry.stage}: {entry.reason}"
        return
    report.kept.append(entry.task)
    report.details[entry.task] = entry.detail
    if entry.state == "repaired":
        report.repaired[entry.task] = list(entry.detail["repairs"])
