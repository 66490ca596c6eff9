"""The embedded engine with a model whose past is a state, not a list: it goes on where it stands or starts over."""

import asyncio

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import distribution, transformer
from mlexpert.model.config import preset
from mlexpert.model.params import init
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.rollout.engine import Request
from mlexpert.rollout.weights import publish
from mlexpert.types import Sampling

CONFIG = preset("micro_hybrid")
PARAMS = jax.tree.map(
    lambda leaf: leaf * 2 if leaf.ndim > 2 else leaf, jax.jit(init, static_argnums=0)(CONFIG, jax.random.key(0))
)
PAPER = Sampling(temperature=0.6, top_k=20, top_p=0.95)


def ids(n, seed=0):
    return np.random.default_rng(seed).integers(CONFIG.vocab_size, size=n, dtype=np.int32)


def run(*requests, slots=2, **engine_settings):
    """The samples of requests made one after the other, and the engine."""
    engine = EmbeddedEngine(CONFIG, PARAMS, slots, 96, 4, patience_s=engine_settings.pop("patience_s", 30.0))

    async def all_of_them():
        async with engine:
            return [await engine.sample(request) for request in requests]

    return asyncio.run(all_of_them()), engine


def request(context, seed=7, episode="a"):
    return Request(episode, context, 6, -1, PAPER, seed)


@jax.jit  # rows of one length: compiled once
def learner_logits(row_1xT, length):
    positions = jnp.arange(row_1xT.shape[1])[None]
    states = transformer.hidden(PARAMS, CONFIG, row_1xT, (positions < length).astype(int), positions)
    return states[0] @ transformer.unembedding(PARAMS, CONFIG)


def ratio(context, sample):
    """Learner's probability over sampler's, token by token."""
    row = np.concatenate([context, sample.ids_N])
    padded = np.zeros((1, 64), np.int32)
    padded[0, : len(row)] = row
    logits = learner_logits(padded, len(row))[len(context) - 1 : len(row) - 1]
    support = jnp.asarray(sample.support_NxK)
    learner = distribution.log_probs(logits, jnp.asarray(sample.ids_N), PAPER.temperature, support)
    return np.exp(np.asarray(learner) - sample.logprobs_N)


@pytest.fixture(scope="module")
def turns():
    """Three turns of one episode: what was sampled stays, an observation follows."""
    context, requests = ids(21), []
    for turn in range(3):
        requests.append(request(context, seed=turn))
        (sample,), _ = run(requests[-1])
        context = np.concatenate([context, sample.ids_N, ids(5, 100 + turn)])
    return requests


def test_turns_that_extend_the_state_are_the_learners(turns):
    samples, engine = run(*turns)
    for turn, sample in zip(turns, samples, strict=True):
        np.testing.assert_allclose(ratio(turn.ids_P, sample), 1.0, atol=1e-3)
    assert engine.stats.restarts == 0 and engine.stats.prompt_tokens == 20 + 5 + 5


@pytest.mark.parametrize("kept", [1, 10, 20])
def test_a_context_that_goes_back_starts_over(kept):
    changed = request(np.concatenate([ids(21)[:kept], ids(12, 5)]), seed=3)
    (_, sample), engine = run(request(ids(21)), changed)
    np.testing.assert_allclose(ratio(changed.ids_P, sample), 1.0, atol=1e-3)
    assert engine.stats.restarts == 1


def test_a_slot_given_to_another_episode_keeps_nothing(turns):
    (_, between, sample), engine = run(
        turns[0], request(ids(11, 3), episode="other"), turns[1], slots=1, patience_s=0.0
    )
    np.testing.assert_allclose(ratio(ids(11, 3), between), 1.0, atol=1e-3)
    np.testing.assert_allclose(ratio(turns[1].ids_P, sample), 1.0, atol=1e-3)
    assert engine.stats.evictions == 2


def test_new_weights_are_verified_by_both_ways_through_the_model():
    engine = EmbeddedEngine(CONFIG, PARAMS, 2, 64, 4)
    asyncio.run(publish(engine, jax.tree.map(lambda leaf: leaf * 1.05, PARAMS), 3))
    assert engine.version == 3
