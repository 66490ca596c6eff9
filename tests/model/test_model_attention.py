"""Attention against the plain formula, one query at a time, and its independence of how rows are packed and cut."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import attention
from mlexpert.model.attention import Keys

H, G, K = 4, 2, 8

attend, self_attend = jax.jit(attention.attend), jax.jit(attention.self_attend)


def _draw(batch, length):
    rng = np.random.default_rng(0)
    shapes = (batch, length, H, K), (batch, G, length, K), (batch, G, length, K)
    return tuple(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)


def _plain(q, k, v, segments, positions):
    out = np.zeros(q.shape)
    for b, t, h in np.ndindex(*q.shape[:3]):
        seen = [c for c in range(q.shape[1]) if segments[b, c] == segments[b, t] and positions[b, c] <= positions[b, t]]
        scores = np.array([np.dot(q[b, t, h], k[b, h // (H // G), c]) for c in seen]) / np.sqrt(K)
        probs = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        out[b, t, h] = probs @ np.array([v[b, h // (H // G), c] for c in seen])
    return out


def test_matches_the_plain_formula_on_a_packed_padded_row():
    segments = np.array([[1, 1, 1, 2, 2, 2, 2, 0, 0], [3, 3, 3, 3, 3, 3, 3, 3, 4]])
    positions = np.array([[0, 1, 2, 0, 1, 2, 3, 0, 1], [0, 1, 2, 3, 4, 5, 6, 7, 0]])
    q, k, v = _draw(2, 9)
    got = self_attend(q, k, v, jnp.asarray(segments), jnp.asarray(positions))
    want = _plain(np.asarray(q), np.asarray(k), np.asarray(v), segments, positions)
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("block", [7, 16])
def test_query_blocks_change_nothing(monkeypatch, block):
    q, k, v = _draw(2, 30)
    segments = jnp.asarray(np.repeat([[1, 2, 0], [1, 1, 2]], 10, axis=1))
    positions = jnp.asarray([[*range(10)] * 3, [*range(20), *range(10)]])
    whole = self_attend(q, k, v, segments, positions)
    monkeypatch.setattr(attention, "QUERY_BLOCK", block)
    np.testing.assert_allclose(jax.jit(partial(attention.self_attend))(q, k, v, segments, positions), whole, atol=1e-6)


def test_keys_in_parts_equal_keys_in_one():
    q, k, v = _draw(2, 12)
    segments, positions = jnp.ones((2, 12), jnp.int32), jnp.tile(jnp.arange(12), (2, 1))
    parts = [Keys(k[:, :, s], v[:, :, s], segments[:, s], positions[:, s]) for s in (slice(0, 5), slice(5, 12))]
    np.testing.assert_allclose(
        attend(q, segments, positions, parts), self_attend(q, k, v, segments, positions), atol=1e-6
    )


def test_no_gradient_crosses_a_segment_border_or_runs_backwards_in_time():
    q, k, v = _draw(1, 8)
    segments, positions = jnp.asarray([[1] * 4 + [2] * 4]), jnp.asarray([[0, 1, 2, 3] * 2])
    gradient = jax.grad(lambda v: self_attend(q, k, v, segments, positions)[0, 5].sum())(v)
    touched = np.abs(gradient[0]).sum(axis=(0, 2)) > 0
    assert touched.tolist() == [False] * 4 + [True, True, False, False]
