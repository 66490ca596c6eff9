"""The embedded engine: its log-probs are the learner's, and a turn depends on its request and the weights alone."""

import asyncio

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import distribution, transformer
from mlexpert.model.config import preset
from mlexpert.model.params import init
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.rollout.engine import EngineError, Request
from mlexpert.types import Sample, Sampling, Stop

CONFIG = preset("micro")
PARAMS = jax.tree.map(lambda leaf: leaf * 3 if leaf.ndim > 1 else leaf, init(CONFIG, jax.random.key(0)))
OTHER = jax.tree.map(lambda leaf: leaf * 1.1, PARAMS)
PAPER = Sampling(temperature=0.6, top_k=20, top_p=0.95)
PLAIN = Sampling()


def ids(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(CONFIG.vocab_size, size=n, dtype=np.int32)


def request(context: np.ndarray, episode="a", n=12, stop=-1, sampling=PLAIN, seed=7) -> Request:
    return Request(episode, context, n, stop, sampling, seed)


def build(slots=2, length=64, chunk=4, params=PARAMS, patience_s=30.0) -> EmbeddedEngine:
    return EmbeddedEngine(CONFIG, params, slots, length, chunk, patience_s=patience_s)


async def sample_all(engine: EmbeddedEngine, *requests: Request) -> list[Sample]:
    async with engine:
        return list(await asyncio.gather(*(engine.sample(r) for r in requests)))


async def sample_in_turn(engine: EmbeddedEngine, *requests: Request) -> list[Sample]:
    async with engine:
        return [await engine.sample(r) for r in requests]


def forward_logits(params, tokens: np.ndarray) -> jax.Array:
    row = jnp.asarray(tokens)[None]
    hidden = transformer.hidden(params, CONFIG, row, jnp.ones_like(row), jnp.arange(row.shape[1])[None])
    return hidden[0] @ transformer.unembedding(params, CONFIG)


def forward_logprobs(params, context: np.ndarray, sample: Sample, sampling: Sampling) -> np.ndarray:
    """By one full forward, as a learner would."""
    logits = forward_logits(params, np.concatenate([context, sample.ids_N]))[len(context) - 1 : -1]
    support = None if sample.support_NxK is None else jnp.asarray(sample.support_NxK)
    return np.asarray(distribution.log_probs(logits, jnp.asarray(sample.ids_N), sampling.temperature, support))


def same(left: Sample, right: Sample) -> None:
    np.testing.assert_array_equal(left.ids_N, right.ids_N)
    np.testing.assert_allclose(left.logprobs_N, right.logprobs_N, atol=1e-4)
    assert left.stop == right.stop


# ---------------------------------------------------------------- log-probs
@pytest.mark.parametrize("sampling", [PLAIN, PAPER])
def test_with_equal_weights_the_importance_ratio_is_one(sampling):
    context = ids(21)
    (sample,) = asyncio.run(sample_all(build(), request(context, n=30, sampling=sampling)))
    q = np.exp(forward_logprobs(PARAMS, context, sample, sampling) - sample.logprobs_N)
    np.testing.assert_allclose(q, 1.0, atol=1e-4)
    assert (sample.support_NxK is None) == (sampling == PLAIN)


def test_the_support_is_that_of_the_full_forward():
    context = ids(9)
    (sample,) = asyncio.run(sample_all(build(), request(context, n=10, sampling=PAPER)))
    logits = forward_logits(PARAMS, np.concatenate([context, sample.ids_N]))[len(context) - 1 : -1]
    expected = distribution.truncate(logits, PAPER.temperature, PAPER.top_k, PAPER.top_p)
    np.testing.assert_array_equal(sample.support_NxK, expected)


def test_top_k_one_is_greedy_with_log_prob_zero():
    context = ids(9)
    (sample,) = asyncio.run(sample_all(build(), request(context, sampling=Sampling(1.0, 1, 1.0))))
    logits = forward_logits(PARAMS, np.concatenate([context, sample.ids_N]))[len(context) - 1 : -1]
    np.testing.assert_array_equal(sample.ids_N, logits.argmax(-1))
    np.testing.assert_array_equal(sample.logprobs_N, 0.0)


def test_draws_follow_the_distribution():
    """Frequencies of the first token over many seeds against the softmax, most probable token: within 4 sigma."""
    context, n = ids(5), 200
    requests = [request(context, f"e{i}", n=1, seed=i) for i in range(n)]
    samples = asyncio.run(sample_all(build(patience_s=0.0), *requests))
    probs = np.asarray(jax.nn.softmax(forward_logits(PARAMS, context)[-1]))
    best = int(probs.argmax())
    hits = sum(int(sample.ids_N[0]) == best for sample in samples)
    assert abs(hits / n - probs[best]) < 4 * np.sqrt(probs[best] * (1 - probs[best]) / n)


# ---------------------------------------------------------------- independence
def test_a_turn_does_not_depend_on_neighbours_slot_or_chunk():
    mine = request(ids(30), "mine", n=20, sampling=PAPER, seed=2**40 + 3)
    others = [request(ids(5 + 6 * i, i), f"other-{i}", n=3 + i, sampling=PAPER, seed=i) for i in range(5)]
    (alone,) = asyncio.run(sample_all(build(slots=1, chunk=8), mine))
    crowded = asyncio.run(sample_all(build(patience_s=0.0), *others, mine))
    same(crowded[-1], alone)


def test_different_samplings_run_side_by_side():
    plain, paper = request(ids(8), "plain"), request(ids(8, 1), "paper", sampling=PAPER)
    together = asyncio.run(sample_all(build(), plain, paper))
    same(together[0], asyncio.run(sample_all(build(), plain))[0])
    same(together[1], asyncio.run(sample_all(build(), paper))[0])


def test_seeds_differ_in_either_half():
    samples = asyncio.run(
        sample_all(build(patience_s=0.0), *(request(ids(8), str(seed), seed=seed) for seed in (1, 2, 2**32 + 1)))
    )
    assert len({tuple(sample.ids_N) for sample in samples}) == 3


# ---------------------------------------------------------------- slots
def turns(n_turns: int) -> list[Request]:
    """Requests of one episode whose contexts grow by what was sampled and an observation."""
    context, requests = ids(17), []
    for turn in range(n_turns):
        requests.append(request(context, n=6, sampling=PAPER, seed=turn))
        (sample,) = asyncio.run(sample_all(build(), requests[-1]))
        context = np.concatenate([context, sample.ids_N, ids(5, 100 + turn)])
    return requests


def test_a_reused_slot_gives_what_a_fresh_one_gives_and_prefills_only_the_extension():
    requests = turns(3)
    engine = build()
    samples = asyncio.run(sample_in_turn(engine, *requests))
    for turn, sample in zip(requests, samples, strict=True):
        same(sample, asyncio.run(sample_all(build(), turn))[0])
    # Of the opening, and of each extension (last sampled token and observation), the decoder feeds the last token.
    assert engine.stats.prompt_tokens == 16 + 5 + 5
    assert engine.stats.restarts == engine.stats.evictions == 0


def test_ids_that_do_not_extend_the_slot_start_it_over_and_are_counted():
    engine = build()
    changed = request(np.concatenate([ids(10), ids(12, 5)]), seed=3)
    _, sample = asyncio.run(sample_in_turn(engine, request(ids(20)), changed))
    same(sample, asyncio.run(sample_all(build(), changed))[0])
    assert engine.stats.restarts == 1


def test_an_idle_slot_goes_to_who_waits_and_its_episode_starts_over():
    first, second = turns(2)
    engine = build(slots=1, chunk=8, patience_s=0.0)
    other = request(ids(11, 3), "other")
    _, between, sample = asyncio.run(sample_in_turn(engine, first, other, second))
    same(between, asyncio.run(sample_all(build(), other))[0])
    same(sample, asyncio.run(sample_all(build(), second))[0])
    assert engine.stats.evictions == 2


def test_a_released_slot_serves_who_waits():
    async def run() -> Sample:
        async with build(slots=1, chunk=8, patience_s=1e9) as engine:
            await engine.sample(request(ids(5), "first"))
            waiting = asyncio.create_task(engine.sample(request(ids(6), "second")))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            engine.release("first")
            return await waiting

    assert asyncio.run(run()).stop == Stop.LENGTH


def test_a_cancelled_request_gives_its_slot_back():
    async def run() -> Sample:
        async with build() as engine:
            task = asyncio.create_task(engine.sample(request(ids(5), n=50)))
            while not engine.stats.sampled_tokens:
                await asyncio.sleep(0.001)
            task.cancel()
            return await engine.sample(request(ids(5), n=4))

    sample = asyncio.run(run())
    same(sample, asyncio.run(sample_all(build(), request(ids(5), n=4)))[0])


# ---------------------------------------------------------------- endings and errors
def test_stop_reasons():
    free = asyncio.run(sample_all(build(), request(ids(8), n=9)))[0]
    assert (free.stop, len(free.ids_N)) == (Stop.LENGTH, 9)
    stop_id = int(free.ids_N[4])
    closed = asyncio.run(sample_all(build(), request(ids(8), n=9, stop=stop_id)))[0]
    assert closed.stop == Stop.END_TURN
    np.testing.assert_array_equal(closed.ids_N, free.ids_N[: list(free.ids_N).index(stop_id) + 1])
    full = asyncio.run(sample_all(build(length=14), request(ids(8), n=9)))[0]
    assert full.stop == Stop.CONTEXT
    np.testing.assert_array_equal(full.ids_N, free.ids_N[:6])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request(ids(64)), "leaves no room in 64"),
        (request(ids(4), n=0), "max_tokens"),
        (request(ids(4), sampling=Sampling(temperature=0.0)), "top_k=1"),
        (request(ids(4) + CONFIG.vocab_size), "outside the vocabulary"),
        (request(ids(4), seed=-1), "seed"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        asyncio.run(sample_all(build(), bad))


def test_an_episode_samples_one_turn_at_a_time():
    with pytest.raises(ValueError, match="one turn at a time"):
        asyncio.run(sample_all(build(), request(ids(4)), request(ids(5))))


def test_weights_that_are_not_finite_end_every_request_with_the_reason():
    async def run() -> list[BaseException | Sample]:
        engine = build(slots=1, chunk=8, params=jax.tree.map(lambda leaf: leaf * jnp.nan, PARAMS))
        with pytest.raises(EngineError):
            async with engine:
                answers = await asyncio.gather(
                    engine.sample(request(ids(4), "a")), engine.sample(request(ids(4), "b")), return_exceptions=True
                )
                with pytest.raises(EngineError):
                    await engine.sample(request(ids(4), "c"))
        return answers

    answers = asyncio.run(run())
    assert all(isinstance(answer, EngineError) for answer in answers)
    assert "not finite" in str(answers[0])


def test_an_engine_that_does_not_run_says_so():
    with pytest.raises(EngineError, match="async with"):
        asyncio.run(build().sample(request(ids(4))))


# ---------------------------------------------------------------- weights in flight
def test_a_swap_in_the_middle_of_a_turn_loses_nothing_and_marks_every_token():
    async def run() -> Sample:
        async with build() as engine:
            task = asyncio.create_task(engine.sample(request(ids(8), n=50)))
            while not engine.stats.sampled_tokens:
                await asyncio.sleep(0)
            await engine.swap(OTHER, 5)
            return await task

    sample = asyncio.run(run())
    undisturbed = asyncio.run(sample_all(build(), request(ids(8), n=50)))[0]
    n_old = int((sample.versions_N == 0).sum())
    assert 0 < n_old < 50
    np.testing.assert_array_equal(sample.versions_N, [0] * n_old + [5] * (50 - n_old))
    np.testing.assert_array_equal(sample.ids_N[:n_old], undisturbed.ids_N[:n_old])
    np.testing.assert_allclose(sample.logprobs_N[:n_old], undisturbed.logprobs_N[:n_old], atol=1e-4)
    assert sample.stop == Stop.LENGTH


def test_warming_up_changes_no_result():
    async def run() -> tuple[Sample, Sample]:
        engine = build()
        await engine.warm([PLAIN])
        async with engine:
            first = await engine.sample(request(ids(8), "a"))
            await engine.warm([PLAIN])
            second = await engine.sample(request(np.concatenate([ids(8), first.ids_N, ids(3)]), "a"))
        return first, second

    first, second = asyncio.run(run())
    same(first, asyncio.run(sample_all(build(), request(ids(8))))[0])
    context = np.concatenate([ids(8), first.ids_N, ids(3)])
    same(second, asyncio.run(sample_all(build(), request(context)))[0])
