"""Sampled tokens a second of the embedded engine, with episodes of several short turns as the loop plays them.

    python -m experiments.bench.engine --model=tiny --slots=16 --episodes=32

Prints one JSON line: tokens a second of wall time and of this process's CPU time (comparable on a busy machine), the
engine's own totals, seconds to compile.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict

import jax
import numpy as np
from absl import app, flags

from experiments import heap
from mlexpert.model.config import preset
from mlexpert.model.params import init
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.rollout.engine import Request
from mlexpert.types import Sampling

MODEL = flags.DEFINE_string("model", "tiny", "Model preset.")
SLOTS = flags.DEFINE_integer("slots", 16, "Slots of the engine.")
LENGTH = flags.DEFINE_integer("length", 512, "Longest context of a slot, tokens.")
CHUNK = flags.DEFINE_integer("chunk", 8, "Tokens a slot draws between two visits of the host.")
EPISODES = flags.DEFINE_integer("episodes", 32, "Episodes, all started at once.")
TURNS = flags.DEFINE_integer("turns", 3, "Turns of an episode.")
PROMPT = flags.DEFINE_integer("prompt", 90, "Tokens of an opening.")
TURN = flags.DEFINE_integer("turn", 60, "Tokens sampled in a turn.")
OBSERVATION = flags.DEFINE_integer("observation", 15, "Tokens of an observation.")
TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "Sampling temperature.")
TOP_K = flags.DEFINE_integer("top_k", 0, "Top-k, 0 for none.")
TOP_P = flags.DEFINE_float("top_p", 1.0, "Top-p, 1 for none.")


async def play(engine: EmbeddedEngine, episode: int, sampling: Sampling) -> None:
    """One episode with an environment that answers at once. No token id closes a turn, so all have full length."""
    rng, vocab = np.random.default_rng(episode), engine.config.vocab_size
    ids_P = rng.integers(vocab, size=PROMPT.value, dtype=np.int32)
    for turn in range(TURNS.value):
        request = Request(f"episode-{episode}", ids_P, TURN.value, -1, sampling, seed=1000 * episode + turn)
        sample = await engine.sample(request)
        observation_P = rng.integers(vocab, size=OBSERVATION.value, dtype=np.int32)
        ids_P = np.concatenate([ids_P, sample.ids_N, observation_P])
    engine.release(f"episode-{episode}")


async def measure() -> dict[str, object]:
    config = preset(MODEL.value)
    sampling = Sampling(TEMPERATURE.value, TOP_K.value, TOP_P.value)
    engine = EmbeddedEngine(config, init(config, jax.random.key(0)), SLOTS.value, LENGTH.value, CHUNK.value)
    begin = time.perf_counter()
    await engine.warm([sampling])
    compiled, cpu = time.perf_counter(), time.process_time()
    async with engine:
        await asyncio.gather(*(play(engine, episode, sampling) for episode in range(EPISODES.value)))
    sampled, wall_s, cpu_s = engine.stats.sampled_tokens, time.perf_counter() - compiled, time.process_time() - cpu
    rates = {"tokens_per_s": round(sampled / wall_s), "tokens_per_cpu_s": round(sampled / cpu_s)}
    return {"model": config.name, **rates, "compile_s": round(compiled - begin, 1), **asdict(engine.stats)}


def main(_: list[str]) -> None:
    print(json.dumps(asyncio.run(measure())))


if __name__ == "__main__":
    heap.keep()
    app.run(main)
