"""Publishing weights: verified on what is served, retried once, and never silent about a difference."""

import asyncio
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model.config import preset
from mlexpert.model.params import init
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.rollout.engine import EngineError, Fingerprint, Request
from mlexpert.rollout.weights import checksum, publish
from mlexpert.types import Sampling

CONFIG = preset("micro")
OLD, NEW = init(CONFIG, jax.random.key(0)), init(CONFIG, jax.random.key(1))


def build(kind=EmbeddedEngine) -> EmbeddedEngine:
    return kind(CONFIG, OLD, slots=2, length=64, chunk=4)


class Lossy(EmbeddedEngine):
    """Loses the first `lost` swaps and says nothing, as a broken transport would."""

    lost = 0

    async def swap(self, params, version):
        self.lost -= 1
        await super().swap(OLD if self.lost >= 0 else params, version)


class Stale(EmbeddedEngine):
    """Holds the new leaves but computes with something else."""

    async def fingerprint(self) -> Fingerprint:
        true = await super().fingerprint()
        return replace(true, logprobs_P=true.logprobs_P + 0.01)


def test_published_weights_are_served_under_their_version():
    async def run():
        engine = build()
        async with engine:
            await publish(engine, NEW, 3)
            assert engine.version == 3
            assert engine.checksum() == checksum(NEW) != checksum(OLD)
            sample = await engine.sample(Request("a", np.arange(5, dtype=np.int32), 4, -1, Sampling(), 0))
            assert (sample.versions_N == 3).all()

    asyncio.run(run())


def test_the_serving_path_and_the_full_forward_agree_and_tell_weights_apart():
    engine = build()
    served = asyncio.run(engine.fingerprint())
    np.testing.assert_allclose(served.logprobs_P, engine.expected(OLD).logprobs_P, atol=1e-4)
    assert np.abs(served.logprobs_P - engine.expected(NEW).logprobs_P).max() > 1e-2


def test_one_lost_swap_is_repeated_and_two_are_an_error_that_leaves_the_engine_running():
    async def run(lost: int):
        engine = build(Lossy)
        engine.lost = lost
        async with engine:
            try:
                await publish(engine, NEW, 1)
            finally:
                await engine.sample(Request("a", np.arange(5, dtype=np.int32), 4, -1, Sampling(), 0))

    asyncio.run(run(1))
    with pytest.raises(EngineError, match="checksum"):
        asyncio.run(run(2))


def test_equal_leaves_with_other_log_probs_are_an_error():
    with pytest.raises(EngineError, match="probe log-probs"):
        asyncio.run(publish(build(Stale), NEW, 1))


def test_the_caller_may_donate_what_it_published():
    async def run():
        params = jax.tree.map(jnp.copy, NEW)
        engine = build()
        await publish(engine, params, 1)
        jax.tree.map(lambda leaf: leaf.delete(), params)
        assert engine.checksum() == checksum(NEW)

    asyncio.run(run())


def test_another_tree_is_refused_by_name():
    wrong = {**NEW, "final_norm": NEW["final_norm"][:-1]}
    with pytest.raises(ValueError, match="final_norm"):
        asyncio.run(build().swap(wrong, 1))


def test_the_checksum_sees_one_bit_an_exchange_a_name_and_a_type():
    leaf = jnp.arange(12.0).reshape(3, 4)
    trees = [
        {"a": leaf},
        {"a": leaf.at[1, 2].set(np.nextafter(np.float32(6), np.float32(7)))},
        {"a": leaf.at[0, 1].set(2.0).at[0, 2].set(1.0)},
        {"a": leaf.reshape(4, 3)},
        {"b": leaf},
        {"a": leaf.astype(jnp.bfloat16)},
        {"a": leaf, "b": leaf},
    ]
    sums = [checksum(tree) for tree in trees]
    assert len(set(sums)) == len(trees)
    assert checksum({"a": jnp.array(leaf)}) == sums[0]
