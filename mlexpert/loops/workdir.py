"""The folder of one run: whose it is, which stages are done, and who holds it.

Invariants: one process at a time (an advisory lock that dies with its holder); one config for ever (another one is
refused with the keys that differ); a stage is done only when its facts are in `stages.json`,
which is replaced atomically.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlexpert.loops import settings
from mlexpert.loops.settings import Config


class WorkdirError(RuntimeError):
    """The folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Workdir:
    path: Path

    def __truediv__(self, name: str) -> Path:
        return self.path / name


@contextlib.contextmanager
def hold(path: Path, config: Config) -> Iterator[Workdir]:
    """Creates or re-enters the folder and holds it. Raises WorkdirError if it is in use or has another config."""
    if path.exists() and not path.is_dir():
        raise WorkdirError(f"{path} is a file; choose another --workdir")
    path.mkdir(parents=True, exist_ok=True)
    with (path / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise WorkdirError(f"{path} is in use by process {holder}; stop it or choose another --workdir") from None
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        _claim(path, config)
        held = Workdir(path)
        with Meter(held).running():
            yield held


def _claim(path: Path, config: Config) -> None:
    saved = path / "config.json"
    if not saved.exists():
        strangers = [p.name for p in path.iterdir() if p.name not in (".lock", "config.json.draft")]
        if strangers:
            raise WorkdirError(
                f"{path} holds other files ({', '.join(sorted(strangers)[:3])}), no config.json; choose an empty folder"
            )
        write_atomic(saved, settings.as_json(config))
        return
    differ = settings.differences(config, saved.read_text())
    if differ:
        keys = "\n".join(f"  {line}" for line in differ)
        raise WorkdirError(f"{path} belongs to another config; choose another --workdir, or the saved values:\n{keys}")


def write_atomic(path: Path, text: str) -> None:
    """Either the old content or the new, never half of it."""
    draft = path.with_name(path.name + ".draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def stages(workdir: Workdir) -> dict[str, dict[str, Any]]:
    """Facts of every finished stage, by name."""
    file = workdir / "stages.json"
    return json.loads(file.read_text()) if file.exists() else {}


def facts(workdir: Workdir, stage: str) -> dict[str, Any] | None:
    return stages(workdir).get(stage)


def finish(workdir: Workdir, stage: str, **found: Any) -> None:
    write_atomic(workdir / "stages.json", json.dumps(stages(workdir) | {stage: found}, indent=1))


@dataclass(frozen=True)
class Usage:
    """Of a run, over all its processes. `peak_rss_gib`: the largest of them plus its largest ended child."""

    wall_seconds: float
    peak_rss_gib: float


def usage(workdir: Workdir) -> Usage:
    file = workdir / "usage.json"
    return Usage(**json.loads(file.read_text())) if file.exists() else Usage(0.0, 0.0)


class Meter:
    """Adds this process' seconds and memory to the folder every few seconds, so that a kill loses only the last few."""

    def __init__(self, workdir: Workdir, clock: Callable[[], float] = time.monotonic):
        self._workdir, self._clock, self._mark = workdir, clock, clock()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def tick(self) -> Usage:
        with self._lock:
            before, now = usage(self._workdir), self._clock()
            found = Usage(before.wall_seconds + now - self._mark, max(before.peak_rss_gib, peak_rss_gib()))
            self._mark = now
            write_atomic(self._workdir / "usage.json", json.dumps(asdict(found)))
            return found

    @contextlib.contextmanager
    def running(self, every_s: float = 1.0) -> Iterator[None]:
        thread = threading.Thread(target=self._run, args=(every_s,), name="meter", daemon=True)
        thread.start()
        try:
            yield
            self.tick()
        finally:
            self._over.set()
            thread.join()

    def _run(self, every_s: float) -> None:
        while not self._over.wait(every_s):
            try:
                self.tick()
            except OSError:  # a full or vanished disk: the run itself meets the same fault, and says so
                return


def peak_rss_gib() -> float:
    """Peak resident memory of this process plus that of the largest of its ended children, in GiB."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return (own + children) / 2**20
