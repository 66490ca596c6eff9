"""The gated delta rule against its definition, in chunks and token by token, with borders anywhere; and its layer."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import delta_rule, deltanet, params
from mlexpert.model.config import preset
from mlexpert.model.delta_rule import Tokens

G, H, K, V = 2, 4, 8, 6
CONFIG = preset("micro_hybrid")

chunked = jax.jit(delta_rule.chunked, static_argnames="chunk")
recurrent = jax.jit(delta_rule.recurrent)


def _unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _draw(length, fresh=(), batch=2, seed=0):
    """Keys of unit length that resemble each other, so that much is corrected; strong and weak decays."""
    rng = np.random.default_rng(seed)
    keys = _unit(rng.normal(size=(batch, length, G, K)) + 2.0)
    decay = -np.exp(rng.normal(-2, 2, size=(batch, length, H)))
    starts = np.zeros((batch, length), bool)
    starts[:, list(fresh)] = True
    arrays = (
        *(_unit(rng.normal(size=(batch, length, G, K))), keys, rng.normal(size=(batch, length, H, V)), decay),
        *(rng.uniform(size=(batch, length, H)), starts),
    )
    memory = rng.normal(size=(batch, H, K, V))
    return Tokens(*(jnp.asarray(a, bool if a.dtype == bool else jnp.float32) for a in arrays)), jnp.asarray(
        memory, jnp.float32
    )


def _definition(tokens, memory):
    """One token after the other, in float64."""
    q, k, v, decay, write, fresh = (np.asarray(x, bool if x.dtype == bool else np.float64) for x in tokens)
    memory, out = np.asarray(memory, np.float64).copy(), np.zeros(v.shape)
    for b, t, h in np.ndindex(*v.shape[:3]):
        key = k[b, t, h // (H // G)]
        s = memory[b, h] * (0.0 if fresh[b, t] else np.exp(decay[b, t, h]))
        memory[b, h] = s + np.outer(key, write[b, t, h] * (v[b, t, h] - s.T @ key))
        out[b, t, h] = memory[b, h].T @ q[b, t, h // (H // G)]
    return out, memory


BORDERS = pytest.mark.parametrize("fresh", [(), (0,), (0, 5, 15, 16, 17, 40)], ids=["goes on", "new", "packed"])


@BORDERS
@pytest.mark.parametrize("form", [recurrent, partial(chunked, chunk=16), chunked], ids=["recurrent", "16", "64"])
def test_every_form_is_the_definition(form, fresh):
    tokens, memory = _draw(50, fresh)  # no multiple of a chunk
    (out, after), (want, want_after) = form(tokens, memory), _definition(tokens, memory)
    np.testing.assert_allclose(out, want, atol=2e-5)
    np.testing.assert_allclose(after, want_after, atol=2e-5)


@BORDERS
def test_chunked_and_recurrent_have_the_same_gradients(fresh):
    tokens, memory = _draw(50, fresh)
    weight = jax.random.normal(jax.random.key(0), tokens.v_BxTxHxV.shape)

    def gradient(form):
        def loss(floats, memory):
            out, after = form(Tokens(*floats, tokens.fresh_BxT), memory)
            return (out * weight).sum() + (after**2).sum()

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(tuple(tokens[:-1]), memory)

    got, want = gradient(partial(delta_rule.chunked, chunk=16)), gradient(delta_rule.recurrent)
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, atol=2e-4, rtol=1e-3), got, want)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(got))


def test_a_memory_may_be_handed_over_between_pieces():
    tokens, memory = _draw(48, (0, 20))
    whole, after = chunked(tokens, memory)
    first, second = (jax.tree.map(lambda x, s=s: x[:, s], tokens) for s in (slice(0, 29), slice(29, 48)))
    out_first, between = chunked(first, memory)
    out_second, at_end = chunked(second, between)
    np.testing.assert_allclose(jnp.concatenate((out_first, out_second), axis=1), whole, atol=2e-5)
    np.testing.assert_allclose(at_end, after, atol=2e-5)


def test_memory_does_not_explode_when_all_keys_are_the_same():
    """The hardest system: each token corrects exactly what the one before it wrote."""
    tokens, memory = _draw(256, (0,))
    same = tokens._replace(
        k_BxTxGxK=jnp.broadcast_to(tokens.k_BxTxGxK[:, :1], tokens.k_BxTxGxK.shape),
        write_BxTxH=jnp.ones_like(tokens.write_BxTxH),
        decay_BxTxH=jnp.zeros_like(tokens.decay_BxTxH),
    )
    out, after = chunked(same, memory)
    want, want_after = recurrent(same, memory)
    np.testing.assert_allclose(out, want, atol=2e-5)
    np.testing.assert_allclose(after, want_after, atol=2e-5)


# ---------------------------------------------------------------- the layer
@pytest.fixture(scope="module")
def weights():
    values = jax.jit(params.init, static_argnums=0)(CONFIG, jax.random.key(0))["blocks"][0]["deltanet"]
    return jax.tree.map(lambda x: x[0] * 2, values)


def _rows(batch, length, seed=1):
    return jax.random.normal(jax.random.key(seed), (batch, length, CONFIG.d_model))


mix_rows = jax.jit(deltanet.mix_rows, static_argnums=2)
extend = jax.jit(deltanet.extend, static_argnums=2)


def test_packed_rows_equal_separate_ones_at_every_border(weights):
    """Pieces shorter than the convolution reaches, of one token, and longer than a chunk."""
    lengths = (2, 1, 70, 3, 24)
    x = _rows(1, sum(lengths))
    packed = mix_rows(x, weights, CONFIG, jnp.asarray([np.repeat([1, 2, 3, 4, 0], lengths)]))
    ends = np.cumsum(lengths)
    for start, end in zip(ends - lengths, ends, strict=True):
        alone = mix_rows(x[:, start:end], weights, CONFIG, jnp.ones((1, end - start), int))
        np.testing.assert_allclose(packed[:, start:end], alone, atol=5e-5)


def test_pieces_of_any_width_equal_the_whole(weights):
    x = _rows(2, 40)
    want = mix_rows(x, weights, CONFIG, jnp.ones((2, 40), int))
    state, start, got = deltanet.empty_state(CONFIG, 2), 0, []
    for width, count in ((16, 16), (16, 1), (16, 2), (1, 1), (1, 1), (16, 16), (1, 1), (16, 2)):
        piece = jnp.pad(x[:, start : start + count], ((0, 0), (0, width - count), (0, 0)), constant_values=3.0)
        out, state = extend(piece, weights, CONFIG, state, jnp.full(2, start), jnp.full(2, count))
        got.append(out[:, :count])
        start += count
    np.testing.assert_allclose(jnp.concatenate(got, axis=1), want, atol=1e-5)
    assert state.held.tolist() == [40, 40]


@pytest.mark.parametrize("width", [1, 16])
def test_start_zero_starts_over_and_count_zero_changes_nothing(weights, width):
    x = _rows(2, width)
    dirty = jax.tree.map(lambda leaf: leaf + 7, deltanet.empty_state(CONFIG, 2))
    clean, _ = extend(x, weights, CONFIG, deltanet.empty_state(CONFIG, 2), jnp.zeros(2, int), jnp.asarray([1, 0]))
    out, state = extend(x, weights, CONFIG, dirty, jnp.zeros(2, int), jnp.asarray([1, 0]))
    assert jnp.array_equal(out[0, 0], clean[0, 0])
    jax.tree.map(lambda new, old: np.testing.assert_array_equal(new[1], old[1]), state, dirty)
    follow, _ = extend(x, weights, CONFIG, state, jnp.asarray([1, 7]), jnp.asarray([width, width]))
    assert jnp.isfinite(follow).all()


def test_a_state_that_would_have_to_go_back_gives_no_number(weights):
    x, state = _rows(3, 16), deltanet.empty_state(CONFIG, 3)
    _, state = extend(x, weights, CONFIG, state, jnp.zeros(3, int), jnp.full(3, 9))
    out, _ = extend(x, weights, CONFIG, state, jnp.asarray([9, 5, 12]), jnp.full(3, 2))
    assert jnp.isfinite(out[0]).all() and jnp.isnan(out[1:]).all()
