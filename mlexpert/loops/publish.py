"""A set of tasks as an archive for others: what may be passed on, and why the rest may not."""

from __future__ import annotations

from pathlib import Path

from mlexpert.factory.export import ExportError, export
from mlexpert.loops import screen
from mlexpert.loops.reviewing import decisions
from mlexpert.loops.settings import Config, ConfigError


def run(config: Config, _: Path) -> None:
    """Raises ConfigError, ExportError, TaskError."""
    if not config.folder or not config.archive:
        raise ConfigError("--config.folder=<set of tasks> and --config.archive=<file>.zip: both are needed")
    folder, archive = Path(config.folder).expanduser(), Path(config.archive).expanduser()
    try:
        done = export(folder, archive, private=config.private, rejected=rejected(folder))
    except OSError as error:
        raise ExportError(f"{archive} cannot be written: {error.strerror or error}") from error
    lines = [f"left out {id}: {reason}" for id, reason in done.refused.items()]
    size = done.path.stat().st_size / 1e6
    told = "with answers and thresholds" if config.private else "without answers"
    screen.say("\n".join([*lines, f"{len(done.kept)} tasks, {told}, are in {done.path} ({size:.1f} MB)"]))


def rejected(folder: Path) -> dict[str, str]:
    """Task -> why a reviewer's last word on it, or on an earlier version, was no. Raises TaskError."""
    made = decisions.read(folder)
    roots = [folder / id for id in {each.task for each in made} if (folder / id / "task.json").is_file()]
    last = {root.name: stand.decision for root in roots if (stand := decisions.standing_in(root, made)).is_barred}
    return {id: decision.why or "no reason given" for id, decision in last.items() if decision}
