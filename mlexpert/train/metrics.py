"""One clock whose shares sum to 1, and one writer that a resumed run continues without a double line.

The clock is always in exactly one phase, so a step's waiting, computing, syncing and saving cannot overlap or leave
gaps: time outside any `phase` block is the `default` phase's. Totals survive a restart; the time between two processes
is nobody's.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorboardX

PHASES: tuple[str, ...] = ("wait", "compute", "sync", "save")


class Clock:
    """For the learner's thread only. Seconds since the last `lap`, and in total, by phase."""

    def __init__(self, default: str = "compute", now: Callable[[], float] = time.perf_counter) -> None:
        self._now, self._phase = now, default
        self._lap = dict.fromkeys(PHASES, 0.0)
        self._total = dict.fromkeys(PHASES, 0.0)
        self._since = now()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Books the block's time under `name`; a nested block takes its time out of the outer one."""
        if name not in PHASES:
            raise ValueError(f"phase {name!r}: choose one of {', '.join(PHASES)}")
        outer = self._switch(name)
        try:
            yield
        finally:
            self._switch(outer)

    def lap(self) -> dict[str, float]:
        """Ends a step: its `seconds` and the share of each phase in it (`wait_share`, ...; they sum to 1)."""
        self._switch(self._phase)
        seconds = sum(self._lap.values())
        shares = {f"{name}_share": spent / seconds if seconds else 0.0 for name, spent in self._lap.items()}
        self._lap = dict.fromkeys(PHASES, 0.0)
        return {"seconds": seconds, **shares}

    def totals(self) -> dict[str, float]:
        """Seconds by phase since the run began, earlier processes included."""
        self._switch(self._phase)
        return dict(self._total)

    def state(self) -> dict[str, float]:
        """JSON-able; goes into the checkpoint's books."""
        return self.totals()

    def restore(self, state: Mapping[str, float]) -> None:
        """Continues the totals of an earlier process; a fresh lap starts now."""
        self._total = {name: float(state[name]) for name in PHASES}
        self._lap = dict.fromkeys(PHASES, 0.0)
        self._since = self._now()

    def _switch(self, name: str) -> str:
        now = self._now()
        self._lap[self._phase] += now - self._since
        self._total[self._phase] += now - self._since
        outer, self._phase, self._since = self._phase, name, now
        return outer


class Writer:
    """`<folder>/metrics.jsonl`, one line a step, and TensorBoard events in `<folder>/tensorboard`.

    Lines of steps after `last_step` (-1: all lines) belong to work that a kill undid: they are cut before the first
    write, as is a half-written last line.
    """

    def __init__(self, folder: Path, last_step: int = -1) -> None:
        self._path = Path(folder) / "metrics.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _truncate(self._path, last_step)
        self._events = tensorboardX.SummaryWriter(str(Path(folder) / "tensorboard"), purge_step=last_step + 1)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Numbers go to both, text to the lines only; on disk when this returns.

        Raises:
          ValueError: a number is not finite.
        """
        for name, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"metric {name!r} is {value} at step {step}")
            if isinstance(value, int | float):
                self._events.add_scalar(name, value, step)
        with open(self._path, "a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def close(self) -> None:
        self._events.close()


def read(folder: Path) -> list[dict[str, Any]]:
    """All complete lines of a run's `metrics.jsonl`, oldest first."""
    path = Path(folder) / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _truncate(path: Path, last_step: int) -> None:
    kept = [line for line in read(path.parent) if line["step"] <= last_step]
    fresh = path.with_suffix(".partial")
    fresh.write_text("".join(json.dumps(line) + "\n" for line in kept))
    os.replace(fresh, path)
