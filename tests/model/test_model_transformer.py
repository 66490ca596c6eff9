"""The decoder: packed rows equal separate ones, and a cache extended piece by piece equals the full forward."""

from dataclasses import replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import params, transformer
from mlexpert.model.config import Layer, preset

SPARSE = preset("micro")
DENSE = preset("micro", name="micro_dense", n_experts=0, d_ff=64, tied_embedding=False)
HYBRID = preset("micro_hybrid")
UNEVEN = preset(  # the first layer is dense, and the pattern is as long as the model
    "micro", n_layers=3, d_ff=48, layer_pattern=(Layer("attention", "dense"), *[Layer("attention", "sparse")] * 2)
)
CONFIGS = {"sparse": SPARSE, "dense": DENSE, "hybrid": HYBRID, "uneven": UNEVEN}
ALL = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)

hidden = jax.jit(transformer.hidden, static_argnums=1)
hidden_and_routing = jax.jit(transformer.hidden_and_routing, static_argnums=1)
extend = jax.jit(transformer.extend, static_argnums=1, static_argnames="read")


@lru_cache
def _params(config, seed=0):
    """Initial values with noise, so that no gain is trivially one and the router is decided."""

    @jax.jit
    def draw(key):
        values = params.init(config, key)
        leaves, tree = jax.tree.flatten(values)
        keys = jax.random.split(key, len(leaves))
        return tree.unflatten([x + 0.1 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])

    return draw(jax.random.key(seed))


def _tokens(config, batch, length, seed=2):
    return jax.random.randint(jax.random.key(seed), (batch, length), 0, config.vocab_size)


def _alone(values, config, tokens_T):
    length = len(tokens_T)
    return hidden(values, config, tokens_T[None], jnp.ones((1, length), int), jnp.arange(length)[None])[0]


@ALL
def test_packed_row_equals_its_sequences_alone(config):
    values, lengths = _params(config), (40, 17, 40, 17)
    pieces = [_tokens(config, 1, n, seed=i)[0] for i, n in enumerate(lengths)]
    row = jnp.pad(jnp.concatenate(pieces), (0, 20))
    segments = jnp.asarray([*np.repeat([1, 2, 3, 4], lengths), *[0] * 20])
    positions = jnp.concatenate([*map(jnp.arange, lengths), jnp.zeros(20, int)])
    packed = hidden(values, config, row[None], segments[None], positions[None])[0]
    assert jnp.isfinite(packed).all()
    for piece, end in zip(pieces, np.cumsum(lengths), strict=True):
        np.testing.assert_allclose(packed[end - len(piece) : end], _alone(values, config, piece), atol=1e-4)


@ALL
def test_prefill_in_chunks_then_decoding_equals_the_full_forward(config):
    values, tokens = _params(config), _tokens(config, 3, 40)
    want = jnp.stack([_alone(values, config, row) for row in tokens])
    cache = transformer.init_cache(config, 3, 40)
    got, start = [], 0
    for width in (32, 1, 1, 1, 1, 1, 1, 1, 1):
        chunk = tokens[:, start : start + width]
        out, cache = extend(values, config, cache, chunk, jnp.full(3, start), jnp.full(3, width))
        got.append(out)
        start += width
    np.testing.assert_allclose(jnp.concatenate(got, axis=1), want, atol=5e-5)


@ALL
def test_rows_may_start_anywhere_and_name_their_slots(config):
    values, tokens = _params(config), _tokens(config, 2, 40)
    want = [_alone(values, config, row) for row in tokens]
    slots, counts = jnp.asarray([4, 1]), jnp.asarray([16, 9])
    cache = transformer.init_cache(config, 5, 40)
    out, cache = extend(values, config, cache, tokens[:, :16], jnp.zeros(2, int), counts, slots)
    np.testing.assert_allclose(out[1, :9], want[1][:9], atol=3e-5)
    starts = counts
    for _ in range(6):
        step = jnp.take_along_axis(tokens, starts[:, None], axis=1)
        out, cache = extend(values, config, cache, step, starts, jnp.ones(2, int), slots, read=24)
        for row in range(2):
            np.testing.assert_allclose(out[row, 0], want[row][starts[row]], atol=3e-5)
        starts = starts + 1
    untouched = jax.tree.map(lambda x: x[:, jnp.asarray([0, 2, 3])], cache.blocks)
    assert not any(jnp.any(leaf) for leaf in jax.tree.leaves(untouched))


@pytest.mark.parametrize("config", [SPARSE, HYBRID], ids=["sparse", "hybrid"])
def test_count_zero_leaves_a_slot_untouched_and_stale_entries_are_never_read(config):
    values, tokens = _params(config), _tokens(config, 2, 16)
    empty = transformer.init_cache(config, 2, 16)
    dirty = jax.tree.map(lambda x: x + jnp.asarray(7, x.dtype), empty)
    out, cache = extend(values, config, dirty, tokens, jnp.zeros(2, int), jnp.asarray([16, 0]))
    clean, _ = extend(values, config, empty, tokens, jnp.zeros(2, int), jnp.asarray([16, 0]))
    assert jnp.array_equal(out[0], clean[0])
    jax.tree.map(lambda new, old: np.testing.assert_array_equal(new[:, 1], old[:, 1]), cache, dirty)
    assert jnp.isfinite(out).all()


@pytest.mark.parametrize("config", [SPARSE, HYBRID], ids=["sparse", "hybrid"])
def test_a_row_does_not_depend_on_its_neighbours(config):
    values, tokens = _params(config), _tokens(config, 4, 24)
    other = tokens.at[1:].set(_tokens(config, 3, 24, seed=9))
    run = partial(hidden, values, config)
    ids = jnp.ones((4, 24), int), jnp.tile(jnp.arange(24), (4, 1))
    np.testing.assert_allclose(run(tokens, *ids)[0], run(other, *ids)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("config", "remat"), [(SPARSE, "layer"), (DENSE, "matrices"), (HYBRID, "layer"), (HYBRID, "none")]
)
def test_gradients_are_finite_and_reach_every_weight_also_when_recomputed(config, remat):
    values, tokens = _params(config), _tokens(config, 2, 80)
    segments, positions = jnp.asarray([[1] * 60 + [0] * 20] * 2), jnp.tile(jnp.arange(80), (2, 1))

    def loss(values, config):
        states = transformer.hidden(values, config, tokens, segments, positions)
        logits = states @ transformer.unembedding(values, config)
        return (jax.nn.logsumexp(logits, axis=-1) * (segments > 0)).sum() + (
            states**3 * (segments > 0)[..., None]
        ).sum()

    gradient = jax.jit(jax.grad(loss), static_argnums=1)(values, replace(config, remat=remat))
    assert all(jnp.isfinite(leaf).all() and jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(("config", "n_sparse"), [(SPARSE, 2), (HYBRID, 4), (UNEVEN, 2)])
def test_routing_is_returned_per_sparse_layer_and_its_replay_is_identical(config, n_sparse):
    values, tokens = _params(config), _tokens(config, 2, 40)
    ids = jnp.ones((2, 40), int), jnp.tile(jnp.arange(40), (2, 1))
    states, routing = hidden_and_routing(values, config, tokens, *ids)
    assert routing is not None and routing.experts_NxK.shape == (n_sparse, 2, 40, 2)
    np.testing.assert_allclose(routing.load_E.sum(axis=-1), 1.0, rtol=1e-6)
    other = _params(config, seed=5)
    replayed, taken = hidden_and_routing(other, config, tokens, *ids, routing.experts_NxK)
    assert taken is not None and jnp.array_equal(taken.experts_NxK, routing.experts_NxK)
    again, _ = hidden_and_routing(values, config, tokens, *ids, routing.experts_NxK)
    assert jnp.array_equal(again, states)
    assert jnp.isfinite(replayed).all()


def test_routing_comes_in_order_of_depth():
    """Layer 2 of four is given other experts: the layers up to it see what they saw, those after it do not."""
    values, tokens = _params(HYBRID), _tokens(HYBRID, 1, 20)
    ids = jnp.ones((1, 20), int), jnp.arange(20)[None]
    _, routing = hidden_and_routing(values, HYBRID, tokens, *ids)
    assert routing is not None
    given = routing.experts_NxK.at[2].set((routing.experts_NxK[2] + 1) % HYBRID.n_experts)
    _, taken = hidden_and_routing(values, HYBRID, tokens, *ids, given)
    assert taken is not None and jnp.array_equal(taken.experts_NxK, given)
    changed = [not jnp.allclose(a, b, atol=1e-6) for a, b in zip(routing.balance, taken.balance, strict=True)]
    assert changed == [False] * 2 + [True] * 2


@pytest.mark.parametrize("name", ["micro", "micro_hybrid"])
def test_bfloat16_runs_forward_backward_and_decode(name):
    config = preset(name, dtype="bfloat16")
    values, tokens = params.init(config, jax.random.key(0)), _tokens(config, 2, 80)
    ids = jnp.ones((2, 80), int), jnp.tile(jnp.arange(80), (2, 1))
    gradient = jax.jit(jax.grad(lambda v: transformer.hidden(v, config, tokens, *ids).astype(jnp.float32).sum()))(
        values
    )
    assert jax.tree.map(lambda leaf: leaf.dtype, gradient) == jax.tree.map(lambda leaf: leaf.dtype, values)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    out, cache = extend(
        values, config, transformer.init_cache(config, 2, 8), tokens[:, :8], *jnp.asarray([[0] * 2, [8] * 2])
    )
    assert out.dtype == cache.blocks[-1].k.dtype == jnp.bfloat16
