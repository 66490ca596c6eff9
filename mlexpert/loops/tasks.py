"""Makes a set of tasks out of competitions or data sets, or completes one, and says what came of each.

The tasks lie in the workdir itself, next to `ledger.jsonl` (what happened, stage by stage), `sources.json` (which data
are held out), `summary.json` and `summary.md`. Raw files are below `.work`, packages below `.cache`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mlexpert.factory import make
from mlexpert.factory.records import Blueprint, Origin, Raw
from mlexpert.loops import screen, workdir
from mlexpert.loops.settings import Config, ConfigError
from mlexpert.loops.workdir import Workdir
from mlexpert.tasks import sources
from mlexpert.tasks.task import load

SHOWN = {"kept": "made", "found": "found", "repaired": "repaired", "quarantined": "quarantined"}


def run(config: Config, path: Path) -> None:
    """Raises ConfigError, Quarantine if the origin cannot be searched, LedgerError, TaskError."""
    boards = Path(config.boards).expanduser() if config.boards else None
    if boards and not boards.is_dir():
        raise ConfigError(f"boards={config.boards}: no such folder; it holds one folder of leaderboards a competition")
    with workdir.hold(path, config) as held:
        report = _make(config, held, boards)
        if report.kept:
            _assign(held.path, report.kept, config.held_out_share, config.seed)
        usage = workdir.usage(held)
        told, tasks = "\n".join(summary(report, usage.peak_rss_gib)), table(report.details)
        workdir.write_atomic(held / "summary.md", f"{told}\n\n{tasks}\n")
        workdir.write_atomic(held / "summary.json", json.dumps(_facts(report), indent=1))
        screen.say(f"{tasks}\n\n{told}")
    if not report.kept:
        sys.exit(1)


def _make(config: Config, held: Workdir, boards: Path | None) -> make.Report:
    counts: dict[str, int] = {}
    with screen.bar("tasks", 0, unit="task") as bar:

        def progress(done: int, total: int, id: str, state: str) -> None:
            bar.total = total
            counts[state] = counts.get(state, 0) + 1
            shown = "  ".join(f"{SHOWN[name]} {count}" for name, count in counts.items())
            screen.advance(bar, f"{shown}  last {id}", done)

        return make.make(origin(config, held), held.path, held / ".work", boards=boards, progress=progress)


def _assign(folder: Path, kept: list[str], share: float, seed: int) -> None:
    """Which sources are held out; what was decided in an earlier run stays."""
    tasks = [load(folder / id, whole=False) for id in kept]  # a moment ago they were made, or verified
    sources.record(folder, sources.assign(tasks, share, seed, sources.recorded(folder)))


# ---------------------------------------------------------------- origins
def origin(config: Config, held: Workdir) -> Origin:
    """Raises ConfigError for an origin that there is not, or one without what it needs."""
    known: Mapping[str, Callable[[], Origin]] = {
        "classic": lambda: _classic(config, held),
        "archive": lambda: _archive(config),
        "kaggle": lambda: _kaggle(config, held),
        "mlebench": lambda: _mlebench(config),
        "mledojo": lambda: _mledojo(config),
    }
    if config.origin not in known:
        raise ConfigError(f"origin={config.origin!r}: one of {', '.join(known)}")
    return known[config.origin]()


def _classic(config: Config, held: Workdir) -> Origin:
    from mlexpert.factory.classic.origin import origin as classic

    cache = Path(config.cache).expanduser() if config.cache else held / ".cache"
    if not (cache / "wheels").is_dir():
        screen.say(f"packages are fetched into {cache} when a task needs them, 220 MB for all tasks")
    return classic(cache, tuple(config.only))


def _archive(config: Config) -> Origin:
    from mlexpert.factory import archive

    if not config.paths:
        raise ConfigError("paths: name archives or folders of them, --config.paths=\"('titanic.zip',)\"")
    plan, version = _analysis()
    paths = [Path(path).expanduser() for path in config.paths]
    return archive.origin(paths, plan, version=version, limits=_limits(config))


def _kaggle(config: Config, held: Workdir) -> Origin:
    from mlexpert.factory import kaggle

    wanted = kaggle.Filter(
        competitions=tuple(config.competitions),
        search=config.search,
        category=config.category,
        deadline=config.deadline,
        min_teams=config.min_teams,
        max_bytes=config.max_mb * 2**20,
        most=config.most,
    )
    plan, version = _analysis()
    cache = held / ".cache" / "found.json"
    return kaggle.origin(wanted, plan, cache=cache, version=version, limits=_limits(config))


def _mlebench(config: Config) -> Origin:
    from mlexpert.factory import mlebench

    checkout = Path(config.checkout).expanduser() if config.checkout else None
    boards = Path(config.boards).expanduser() if config.boards else None
    return mlebench.origin(_named(config, "data"), checkout, tuple(config.only), boards)


def _mledojo(config: Config) -> Origin:
    from mlexpert.factory import mledojo

    checkout, metrics = (Path(config[key]).expanduser() if config[key] else None for key in ("checkout", "metrics"))
    return mledojo.origin(_named(config, "data"), checkout, metrics, tuple(config.only))


def _limits(config: Config) -> Any:
    from mlexpert.factory.archive_members import Limits

    return Limits(total=config.max_gb * 2**30)


def _named(config: Config, key: str) -> Path:
    if not config[key]:
        raise ConfigError(f"{key}: name the folder, --config.{key}=<folder>")
    return Path(config[key]).expanduser()


class _Analysis(NamedTuple):
    """How a competition is read, and a version that changes with it."""

    plan: Callable[[Raw], Blueprint]
    version: str


def _analysis() -> _Analysis:
    """By rules, and by a language model as well where the environment names an endpoint (see `analyse.model`)."""
    from mlexpert.factory import analyse
    from mlexpert.factory.analyse import model

    try:
        endpoint = model.from_environment(os.environ)
    except model.EndpointError as error:
        raise ConfigError(str(error)) from error
    if endpoint is None:
        return _Analysis(analyse.blueprint, "rules")
    analyst = model.analyst(endpoint, screen.say)
    return _Analysis(lambda raw: analyse.blueprint(raw, analyst), f"rules and {endpoint.model}")


# ---------------------------------------------------------------- what people read
def table(details: Mapping[str, Mapping[str, Any]]) -> str:
    """One line for each task that was kept, in Markdown."""
    head = [
        "| task | modality | train | test | metric | thresholds from | findings | s |",
        "|---|---|--:|--:|---|---|---|--:|",
    ]
    return "\n".join([*head, *(_line(id, told) for id, told in details.items())])


def _line(id: str, told: Mapping[str, Any]) -> str:
    train, test = told["rows"]
    counts = told["findings"]
    found = ", ".join(f"{counts[name]} {name}" for name in ("refuse", "warn", "note") if counts.get(name)) or "none"
    cells = [id, told["modality"], f"{train:,}", f"{test:,}", told["metric"], told["thresholds_from"], found]
    return f"| {' | '.join(cells)} | {told['seconds']:.0f} |"


def summary(report: make.Report, peak_gib: float) -> list[str]:
    """What was kept, repaired and quarantined, and why; time and memory."""
    kept, made = len(report.kept), len(report.kept) - len(report.found)
    lines = [
        f"{kept} tasks are in the set ({made} made now, {len(report.found)} found), "
        f"{len(report.repaired)} of them repaired; {len(report.quarantined)} quarantined",
        f"{report.seconds:.0f} s, {peak_gib:.2f} GiB at most",
    ]
    lines += [f"repaired {id}: {'; '.join(changes)}" for id, changes in report.repaired.items()]
    return lines + [f"quarantined {id}: {reason}" for id, reason in report.quarantined.items()]


def _facts(report: make.Report) -> dict[str, Any]:
    return {
        "kept": report.kept,
        "repaired": report.repaired,
        "quarantined": report.quarantined,
        "seconds": report.seconds,
        "tasks": {id: dict(told) for id, told in report.details.items()},
    }
