"""The policy before RL, and the way back to any policy that a run has saved.

    base   from scratch on schema documents without end: it learns to copy names that it has never seen
    sft    on the prefixes of teacher episodes that outcome-guided supervision keeps (MLExpert)

Both are one loop over batches that are a function of (seed, step), so a stopped stage goes on from its checkpoint.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from mlexpert.corpus.episodes import Record
from mlexpert.corpus.reskin import reskin
from mlexpert.loops import examples, probe, saved, screen, setup
from mlexpert.loops.examples import Example
from mlexpert.loops.pretrained import Pretrained
from mlexpert.loops.settings import Config
from mlexpert.loops.setup import Stage
from mlexpert.loops.workdir import Workdir, WorkdirError
from mlexpert.model import params as weights
from mlexpert.model.config import ModelConfig
from mlexpert.model.params import Params
from mlexpert.rollout import tokenizer as tokenizers
from mlexpert.sandbox.api import Sandbox
from mlexpert.train import metrics, optimizer
from mlexpert.train.step import StepShape, TrainState, init_state, make_sft_step
from mlexpert.types import Batch


async def train_base(stage: Stage) -> Params:
    """A policy that has read schema documents only, or the loaded model; no adapters yet."""
    if stage.loaded:
        return stage.loaded.params()
    config, plain = stage.config.base, replace(stage, model=replace(stage.model, lora=None))
    draw = partial(examples.documents, stage.renderer, stage.config.seed, stage.config.budget.executions)
    start = weights.init(plain.model, jax.random.key(stage.config.seed))
    return await _train(plain, "base", config, start, partial(_document_batch, draw, config))


async def train_sft(stage: Stage, base: Params, records: Sequence[Record]) -> Params:
    """The base policy after teacher episodes, each under fresh names every time it is shown. Of a model with adapters
    they alone are trained."""
    config, seed = stage.config.sft, stage.config.seed
    start = weights.adapt(base, stage.model, jax.random.key(seed))

    def example(i: int, epoch: int) -> Example:
        return examples.of_record(stage.renderer, reskin(records[i], np.random.default_rng((seed, epoch, i))))

    rows = examples.Rows(len(records), example, config.rows, config.row_length, seed)
    return await _train(stage, "sft", config, start, rows.batch)


def _document_batch(draw: Callable[[int], Any], config: Config, step: int) -> Batch:
    return examples.filled(draw(step), config.rows, config.row_length)


async def _train(stage: Stage, name: str, config: Config, start: Params, batch_of: Callable[[int], Batch]) -> Params:
    """`config.steps` updates, from the newest checkpoint if there is one. Metrics go to `<workdir>/stages/<name>`."""
    folder = stage.workdir / "checkpoints" / name
    muon = optimizer.sft_muon(stage.model, config.lr, config.steps, warmup=min(10, config.steps // 2))
    state = init_state(start, muon)
    found = saved.restore(folder, state)
    done, state = (found[0], found[1]) if found else (0, state)
    if done >= config.steps:
        return state.params
    step = make_sft_step(stage.model, muon, StepShape(rows=config.rows))
    writer = metrics.Writer(stage.workdir / "stages" / name, done - 1)
    copying: dict[str, float] = {}
    with screen.bar(f"{name} policy", config.steps, done, "step") as bar:
        for i in range(done, config.steps):
            state, found = await asyncio.to_thread(_timed, step, state, batch_of(i))
            if (i + 1) % config.probe_every == 0 or i + 1 == config.steps:
                copying = await probe.first_turns(stage, state.params)
                found |= copying
            writer.write(i, found)
            screen.advance(bar, _figures(found, copying))
            if (i + 1) % 100 == 0 and i + 1 < config.steps:
                saved.save(folder, i + 1, state, {}, keep=1)
    writer.close()
    saved.save(folder, config.steps, state, {}, keep=1)
    return state.params


def _figures(found: dict[str, float], copying: dict[str, float]) -> str:
    speed = {"tokens/s": f"{found['tokens_per_s']:.0f}"}
    probed = {"copy errors_rate": copying["copy_error_rate"]} if copying else {}
    return screen.figures(loss=found["loss"], **probed, **speed)


def _timed(step: Callable, state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, float]]:
    began = time.monotonic()
    state, found = step(state, batch)
    tokens = int((batch.segments_BxT > 0).sum())
    return state, {**found, "tokens": tokens, "tokens_per_s": tokens / (time.monotonic() - began)}


# ---------------------------------------------------------------- saved policies
def load(config: Config, held: Workdir, sandbox: Sandbox) -> tuple[Stage, Params, int]:
    """(stage, weights, version) of the policy `config.policy` in the run folder `config.checkpoint`; "loaded" is the
    model `config.model.load` as it is.

    Raises WorkdirError if the folder holds no such policy, CheckpointError if it was written for another model.
    """
    loaded = setup.opened(config)
    if loaded and config.policy == "loaded":
        stage = setup.make(config, held, loaded.agent_tokenizer(), sandbox, loaded)
        return stage, weights.adapt(loaded.params(), stage.model, jax.random.key(0)), 0
    folder = Path(config.checkpoint)
    vocabulary = folder / "tokenizer.json"
    if not vocabulary.exists():
        raise WorkdirError(f"{vocabulary} does not exist: --config.checkpoint must name the workdir of a finished run")
    stage = setup.make(config, held, tokenizers.load(vocabulary), sandbox, loaded)
    return stage, *restore(stage, config.policy, folder)


def restore(stage: Stage, policy: str, folder: Path | None = None) -> tuple[Params, int]:
    """(weights, version) of a saved policy of this run, or of the run in `folder`. Errors as `load`."""
    return saved_in(folder or stage.workdir.path, stage.model, policy, stage.loaded)


def saved_in(folder: Path, model: ModelConfig, policy: str, loaded: Pretrained | None) -> tuple[Params, int]:
    """(weights, version) of a saved policy of the run in `folder`; where `model` has adapters, they are among the
    weights, and the base policy's do nothing. Errors as `load`."""
    plain, key = replace(model, lora=None), jax.random.key(0)
    if model.lora is None or policy == "base":
        like = jax.eval_shape(lambda: init_state(weights.init(plain, key), _optimizer(plain, policy)))
        params, version = _saved(folder, policy, like)
        return weights.adapt(params, model, key), version
    base = loaded.params() if loaded else saved_in(folder, plain, "base", None)[0]
    return _saved(folder, policy, init_state(weights.adapt(base, model, key), _optimizer(model, policy)))


def _saved(folder: Path, policy: str, like: TrainState) -> tuple[Params, int]:
    found = saved.restore(folder / "checkpoints" / policy, like)
    if found is None:
        there = sorted(path.name for path in (folder / "checkpoints").glob("*"))
        raise WorkdirError(f"{folder} holds no policy {policy!r}; there are: {', '.join(there) or 'none'}")
    return found[1].params, found[0]


def _optimizer(model: ModelConfig, policy: str) -> optax.GradientTransformation:
    """Whose state lies in a checkpoint of this policy; its shape does not depend on the learning rate."""
    return optimizer.rl_adamw(1e-4) if policy == "rl" else optimizer.sft_muon(model, 1e-2, 100)
