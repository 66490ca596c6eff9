"""What a training step of a large model would need on devices that need not be here: memory, FLOPs, mesh, longest row.

Closed forms (model/budget.py) say where the memory goes; then a compiler is asked. Every number says which it was: what
is kept is exact, what works is estimated, and the compiler is that of the devices only if it is installed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import jax

from mlexpert.loops import compiling, screen, targets, workdir
from mlexpert.loops.compiling import Compiled, CompileError, Request
from mlexpert.loops.settings import Config, ConfigError
from mlexpert.loops.targets import CHIPS, GIB, Chip, Target
from mlexpert.model import backends, budget, params, sharding
from mlexpert.model.backends import Choice
from mlexpert.model.budget import Load, Memory
from mlexpert.model.config import ModelConfig, preset
from mlexpert.model.sharding import MeshShape

HEADROOM = 0.1  # what is left free for what no plan sees: buffers of collectives, fragmentation


def run(config: Config, path: Path) -> None:
    """Prints the plan and leaves it in `plan.json`. Raises ConfigError, MeshError or TargetError."""
    target, model = targets.parse(config.target), preset(config.model.preset)
    check_length(config.seq_len, model)
    with workdir.hold(path, config) as held:
        load = _load(config)
        shape = _mesh(config, model, target, load)
        load = replace(load, rows=config.rows or shape.row_holders)
        memory = budget.memory(model, shape, load)
        own = kernels(config, model, shape, target.chip)
        screen.say(_head(config, model, target, shape, load))
        screen.say(f"kernels: {backends.told(model, own[:1], own[1])}\n")
        screen.say(_memory_table(memory, target))
        screen.say(_work(model, target, shape, load))
        compiled, note = _compile(config, target, shape, load)
        screen.say(_compiled_table(compiled, note, memory, target))
        found = dict(mesh=asdict(shape), load=asdict(load), memory={**memory._asdict(), "total": memory.total})
        found |= dict(attention=own[0].name, grouped=own[1].name)
        found |= dict(compiled=[asdict(each) for each in compiled], compiler=note)
        workdir.write_atomic(held / "plan.json", json.dumps(found, indent=1))


def check_length(length: int, model: ModelConfig) -> None:
    """Raises ConfigError for rows longer than the model was made for."""
    if 0 < model.max_length < length:
        raise ConfigError(f"seq_len={length}: {model.name} was made for at most {model.max_length} positions")


def kernels(config: Config, model: ModelConfig, shape: MeshShape, chip: Chip | None = None) -> tuple[Choice, Choice]:
    """Backends of attention and grouped matmul, on the chip or (None) on the devices of this process.

    Raises ConfigError for one that was asked for and cannot do these rows, or runs elsewhere only.
    """
    usual, platform = ((chip.attention, chip.grouped), chip.platform) if chip else (("", ""), jax.default_backend())
    for key in ("attention", "grouped"):
        homes = backends.HOMES.get(config[key], (platform,))
        if platform not in homes:
            raise ConfigError(f"{key}={config[key]!r} runs on {homes[0]}, not on {platform}: leave it empty")
    try:
        attention = backends.attention_of(model, config.seq_len, shape.sequence, config.attention, usual[0])
    except ValueError as error:
        raise ConfigError(f"attention={config.attention!r}, seq_len={config.seq_len}: {error}") from error
    return attention, backends.grouped_matmul(config.grouped, usual[1])


def _load(config: Config) -> Load:
    kept = dict(float32_weights=config.float32_weights, reference=config.reference)
    return Load(max(config.rows, 1), config.seq_len, config.vocab_chunk, config.capacity, **kept)


def _mesh(config: Config, model: ModelConfig, target: Target, load: Load) -> MeshShape:
    if not config.mesh:
        usable = int(target.chip.memory_bytes * (1 - HEADROOM))
        return budget.suggest(model, target.devices, load, usable, target.chip.node)
    shape = parse_mesh(config.mesh)
    if shape.devices != target.devices:
        raise ConfigError(f"mesh={config.mesh!r} is {shape.devices} devices, target={target.name} is {target.devices}")
    return shape


def parse_mesh(text: str) -> MeshShape:
    """`fsdp=4,expert=8` -> a shape. Raises ConfigError."""
    try:
        sizes = {axis.strip(): int(n) for axis, n in (part.split("=") for part in text.split(","))}
        if min(sizes.values()) < 1 or len(sizes) < len(text.split(",")):
            raise ValueError
        return MeshShape(**sizes)
    except (ValueError, TypeError) as error:
        axes = ", ".join(sharding.AXES)
        raise ConfigError(f"mesh={text!r}: axes ({axes}) with sizes, like fsdp=4,expert=8") from error


# ---------------------------------------------------------------- what people read
def _head(config: Config, model: ModelConfig, target: Target, shape: MeshShape, load: Load) -> str:
    total, active = params.count(model), budget.active_parameters(model)
    chosen = "as asked" if config.mesh else "suggested"
    tokens = load.rows * load.length // shape.devices
    return (
        f"{model.name}: {total / 1e9:.2f} B parameters, {active / 1e9:.2f} B of them act on a token\n"
        f"{target.name}, mesh {shape} ({chosen}); a micro-batch is {load.rows} rows of {load.length:,} tokens, "
        f"{tokens:,} tokens on a device\n"
    )


def _memory_table(memory: Memory, target: Target) -> str:
    names = {
        "weights": "weights of the trainer",
        "optimizer": "AdamW",
        "gradients": "gradients: their sum, and a micro-batch's",
        "reference": "reference weights for the KL term",
        "computed_in": "weights in the precision of the model",
        "layer_inputs": "inputs of all layers, kept for the backward pass",
        "layer": "one layer at work (estimate)",
        "head": "log-probs at work, in chunks of the vocabulary (estimate)",
        "update": "the update (when no layer works)",
    }
    rows = [f"| {names[name]} | {size / GIB:.2f} |" for name, size in memory._asdict().items()]
    share = memory.total / target.chip.memory_bytes
    verdict = "fits" if share <= 1 - HEADROOM else "DOES NOT FIT"
    rows.append(f"| peak of all this | {memory.total / GIB:.2f} |")
    line = (
        f"{verdict}: {100 * share:.0f} % of {target.chip.memory_bytes / GIB:.1f} GiB, {100 * HEADROOM:.0f} % stay free"
    )
    return "\n".join(["| on each device, closed form | GiB |", "|---|---|", *rows, line, ""])


def _work(model: ModelConfig, target: Target, shape: MeshShape, load: Load) -> str:
    each = budget.flops(model, load.length)
    learning, executed = budget.step_flops(model, load)
    peak = target.chip.peak_flops * target.devices
    longest = budget.largest_length(model, shape, load, int(target.chip.memory_bytes * (1 - HEADROOM)))
    parts = ", ".join(f"{name.replace('_', ' ')} {value / 1e9:.2f}" for name, value in each._asdict().items() if value)
    return (
        f"forward pass: {each.total / 1e9:.2f} GFLOP a token ({parts})\n"
        f"micro-batch: {learning / 1e15:.1f} PFLOP to learn, {executed / 1e15:.1f} with what is computed again and the "
        f"reference's pass; at least {executed / peak:.1f} s at the devices' peak\n"
        f"longest row that fits on this mesh: {longest:,} tokens (closed form)\n"
        f"sampling: {budget.cache_bytes(model, load.length) / GIB:.2f} GiB a sequence of {load.length:,} tokens\n"
    )


def _compile(config: Config, target: Target, shape: MeshShape, load: Load) -> tuple[list[Compiled], str]:
    if config.compile == "none":
        return [], "not compiled"
    compiler = "cpu" if config.compile == "cpu" else target.compiler
    attention, grouped, portable = config.attention, config.grouped, CHIPS["cpu"]
    if compiler == "cpu" and target.chip is not portable:
        attention, grouped = portable.attention, portable.grouped  # it knows no other kernels
    on_cpu = attention or portable.attention
    how = {
        "cpu": f"{target.devices} virtual CPU devices, attention {on_cpu}: an estimate for {target.name}",
        "tpu": f"libtpu, for {target.name} itself",
        "cuda": f"XLA's compiler for {target.name} (no autotuning without the card)",
    }[compiler]
    request = Request(
        *(target.name, compiler, config.model.preset, shape.sizes, load.rows, load.length, load.chunk),
        *(config.support, load.capacity, config.exchange),
        attention=attention,
        grouped=grouped,
        float32_weights=load.float32_weights,
    )
    screen.say(f"compiling on {how} ...")
    try:
        return compiling.compile_elsewhere(request), how
    except CompileError as error:
        return [], f"{how}: DID NOT COMPILE. {error}"


def _compiled_table(compiled: list[Compiled], note: str, memory: Memory, target: Target) -> str:
    if not compiled:
        return f"compiler: {note}"
    # What lies on the device while a program runs that does not use it.
    beside = {
        "head": 0,  # a part of "add", for itself
        "score": memory.weights + memory.optimizer,
        "add": memory.optimizer + memory.reference,
        "update": memory.reference,
    }
    rows = [
        f"| {each.program} | {each.arguments / GIB:.2f} | {each.temporaries / GIB:.2f} | {each.total / GIB:.2f} | "
        f"{beside[each.program] / GIB:.2f} | {each.seconds:.0f} |"
        for each in compiled
    ]
    most = max(each.total + beside[each.program] for each in compiled)
    verdict = (
        "agrees that it fits" if most <= target.chip.memory_bytes * (1 - HEADROOM) else "says that it DOES NOT FIT"
    )
    kernels = sorted({name for each in compiled for name in each.kernels})
    rows += [f"kernels in these programs: {', '.join(kernels)}"] if kernels else []
    head = "| program | arguments, GiB | temporaries | peak | lies beside it | compiled in s |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows, f"compiler ({note}) {verdict}: {most / GIB:.2f} GiB"])
