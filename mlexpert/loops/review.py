"""The manual review of a task set: a page to read, and decisions that are recorded with the set.

<workdir>/review.html    everything a person needs to see, in one file
<set>/review.json        what was decided (see reviewing/decisions)
"""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from mlexpert.factory import ledger
from mlexpert.factory.make import LEDGER
from mlexpert.loops import screen
from mlexpert.loops.reviewing import decisions
from mlexpert.loops.reviewing.decisions import ACCEPTED, REJECTED, UNDECIDED, Decision
from mlexpert.loops.reviewing.exhibit import Exhibit, exhibit
from mlexpert.loops.reviewing.page import page
from mlexpert.loops.settings import Config, ConfigError
from mlexpert.loops.workdir import write_atomic
from mlexpert.tasks import sources
from mlexpert.tasks.task import Task, digest, load_set

ALL = "all"


def run(config: Config, path: Path) -> None:
    if not config.tasks:
        raise ConfigError("tasks is empty: --config.tasks=<folder of a task set>")
    folder = Path(config.tasks)
    tasks = load_set(folder)
    made = _decided(config, tasks, decisions.read(folder))
    if made:
        decisions.record(folder, made)
    everything = decisions.read(folder)
    history, split = ledger.read(folder / LEDGER), sources.recorded(folder)
    exhibits: list[Exhibit] = []
    with screen.bar("tasks", len(tasks), unit="task") as bar:
        for task in tasks:
            exhibits.append(exhibit(task, history, everything, split))
            screen.advance(bar, task.id)
    refused = {entry.task: f"{entry.stage}: {entry.reason}" for entry in history if entry.state == "quarantined"}
    refused = {id: reason for id, reason in refused.items() if id not in {task.id for task in tasks}}
    path.mkdir(parents=True, exist_ok=True)
    command = f"python experiments/run.py --config=configs/review.py --config.tasks={shlex.quote(str(folder))}"
    write_atomic(path / "review.html", page(folder.name, exhibits, refused, command))
    screen.say(_table(exhibits, made))
    screen.say(f"open {path / 'review.html'} in a browser; it writes the command that records your decisions")


# ---------------------------------------------------------------- decisions
def _decided(config: Config, tasks: Sequence[Task], before: Sequence[Decision]) -> list[Decision]:
    """What the config decides. Raises ConfigError for an unknown task, a rejection without reason, or both at once."""
    by_id = {task.id: task for task in tasks}
    accepted, rejected = _accepted(config.accept, tasks, before), _rejected(config.reject)
    if unknown := sorted((set(accepted) | rejected.keys()) - by_id.keys()):
        raise ConfigError(f"{unknown[0]!r} is no task of {config.tasks}; there are {', '.join(sorted(by_id))}")
    if both := sorted(set(accepted) & rejected.keys()):
        raise ConfigError(f"{both[0]!r} is accepted and rejected; decide")
    who, when = config.who or getpass.getuser(), datetime.now(UTC).isoformat(timespec="seconds")
    return [Decision(id, digest(by_id[id]), ACCEPTED, who, when, config.why) for id in accepted] + [
        Decision(id, digest(by_id[id]), REJECTED, who, when, why) for id, why in rejected.items()
    ]


def _accepted(asked: str, tasks: Sequence[Task], before: Sequence[Decision]) -> list[str]:
    """Ids; "all" stands for the undecided ones that nobody rejected in an earlier version."""
    if asked.strip() != ALL:
        return list(dict.fromkeys(id.strip() for id in asked.split(",") if id.strip()))
    standings = {task.id: decisions.standing(task, before) for task in tasks}
    return [id for id, stand in standings.items() if stand.state == UNDECIDED and not stand.is_barred]


def _rejected(asked: str) -> dict[str, str]:
    """id -> reason, of "id:reason;id:reason"."""
    found = {}
    for part in filter(None, (part.strip() for part in asked.split(";"))):
        id, _, why = part.partition(":")
        if not why.strip():
            raise ConfigError(f"reject={part!r}: a rejection needs a reason, --config.reject='{id}:<why>'")
        found[id.strip()] = why.strip()
    return found


def _table(exhibits: Sequence[Exhibit], made: Sequence[Decision]) -> str:
    wide = max(len(one.task.id) for one in exhibits)
    lines = [f"{'task':<{wide}}  {'kind':<8} {'metric':<12} {'train':>7} {'test':>7}  findings        decision"]
    for one in exhibits:
        counts = [f"{sum(f.severity == level for f in one.findings)} {level}" for level in ("refuse", "warn")]
        found = ", ".join(count for count in counts if not count.startswith("0")) or "-"
        lines.append(
            f"{one.task.id:<{wide}}  {one.task.modality:<8} {one.task.metric:<12} {one.rows[0]:>7} {one.rows[1]:>7}  "
            f"{found:<15} {one.standing.state}"
        )
    done = sum(one.standing.state != UNDECIDED for one in exhibits)
    lines.append(f"{len(made)} decisions recorded now; {done} of {len(exhibits)} tasks are decided")
    return "\n".join(lines)
