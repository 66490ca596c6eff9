"""The task sets of a run: made once, found again afterwards."""

from __future__ import annotations

from pathlib import Path

from mlexpert.loops import screen, workdir
from mlexpert.loops.settings import Config
from mlexpert.loops.workdir import Workdir
from mlexpert.sandmle import make
from mlexpert.sandmle.names import Split
from mlexpert.tasks.task import Task, TaskError, load_set


def training(config: Config, held: Workdir) -> list[Task]:
    return _made(held, config, "train", config.tasks.n_train, config.tasks.seed)


def held_out(config: Config, held: Workdir) -> list[Task]:
    """Disjoint from training by seed, domain and column names. `tasks.folder` names a set that exists already."""
    if config.tasks.get("folder"):
        return load_set(Path(config.tasks.folder))
    return _made(held, config, "held_out", config.tasks.n_held_out, config.tasks.held_out_seed)


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
