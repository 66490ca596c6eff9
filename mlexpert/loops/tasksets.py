"""The task sets of a run: micro tasks, made once and found again afterwards, or a set that was made before.

Of a set that was made before (`tasks.train_folder`), only tasks are trained on that no reviewer rejected and whose
source data set is not held out; what is left out is said. Its held-out sources are what a policy is evaluated on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlexpert.loops import screen, workdir
from mlexpert.loops.reviewing import decisions
from mlexpert.loops.settings import Config
from mlexpert.loops.workdir import Workdir
from mlexpert.sandmle import make
from mlexpert.sandmle.names import Split
from mlexpert.tasks import sources
from mlexpert.tasks.sources import Sources
from mlexpert.tasks.task import Task, TaskError, load_set

HELD_OUT_SHARE = 0.2  # of the sources of a set that nobody has split yet
SHOWN = 6  # ids in a line


def training(config: Config, held: Workdir) -> list[Task]:
    """Raises TaskError if the set is broken, if nothing of it may be trained on, or if it shares a source with the
    held-out set that the config names."""
    if not config.tasks.get("train_folder"):
        return teaching(config, held)
    folder = Path(config.tasks.train_folder)
    every = load_set(folder)
    tasks, split = _unrejected(folder, every), _split(folder, every, config.tasks.seed)
    mine = [task for task in tasks if _source(task) not in split.held_out]
    _say("held out by source", [task.id for task in tasks if task not in mine])
    if not mine:
        raise TaskError(f"{folder}: every task is rejected or held out; nothing is left to train on")
    sources.refuse_held_out(mine, split)
    if held_out_folder := named_held_out(config):
        _refuse_shared(mine, load_set(held_out_folder))
    screen.say(f"  training on {len(mine)} tasks of {folder}")
    return mine


def teaching(config: Config, held: Workdir) -> list[Task]:
    """Micro tasks for the scripted teachers, who read no other descriptions, whatever RL trains on."""
    return _made(held, config, "train", config.tasks.n_train, config.tasks.seed)


def held_out(config: Config, held: Workdir) -> list[Task]:
    """Disjoint from training by seed, domain and column names; or `tasks.folder`, a set that exists already; or the
    held-out sources of `tasks.train_folder`."""
    if folder := named_held_out(config):
        return _unrejected(folder, load_set(folder))
    if not config.tasks.get("train_folder"):
        return _made(held, config, "held_out", config.tasks.n_held_out, config.tasks.held_out_seed)
    folder = Path(config.tasks.train_folder)
    every = load_set(folder)
    split = _split(folder, every, config.tasks.seed)
    tasks = [task for task in _unrejected(folder, every) if _source(task) in split.held_out]
    if not tasks:
        raise TaskError(f"{folder}: no source of it is held out; name a set with tasks.folder")
    return tasks


def named_held_out(config: Config) -> Path | None:
    """`tasks.folder`, unless it is the training set itself, of which only the held-out sources are."""
    folder, train_folder = config.tasks.get("folder"), config.tasks.get("train_folder")
    if not folder or (train_folder and Path(folder).resolve() == Path(train_folder).resolve()):
        return None
    return Path(folder)


# ---------------------------------------------------------------- sets that were made before
def _unrejected(folder: Path, tasks: Sequence[Task]) -> list[Task]:
    """The set without what reviewers rejected. Raises TaskError if nothing is left."""
    made = decisions.read(folder)
    standings = {task.id: decisions.standing(task, made) for task in tasks}
    kept = [task for task in tasks if not standings[task.id].is_barred]
    _say("rejected by review", [id for id, stand in standings.items() if stand.is_barred])
    undecided = [task.id for task in kept if standings[task.id].state == decisions.UNDECIDED]
    if undecided and made:
        screen.say(f"  {len(undecided)} of {len(kept)} tasks are not reviewed yet")
    if not kept:
        raise TaskError(f"{folder}: every task is rejected by review; nothing is left")
    return kept


def _split(folder: Path, tasks: Sequence[Task], seed: int) -> Sources:
    """The recorded split of the set's sources; sources that are new to it are assigned and recorded."""
    recorded = sources.recorded(folder)
    known = {*recorded.train, *recorded.held_out} if recorded else set()
    if fresh := sorted({_source(task) for task in tasks} - known):
        share, seed = (recorded.share, recorded.seed) if recorded else (HELD_OUT_SHARE, seed)
        recorded = sources.assign(tasks, share, seed, recorded)
        sources.record(folder, recorded)
        screen.say(
            f"  {len(fresh)} sources are new to {folder}/{sources.FILE}: {len(recorded.held_out)} in all are held out"
        )
    assert recorded is not None  # a set holds a task, and a task has a source
    return recorded


def _refuse_shared(tasks: Sequence[Task], held_out: Sequence[Task]) -> None:
    theirs = {_source(task): task.id for task in held_out}
    shared = [(task.id, theirs[_source(task)]) for task in tasks if _source(task) in theirs]
    if shared:
        raise TaskError(
            f"task {shared[0][0]} is made from the same data as the held-out task {shared[0][1]} "
            f"({len(shared)} such tasks): take another tasks.train_folder or tasks.folder"
        )


def _source(task: Task) -> str:
    return sources.name(task.provenance.source_dataset)


def _say(why: str, ids: Sequence[str]) -> None:
    if ids:
        more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
        screen.say(f"  left out, {why}: {', '.join(ids[:SHOWN])}{more}")


# ---------------------------------------------------------------- micro tasks
def _made(held: Workdir, config: Config, split: Split, n: int, seed: int) -> list[Task]:
    """Made again, the same to the byte, when a task is missing or altered; it is said that this happens."""
    folder, stage = held / "tasks" / split, f"tasks_{split}"
    if workdir.facts(held, stage) is not None:
        try:
            return load_set(folder)
        except TaskError as error:
            screen.say(f"  made again: {error}")
    made = make_shown(folder, n, split, seed, tuple(config.tasks.kinds))
    workdir.finish(held, stage, kept=len(made.kept), drawn=made.drawn, drops=made.drops)
    return load_set(folder)


def make_shown(folder: Path, n: int, split: Split, seed: int, kinds: tuple[str, ...]) -> make.Report:
    """`make.make_set` under a progress bar."""
    with screen.bar(f"{split} tasks", n, unit="task") as bar:

        def progress(report: make.Report) -> None:
            screen.advance(bar, f"dropped {report.drawn - len(report.kept)}", len(report.kept))

        return make.make_set(folder, n, split, seed, kinds, progress=progress)
