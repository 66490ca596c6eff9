"""Our side of the benchmark of the model: one update of the trainer, one batch of turns from the embedded engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import jax
import numpy as np
import optax

from mlexpert.model.config import ModelConfig
from mlexpert.model.params import Params
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.rollout.engine import Request
from mlexpert.train.packing import pack_examples
from mlexpert.train.step import StepShape, init_state, make_sft_step
from mlexpert.types import Sampling

GREEDY, DRAWN = Sampling(top_k=1), Sampling()


@dataclass(frozen=True)
class Adam:
    """AdamW behind a clip of the global norm: both sides get these."""

    lr: float = 1e-4
    b1: float = 0.9
    b2: float = 0.95
    eps: float = 1e-8
    decay: float = 0.01
    clip: float = 1.0

    def optax(self) -> optax.GradientTransformation:
        adam = optax.adamw(self.lr, self.b1, self.b2, self.eps, weight_decay=self.decay)
        return optax.chain(optax.clip_by_global_norm(self.clip), adam)


def updates(config: ModelConfig, params: Params, ids_BxT: np.ndarray, adam: Adam) -> Callable[[], Awaitable[float]]:
    """Each call makes one update on all rows in one micro-batch, waits for it, and returns the loss before it."""
    step = make_sft_step(config, adam.optax(), StepShape(rows=len(ids_BxT)))
    state = init_state(params, adam.optax())
    batch = pack_examples([(ids_T, np.ones(len(ids_T), bool)) for ids_T in ids_BxT], ids_BxT.shape[1])

    async def update() -> float:
        nonlocal state
        state, metrics = step(state, batch)
        jax.block_until_ready(state)
        return metrics["loss"]

    return update


async def turns(engine: EmbeddedEngine, ids_SxP: np.ndarray, new: int, sampling: Sampling, seed: int) -> np.ndarray:
    """`new` tokens behind each prompt, all asked for at once, each of a fresh episode: [S, new]."""
    names = [f"prompt-{i}" for i in range(len(ids_SxP))]
    asked = [
        engine.sample(Request(name, ids_P, new, -1, sampling, seed + i))
        for i, (name, ids_P) in enumerate(zip(names, ids_SxP, strict=True))
    ]
    samples = await asyncio.gather(*asked)
    for name in names:
        engine.release(name)
    return np.stack([sample.ids_N for sample in samples])
