"""Compiles a training step for devices that are not here, in a process of its own.

    python -m mlexpert.loops.compiling < request.json > answer.json

JAX decides at its start which devices there are, so this cannot happen in a process that has used it. The answer is one
line of JSON: bytes per device as the compiler sees them, the seconds it took, and the kernels in the program.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from mlexpert.loops import targets
from mlexpert.model import backends
from mlexpert.model.backends import Choice
from mlexpert.model.config import ModelConfig, preset
from mlexpert.model.sharding import MeshShape, make_mesh


class CompileError(RuntimeError):
    """The compiler refused the step (the message is its own, shortened) or did not end in time."""


@dataclass(frozen=True)
class Request:
    """A micro-batch of RL on a mesh. `overrides` are fields of the model preset."""

    target: str
    compiler: str
    model: str
    mesh: tuple[int, ...]  # sizes of the axes of `sharding.AXES`
    rows: int
    length: int
    chunk: int
    support: int
    capacity: float
    exchange: str = "padded"
    attention: str = ""
    grouped: str = ""
    float32_weights: bool = True
    programs: tuple[str, ...] = ("head", "score", "add", "update")
    overrides: dict[str, Any] | None = None


@dataclass(frozen=True)
class Compiled:
    """Bytes on one device: `arguments` lie there before and after; `temporaries` while it runs. `kernels` are the hand-
    written ones that the compiler put into the program, by name."""

    program: str
    arguments: int
    temporaries: int
    peak: int
    seconds: float
    kernels: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return max(self.peak, self.arguments + self.temporaries)


def compile_elsewhere(request: Request, timeout_s: float = 3600) -> list[Compiled]:
    """Raises CompileError with the compiler's own words, or if it did not end in time."""
    target = targets.parse(request.target)
    environment = {**os.environ, **targets.environment(target, request.compiler)}
    command = [sys.executable, "-m", "mlexpert.loops.compiling"]
    question = json.dumps(asdict(request))
    try:
        done = subprocess.run(
            command, input=question, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CompileError(
            f"compiling for {request.target} took more than {timeout_s:.0f} s and was stopped"
        ) from error
    answer = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode or not answer[0].startswith("["):
        raise CompileError(f"compiling for {request.target} failed: {_reason(done.stderr, done.returncode)}")
    return [Compiled(**{**each, "kernels": tuple(each["kernels"])}) for each in json.loads(answer[0])]


def _reason(stderr: str, code: int) -> str:
    """The line that names the exception, not those about the traceback."""
    if code < 0:
        return f"the compiler was ended by signal {-code}; 9 usually means that this machine ran out of memory"
    lines = [line for line in stderr.strip().splitlines() if line.strip()] or [f"exit code {code}, no output"]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (named or lines)[-1][:600]


def compile_here(request: Request) -> Iterator[Compiled]:
    """In a process that was started with the target's environment."""
    from mlexpert.train.abstract import lower_rl_step
    from mlexpert.train.step import StepShape

    target = targets.parse(request.target)
    mesh = make_mesh(MeshShape(*request.mesh), targets.devices(target, request.compiler))
    config = preset(request.model, **(request.overrides or {}))
    attention, grouped = (each.name for each in backends_of(request, config))
    shape = StepShape(request.rows, request.chunk, mesh, attention, grouped, request.exchange, request.capacity)
    lowered_step = lower_rl_step(config, shape, request.length, request.support, request.float32_weights)
    for name, lowered in lowered_step:
        if name in request.programs:
            yield _compiled(name, lowered)


def backends_of(request: Request, config: ModelConfig) -> tuple[Choice, Choice]:
    """Of attention and grouped matmul: what is asked for, else the target's own, or the CPU's where that compiles for
    it. Raises ValueError for a backend that cannot do these rows."""
    chip = targets.CHIPS["cpu"] if request.compiler == "cpu" else targets.parse(request.target).chip
    stretches = MeshShape(*request.mesh).sequence
    attention = backends.attention_of(config, request.length, stretches, request.attention, chip.attention)
    return attention, backends.grouped_matmul(request.grouped, chip.grouped)


def _compiled(name: str, lowered: Any) -> Compiled:
    began = time.monotonic()
    program = lowered.compile()
    seconds, found, kernels = time.monotonic() - began, program.memory_analysis(), _kernels(program.as_text())
    arguments, temporaries = found.argument_size_in_bytes, found.temp_size_in_bytes
    new = found.output_size_in_bytes - found.alias_size_in_bytes  # results that take no argument's place
    return Compiled(name, arguments, temporaries + new, found.peak_memory_in_bytes, seconds, kernels)


def _kernels(program: str) -> tuple[str, ...]:
    """Of a compiled program's text; the path to a call ends in the name of its kernel, or in `pallas_call`."""
    calls = r'custom_call_target="(?:tpu_custom_call|__gpu\$xla\.gpu\.triton)".*?op_name="([^"]*)"'
    found = re.findall(calls, program, re.DOTALL)
    return tuple(sorted({origin.removesuffix("/pallas_call").rsplit("/", 1)[-1] for origin in found}))


def main() -> None:
    fields = json.load(sys.stdin)
    request = Request(**{**fields, "mesh": tuple(fields["mesh"]), "programs": tuple(fields["programs"])})
    print(json.dumps([asdict(each) for each in compile_here(request)]))


if __name__ == "__main__":
    main()
