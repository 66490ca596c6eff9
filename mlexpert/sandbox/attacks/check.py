"""Runs attacks on a sandbox and looks from outside whether it held.

Of each execution: its status is one of the expected, no line of it begins with HOLE, it printed no secret, its text is
clean, its failure has a reason. Then nothing of it is left, the surroundings are as they were, a plain script works.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from mlexpert.sandbox.api import Job, Sandbox
from mlexpert.sandbox.attacks import attack, outside
from mlexpert.sandbox.attacks.attack import Attack
from mlexpert.sandbox.attacks.outside import Surroundings
from mlexpert.types import ExecStatus, Execution, Limits

LIMITS = Limits(wall_s=60.0, cpu_s=20.0, memory_mb=400, pids=64, disk_mb=16, output_kb=8)
HELD, NOT_HELD, NOT_PROMISED = "held", "NOT HELD", "not promised"
_OVERSHOOT_S = 10.0  # between the wall limit and the answer: killing and collecting on a busy machine
_PATIENCE_S = 10.0  # for what is still leaving when the answer comes
_UNCLEAN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class Watched(Sandbox, Protocol):
    """A sandbox whose server the owner can find."""

    restarts: int

    @property
    def server_pid(self) -> int | None: ...


@dataclass(frozen=True)
class Finding:
    attack: str
    promise: str
    verdict: str  # HELD, NOT_HELD, NOT_PROMISED
    reason: str  # why it is not HELD
    status: str  # of the execution, "" if there was none
    seconds: float


async def run(
    sandbox: Watched,
    attacks: Sequence[Attack],
    around: Surroundings,
    tell: Callable[[Finding], None] = lambda finding: None,
) -> list[Finding]:
    """All attacks, one after the other; `tell` hears each finding at once.

    With one slot the next execution gets the very place of the last one; attacks on a neighbour need two.
    """
    findings = []
    await settle(sandbox, around)
    for one in attacks:
        findings.append(await attempt(sandbox, one, around))
        tell(findings[-1])
    return findings


async def settle(sandbox: Watched, around: Surroundings) -> None:
    """Use every slot, so that what it keeps for the next execution is there before anything is counted."""
    await asyncio.gather(*(_execute(sandbox, around, "import time; time.sleep(0.2)", LIMITS) for _ in range(4)))


async def attempt(sandbox: Watched, one: Attack, around: Surroundings) -> Finding:
    if why := attack.promised(one, sandbox.isolation):
        return Finding(one.name, one.promise, NOT_PROMISED, why, "", 0.0)
    restarts, started = sandbox.restarts, time.monotonic()
    run, fault = await _played(sandbox, one, around)
    seconds = round(time.monotonic() - started, 3)
    fault = fault or outside.disturbed(around) or await _works(sandbox, around)
    if not fault and sandbox.restarts != restarts:
        fault = "the server died and was replaced"
    return Finding(one.name, one.promise, NOT_HELD if fault else HELD, fault, run.status.value, seconds)


async def _played(sandbox: Watched, one: Attack, around: Surroundings) -> tuple[Execution, str]:
    """The attack's execution, and what was wrong with it or with those beside and after it."""
    before, limits, started = outside.trace(sandbox.server_pid), replace(LIMITS, **one.limits), time.monotonic()
    scripts = [one.script, one.beside] if one.beside else [one.script]
    run, *beside = await asyncio.gather(*(_execute(sandbox, around, script, limits) for script in scripts))
    late_s = time.monotonic() - started - limits.wall_s
    faults = [_faults(run, one.expected, around)]
    faults += [f"the answer came {late_s:.1f} s after the wall limit"] * (late_s > _OVERSHOOT_S)
    faults += [_faults(other, (ExecStatus.OK,), around) for other in beside]
    faults.append(await _remains(sandbox, before))
    after = [await _execute(sandbox, around, one.then, limits)] if one.then else []
    faults += [_faults(other, (ExecStatus.OK,), around) for other in after]
    faults.append(one.fault(run, *after))
    return run, next((fault for fault in faults if fault), "")


async def _execute(sandbox: Sandbox, around: Surroundings, script: str, limits: Limits) -> Execution:
    into = Path(tempfile.mkdtemp(dir=around.folder))
    return await sandbox.execute(Job(around.fill_in(script), around.inputs, into, limits=limits, seed=1))


def _faults(run: Execution, expected: tuple[ExecStatus, ...], around: Surroundings) -> str:
    """What is wrong with an execution by the rules that hold for all."""
    if fault := _bad_end(run, expected):
        return fault
    handed_in = "".join(
        path.read_text(errors="replace") for path in run.files.values() if path.stat().st_size < 1 << 20
    )
    if around.secret in run.stdout + run.stderr + handed_in:
        return "the planted secret came out"
    if found := _UNCLEAN.search(run.stdout + run.stderr):
        return f"the output holds the control character {found[0]!r}"
    if run.status is not ExecStatus.OK and (not run.reason or "\n" in run.reason):
        return f"{run.status.value} needs a reason of one line, not {run.reason!r}"
    return ""


def _bad_end(run: Execution, expected: tuple[ExecStatus, ...]) -> str:
    if run.status is ExecStatus.SETUP_FAILED:
        return f"the sandbox itself failed: {run.reason}"
    holes = [line for line in run.stdout.splitlines() + run.stderr.splitlines() if line.startswith("HOLE")]
    if holes:
        return "; ".join(hole[5:200] for hole in holes[:4]) + (" ..." if len(holes) > 4 else "")
    if run.status not in expected:
        last = (run.stderr.strip().splitlines() or [""])[-1][:100]
        return f"ended as {run.status.value} ({run.reason}), not {' or '.join(expected)}: {last}"
    return ""


async def _remains(sandbox: Watched, before: outside.Trace) -> str:
    """What an execution left behind, after a moment for what is just leaving."""
    until = time.monotonic() + _PATIENCE_S
    while (left := outside.trace(sandbox.server_pid).beyond(before)) and time.monotonic() < until:
        await asyncio.sleep(0.02)
    return left


async def _works(sandbox: Watched, around: Surroundings) -> str:
    run = await _execute(sandbox, around, "print(open('train.csv').read(), end='')", LIMITS)
    fine = run.status is ExecStatus.OK and run.stdout == outside.INPUTS["train.csv"]
    return "" if fine else f"the next execution fails: {run.status.value} {run.reason} {run.stderr[-100:]!r}"
