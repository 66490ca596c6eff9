"""A few training steps on made-up rows: does a model train on these devices, how fast, and what does it hold?

The same step as RL's, with a mesh over all devices of all processes; nothing is sampled, graded or kept. What a plan
said beforehand can be held against it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from mlexpert.loops import screen, workdir
from mlexpert.loops.plan import check_length, kernels, parse_mesh
from mlexpert.loops.settings import Config
from mlexpert.loops.targets import GIB
from mlexpert.model import backends, budget
from mlexpert.model.budget import Load
from mlexpert.model.config import ModelConfig, preset
from mlexpert.model.sharding import MeshShape, make_mesh
from mlexpert.train import spread
from mlexpert.train.losses import WirlLoss
from mlexpert.train.optimizer import rl_adamw
from mlexpert.train.step import StepShape, init_state, make_rl_step
from mlexpert.types import Batch


def run(config: Config, path: Path) -> None:
    """Prints one line a step and leaves `summary.json`. Raises MeshError, ConfigError, FloatingPointError."""
    model = preset(config.model.preset)
    check_length(config.seq_len, model)
    shape = parse_mesh(config.mesh) if config.mesh else MeshShape(fsdp=jax.device_count())
    mesh = make_mesh(shape) if shape.devices > 1 else None
    rows = config.rows or shape.row_holders
    attention, matmul = kernels(config, model, shape)
    chosen = dict(attention=attention.name, grouped=matmul.name)
    step_shape = StepShape(rows, config.vocab_chunk, mesh, exchange=config.exchange, capacity=config.capacity, **chosen)
    load = Load(rows, config.seq_len, config.vocab_chunk, config.capacity, config.float32_weights)
    with _first_holds(path, config) as folder:
        how = f"{backends.told(model, [attention], matmul)}; rows travel {config.exchange}"
        where = f"{jax.device_count()} x {jax.devices()[0].device_kind}, {jax.process_count()} processes, mesh {shape}"
        _say(f"{model.name} on {where}; {how}")
        _say(f"closed form: {budget.memory(model, shape, load).total / GIB:.2f} GiB a device")
        found = list(_steps(config, model, step_shape, load))
        if folder is not None:
            workdir.write_atomic(folder / "summary.json", json.dumps(found, indent=1))


def _steps(config: Config, model: ModelConfig, shape: StepShape, load: Load) -> Iterator[dict[str, float]]:
    place, optimizer = shape.placement(model), rl_adamw(1e-6)
    weights = spread.init_params(model, jax.random.key(config.seed), place)
    reference = weights
    if config.float32_weights:
        weights = jax.tree.map(lambda w: w.astype(jnp.float32), weights)
    state, step = init_state(weights, optimizer, place), make_rl_step(model, optimizer, WirlLoss(), 1.0, shape)
    learning, _ = budget.step_flops(model, load)
    for i in range(config.steps):
        began = time.monotonic()
        state, metrics = step(state, _batch(model, load, config.seed + i), reference)
        jax.block_until_ready(state.params)
        took = time.monotonic() - began
        tokens, rate = load.rows * load.length, learning / took / jax.device_count()
        note = "  (with compiling)" if i == 0 else ""
        speed = f"{tokens / took:,.0f} tokens/s, {rate / 1e12:.3f} TFLOP/s a device"
        _say(f"step {i}: loss {metrics['loss']:+.6f}, {took:.2f} s, {speed}{note}")
        yield {"step": i, "loss": metrics["loss"], "seconds": took, "tokens_per_s": tokens / took, "flops": rate}


def _batch(model: ModelConfig, load: Load, seed: int) -> Batch:
    """One sequence a row; the second half of each is one window, as if the policy had drawn it."""
    rng, shape = np.random.default_rng(seed), (load.rows, load.length)
    tokens = rng.integers(1, model.vocab_size, shape).astype(np.int32)
    at = np.broadcast_to(np.arange(load.length, dtype=np.int32), shape)
    window = np.where(at >= load.length // 2, np.arange(load.rows)[:, None], -1).astype(np.int32)
    drawn = np.where(window >= 0, -np.log(model.vocab_size), 0).astype(np.float32)
    counts, rewards = (window >= 0).sum(axis=1).astype(np.int32), rng.normal(size=load.rows).astype(np.float32)
    return Batch(tokens, np.ones_like(tokens), at, window, drawn, None, rewards, counts)


@contextlib.contextmanager
def _first_holds(path: Path, config: Config) -> Iterator[Path | None]:
    """The work folder belongs to the first process; the others write nothing."""
    if jax.process_index() > 0:
        yield None
        return
    with workdir.hold(path, config) as held:
        yield held.path


def _say(line: str) -> None:
    if jax.process_index() == 0:
        screen.say(line)
