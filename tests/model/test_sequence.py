"""Rows in chunks, and rows cut into stretches over devices: the same as whole rows, in value and gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from mlexpert.model import attention_chunked, deltanet, sequence
from mlexpert.model.attention import Keys, self_attend
from mlexpert.model.attention_chunked import chunked_attend
from mlexpert.model.config import preset
from mlexpert.model.parallel import ALONE, Parallel, shift, starts
from mlexpert.model.params import init
from mlexpert.model.sequence import attend_rows, left_inputs
from mlexpert.model.sharding import MeshShape, make_mesh

B, T, H, G, K = 2, 48, 4, 2, 8
DEVICES = 4
HYBRID = preset("micro_hybrid")
# Borders inside stretches, on their borders (12, 24, 36), a stretch of one token, a segment over three devices.
SEGMENTS = jnp.asarray([np.repeat([1, 2, 3, 0], [11, 14, 20, 3]), np.repeat([1, 2, 3], [12, 1, 35])])
POSITIONS = jnp.asarray([[*range(11), *range(14), *range(20), 0, 1, 2], [*range(12), 0, *range(35)]])


def spread(function, n_arrays):
    """The function of arrays [B, T, ...], its rows cut over devices; called inside with the way to the others."""
    mesh = make_mesh(MeshShape(sequence=DEVICES), jax.devices()[:DEVICES])
    parallel = Parallel(tokens=("sequence",), sequence="sequence")
    row = P(None, "sequence")
    return jax.shard_map(
        lambda *a: function(*a, parallel), mesh=mesh, in_specs=(*[row] * n_arrays, P()), out_specs=row, check_vma=False
    )


def same(function, reference, arrays, others, atol=2e-5):
    """Value and gradient agree, of arrays and of others (weights)."""

    def total(f):
        def loss(arrays, others):
            out = f(*arrays, others)
            return (out * jnp.cos(jnp.arange(out.size)).reshape(out.shape)).sum(), out

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))

    ((_, out), grads), ((_, want), wanted) = total(function)(arrays, others), total(reference)(arrays, others)
    np.testing.assert_allclose(out, want, atol=atol)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol * 5, rtol=1e-4), grads, wanted)


@pytest.fixture(scope="module")
def qkv():
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.normal(size=(B, T, heads, K)), jnp.float32) for heads in (H, G, G))


def heads_first(x):
    return x.transpose(0, 2, 1, 3)


def whole(q, k, v, _=None):
    return self_attend(q, heads_first(k), heads_first(v), SEGMENTS, POSITIONS)


@pytest.mark.parametrize("sizes", [(8, 16), (16, 8), (7, 11), (512, 1024)])
def test_chunks_of_queries_and_keys_change_nothing(monkeypatch, qkv, sizes):
    monkeypatch.setattr(attention_chunked, "QUERIES", sizes[0])
    monkeypatch.setattr(attention_chunked, "KEYS", sizes[1])

    def chunked(q, k, v, _):
        return chunked_attend(q, SEGMENTS, POSITIONS, Keys(heads_first(k), heads_first(v), SEGMENTS, POSITIONS))

    same(chunked, whole, qkv, ())


def test_a_query_that_sees_nothing_gives_zero(qkv):
    q, k, v = qkv
    foreign = Keys(heads_first(k), heads_first(v), SEGMENTS + 7, POSITIONS)
    assert not chunked_attend(q, SEGMENTS, POSITIONS, foreign).any()


def test_memory_of_chunks_does_not_grow_with_the_row_squared():
    def temporaries(n):
        shapes = [jax.ShapeDtypeStruct((1, n, heads, 16), jnp.float32) for heads in (2, 1, 1)]
        ids = jnp.ones((1, n), jnp.int32), jnp.arange(n)[None]

        def total(q, k, v):
            return (attend_rows(q, heads_first(k), heads_first(v), *ids, ALONE) ** 2).sum()

        memory = jax.jit(jax.grad(total, (0, 1, 2))).lower(*shapes).compile().memory_analysis()
        assert memory is not None
        return memory.temp_size_in_bytes

    assert temporaries(16384) < 3 * temporaries(8192)
    assert temporaries(16384) < 2 * 16384**2  # one score of a head in a byte


def test_attention_over_devices(qkv):
    def local(q, k, v, segments, positions, _, parallel):
        return attend_rows(q, heads_first(k), heads_first(v), segments, positions, parallel)

    def over(q, k, v, _):
        return spread(local, 5)(q, k, v, SEGMENTS, POSITIONS, ())

    same(over, whole, qkv, ())


def test_linear_attention_over_devices():
    weights = jax.tree.map(lambda x: x[0], init(HYBRID, jax.random.key(0))["blocks"][0]["deltanet"])
    weights = jax.tree.map(lambda x: x + 0.2 * jax.random.normal(jax.random.key(x.size), x.shape), weights)
    x = jax.random.normal(jax.random.key(1), (B, T, HYBRID.d_model))

    def over(x, weights):
        return spread(lambda x, s, w, parallel: deltanet.mix_rows(x, w, HYBRID, s, parallel), 2)(x, SEGMENTS, weights)

    same(over, lambda x, weights: deltanet.mix_rows(x, weights, HYBRID, SEGMENTS), (x,), weights)


@pytest.mark.parametrize("by", [1, -1])
def test_shift_is_a_roll_of_whole_rows(by):
    x = jax.random.normal(jax.random.key(0), (B, T, 3))
    got = spread(lambda x, _, parallel: shift(x, by, parallel), 1)(x, ())
    np.testing.assert_array_equal(got, jnp.roll(x, by, axis=1))


def test_starts_are_where_the_left_neighbour_is_of_another_segment():
    got = spread(lambda s, _, parallel: starts(s, parallel), 1)(SEGMENTS, ())
    np.testing.assert_array_equal(got, starts(SEGMENTS, ALONE))
    assert np.flatnonzero(got[1]).tolist() == [0, 12, 13]


def test_a_stretch_must_hold_the_past_of_a_convolution():
    with pytest.raises(ValueError, match="stretch of 2 tokens"):
        left_inputs(jnp.zeros((1, 2, 4)), jnp.zeros((1, 2), bool), 3, ALONE)


@pytest.mark.parametrize("limit", [1, B * T * 2])
def test_heads_in_groups_change_nothing(monkeypatch, limit):
    weights = jax.tree.map(lambda x: x[0], init(HYBRID, jax.random.key(0))["blocks"][0]["deltanet"])
    x = jax.random.normal(jax.random.key(1), (B, T, HYBRID.d_model))

    def mix(x, weights):
        return deltanet.mix_rows(x, weights, HYBRID, SEGMENTS)

    def in_groups(x, weights):
        with monkeypatch.context() as patch:
            patch.setattr(sequence, "HEAD_TOKENS", limit)
            return mix(x, weights)

    same(in_groups, mix, (x,), weights)


def test_who_sees_whom_is_not_kept_for_all_layers():
    """JAX moves what does not depend on the layer out of a scan over layers: large, for all pairs of chunks."""

    def temporaries(n):
        shapes = [jax.ShapeDtypeStruct((1, n, heads, 16), jnp.float32) for heads in (2, 1, 1)]
        ids = jnp.ones((1, n), jnp.int32), jnp.arange(n)[None]

        def layers(q, k, v):
            def layer(x, _):
                return x + attend_rows(x, heads_first(k), heads_first(v), *ids, ALONE), None

            return (jax.lax.scan(jax.checkpoint(layer), q, None, length=2)[0] ** 2).sum()

        memory = jax.jit(jax.grad(layers, (0, 1, 2))).lower(*shapes).compile().memory_analysis()
        assert memory is not None
        return memory.temp_size_in_bytes

    assert temporaries(16384) < 3 * temporaries(8192)
    assert temporaries(16384) < 2 * 16384**2
