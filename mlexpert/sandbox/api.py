"""What a sandbox is to the rest of the house: one job in, one execution out, and an honest label of what is enforced.

Whatever the script does is the script's `Execution`; whatever the sandbox fails to do is `SETUP_FAILED`, which is never
an outcome. Time spent waiting for a free slot is not part of an execution's wall time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mlexpert.types import Execution, Isolation, Limits

NOT_STARTED = Isolation("none", False, False, False, False, False, False, "not started")


class SandboxError(RuntimeError):
    """The sandbox cannot run at all on this machine; the text says why and what to do."""


@dataclass(frozen=True)
class Job:
    """`inputs` is the public folder, read-only for the script; `into` is a host folder for the collected files."""

    script: str
    inputs: Path
    into: Path
    collect: tuple[str, ...] = ("submission.csv",)  # plain file names
    limits: Limits = field(default_factory=Limits)
    seed: int = 0


class Sandbox(Protocol):
    @property
    def isolation(self) -> Isolation: ...

    async def execute(self, job: Job) -> Execution: ...

    async def close(self) -> None: ...
