"""Splash attention, its kernels run as plain JAX: what the formula gives, however rows are packed and cut."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from mlexpert.model import attention_splash
from mlexpert.model.attention import Keys, self_attend
from mlexpert.model.attention_chunked import chunked_attend
from mlexpert.model.parallel import Parallel
from mlexpert.model.sequence import attend_rows
from mlexpert.model.sharding import MeshShape, make_mesh

T, H, G, K = 512, 4, 2, 8
DEVICES = 4
REAL = attention_splash.QUERIES, attention_splash.KEYS, attention_splash.KEYS_AT_ONCE
# Borders inside blocks of 128 and on them, a segment of one token, one that ends three blocks later, and padding.
LENGTHS = [[100, 29, 1, 380, 2], [128, 128, 200, 56]]
SEGMENTS = jnp.asarray([np.repeat([1, 2, 3, 4, 0], LENGTHS[0]), np.repeat([1, 2, 3, 0], LENGTHS[1])])
POSITIONS = jnp.asarray([np.concatenate([np.arange(n) for n in lengths]) for lengths in LENGTHS])


@pytest.fixture(autouse=True)
def small_blocks_as_plain_jax(monkeypatch):
    monkeypatch.setattr(attention_splash, "INTERPRET", True)
    blocks_of(monkeypatch, 128, 256, 128)


def blocks_of(monkeypatch, queries, keys, at_once):
    for name, size in (("QUERIES", queries), ("KEYS", keys), ("KEYS_AT_ONCE", at_once)):
        monkeypatch.setattr(attention_splash, name, size)


def drawn(batch=2, length=T, heads=(H, G), width=K):
    rng = np.random.default_rng(0)
    shapes = (batch, length, heads[0], width), *[(batch, heads[1], length, width)] * 2
    return tuple(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)


def splash(q, k, v):
    return attention_splash.attend(q, SEGMENTS, POSITIONS, Keys(k, v, SEGMENTS, POSITIONS))


def whole(q, k, v):
    return self_attend(q, k, v, SEGMENTS, POSITIONS)


def value_and_gradient(function, *arrays):
    def total(*arrays):
        out = function(*arrays)
        return (out * jnp.cos(jnp.arange(out.size)).reshape(out.shape)).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(total, tuple(range(len(arrays))), has_aux=True))(*arrays)
    return out, *grads


def same(function, reference, *arrays):
    for got, want in zip(value_and_gradient(function, *arrays), value_and_gradient(reference, *arrays), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("heads", "width"), [((4, 2), 8), ((2, 2), 64), ((4, 1), 256)])
def test_value_and_gradient_are_the_formulas(heads, width):
    same(splash, whole, *drawn(heads=heads, width=width))


def test_it_agrees_with_chunks():
    def chunked(q, k, v):
        return chunked_attend(q, SEGMENTS, POSITIONS, Keys(k, v, SEGMENTS, POSITIONS))

    same(splash, chunked, *drawn())


@pytest.mark.parametrize("sizes", [(256, 128, 128), (512, 512, 256)])
def test_the_size_of_blocks_changes_nothing(monkeypatch, sizes):
    blocks_of(monkeypatch, *sizes)
    same(splash, whole, *drawn())


def test_packed_is_separate():
    """Each sequence alone, in a row of its own, gives what it gives among others."""
    q, k, v = drawn(batch=1)
    segments, positions = SEGMENTS[1:], POSITIONS[1:]
    packed = attention_splash.attend(q, segments, positions, Keys(k, v, segments, positions))
    for start, end in ((0, 128), (128, 256), (256, 456)):
        alone = (jnp.arange(T) < end - start).astype(jnp.int32)[None]
        keys = Keys(jnp.roll(k, -start, 2), jnp.roll(v, -start, 2), alone, positions)
        got = attention_splash.attend(jnp.roll(q, -start, 1), alone, positions, keys)
        np.testing.assert_allclose(got[:, : end - start], packed[:, start:end], atol=1e-6)


def test_padding_is_finite():
    found = value_and_gradient(splash, *drawn())
    assert all(np.isfinite(x).all() for x in found)
    (q, k, v), empty = drawn(), jnp.zeros((2, T), jnp.int32)
    assert np.isfinite(attention_splash.attend(q, empty, POSITIONS, Keys(k, v, empty, POSITIONS))).all()


def test_blocks_of_other_segments_are_not_visited():
    """What is not a number there would spread through any product, masked or not, forward and backward."""
    halves, segments = drawn(batch=1, length=T // 2), jnp.asarray([np.repeat([1, 2, 0], [T // 2, T // 2 - 50, 50])])

    def behind(filler, q, k, v):
        filled = (jnp.concatenate([jnp.full_like(x, filler), x], axis) for x, axis in ((q, 1), (k, 2), (v, 2)))
        q, k, v = filled
        return attention_splash.attend(q, segments, segments, Keys(k, v, segments, segments))[:, T // 2 :]

    found, wanted = (value_and_gradient(partial(behind, filler), *halves) for filler in (jnp.nan, 0.0))
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


# ---------------------------------------------------------------- stretches of rows
@pytest.mark.parametrize("start", [128, 384])
def test_a_stretch_is_its_part_of_the_row(start):
    q, k, v = drawn()
    here = slice(start, start + 128)

    @jax.jit
    def stretch(q, start):
        keys = Keys(k, v, SEGMENTS, POSITIONS)
        return attention_splash.attend(q, SEGMENTS[:, here], POSITIONS[:, here], keys, start=start)

    np.testing.assert_allclose(stretch(q[:, here], start), whole(q, k, v)[:, here], atol=1e-5)


def test_rows_over_devices():
    """Value and gradient; the model's way to it."""
    parallel = Parallel(tokens=("sequence",), sequence="sequence", attention="splash")
    mesh = make_mesh(MeshShape(sequence=DEVICES), jax.devices()[:DEVICES])
    row, key = P(None, "sequence"), P(None, None, "sequence")
    local = jax.shard_map(
        lambda q, k, v, segments, positions: attend_rows(q, k, v, segments, positions, parallel),
        mesh=mesh,
        in_specs=(row, key, key, row, row),
        out_specs=row,
        check_vma=False,
    )
    same(lambda q, k, v: local(q, k, v, SEGMENTS, POSITIONS), whole, *drawn())


def test_layers_that_are_computed_again():
    def layers(attend):
        def run(q, k, v):
            def layer(x, _):
                return x + attend(x, k, v), None

            return jax.lax.scan(jax.checkpoint(layer), q, None, length=2)[0]

        return run

    def asked(q, k, v):
        return attend_rows(q, k, v, SEGMENTS, POSITIONS, Parallel(attention="splash"))

    same(layers(asked), layers(whole), *drawn())


def test_the_precision_of_the_inputs_is_that_of_the_products():
    q, k, v = (x.astype(jnp.bfloat16) for x in drawn())
    got, want = splash(q, k, v), whole(*(x.astype(jnp.float32) for x in (q, k, v)))
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(got.astype(jnp.float32), want, atol=0.03)


# ---------------------------------------------------------------- what it cannot do
@pytest.mark.parametrize(
    ("queries", "keys", "said"),
    [
        (96, 512, "96 queries of a row are no multiple of 128"),
        (128, 500, "500 keys of a row are no multiple of 128"),
        (128 * 601, 128 * 601, "76928 keys of a row divide into blocks of 128 only"),
    ],
)
def test_shapes_that_are_refused(queries, keys, said):
    q, k = jax.ShapeDtypeStruct((1, queries, H, K), jnp.float32), jax.ShapeDtypeStruct((1, G, keys, K), jnp.float32)
    ids = (jax.ShapeDtypeStruct((1, n), jnp.int32) for n in (queries, keys))
    with pytest.raises(ValueError, match=f"splash attention: {said}"):
        jax.eval_shape(lambda q, k, i, j: attention_splash.attend(q, i, i, Keys(k, k, j, j)), q, k, *ids)


def test_the_longest_rows_of_the_large_models_are_not_refused(monkeypatch):
    blocks_of(monkeypatch, *REAL)
    for stretch, row in ((131_072, 131_072), (32_768, 131_072), (40_960, 40_960), (262_144, 262_144)):
        assert not attention_splash.refusal((1, stretch, 16, 256), (1, 2, row, 256))
