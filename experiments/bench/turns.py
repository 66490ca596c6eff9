"""What side-by-side benchmarks share: sides that take turns, and the table that says what was found.

Turns go there and back (A B, B A), so that whatever else the machine does slows all sides alike; a ratio is one of
medians of one run.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

Way = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Line:
    """One line of the table; `note` says why a value is missing, or what it was measured with."""

    what: str
    value: float | None
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    def cells(self) -> tuple[str, str, str, str]:
        bound = f">= {self.at_least:g}" if self.at_least is not None else ""
        bound = f"<= {self.at_most:g}" if self.at_most is not None else bound
        if self.value is None:
            return self.what, "not measured", bound, self.note
        verdict = ("yes" if self.held else "NO") if bound else ""
        return self.what, f"{_number(self.value)} {self.unit}", f"{bound} {verdict}".strip(), self.note

    @property
    def held(self) -> bool:
        """Whether a measured value keeps within its bound, if it has one."""
        value = self.value
        return value is not None and (
            (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)
        )


async def in_turns(ways: Mapping[str, Way], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round; one round before them is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(rounds + 1):
        for name in list(ways) if i % 2 else reversed(list(ways)):
            begin = time.perf_counter()
            await ways[name]()
            if i:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def print_table(lines: Sequence[Line]) -> None:
    rows = [("", "measured", "target, held", ""), ("---",) * 4, *(line.cells() for line in lines)]
    for row in rows:
        print(f"| {' | '.join(row)} |")


def machine() -> dict[str, object]:
    processors, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return {
        "processors": processors,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load": round(load, 1),
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.2g}"
