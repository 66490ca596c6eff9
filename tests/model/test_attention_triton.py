"""The programs for NVIDIA GPUs, run as plain JAX: the same as the plain formula, in value and gradient, whatever the
row; and what blocks they go over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import attention, attention_triton
from mlexpert.model.attention import Keys
from mlexpert.model.attention_blocks import ids, pairs, ranges_of_keys, ranges_of_queries
from mlexpert.model.attention_chunked import chunked_attend

B, T = 2, 150  # T divides by no block
# A segment of one token, borders inside and on the edges of blocks, a segment over many blocks, padding.
LENGTHS = [[27, 1, 68, 32, 22], [3, 147]]
SEGMENTS = jnp.asarray([np.repeat([1, 2, 3, 4, 0], LENGTHS[0]), np.repeat([1, 2], LENGTHS[1])])
POSITIONS = jnp.asarray([np.concatenate([np.arange(n) for n in row]) for row in LENGTHS])
POSITIONS = jnp.where(SEGMENTS > 0, POSITIONS, 0)
REAL = (SEGMENTS > 0)[:, :, None, None]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(attention_triton, "INTERPRET", True)


def draw(heads, groups, width, dtype=jnp.float32, length=T):
    rng = np.random.default_rng(0)
    shapes = (B, length, heads, width), (B, groups, length, width), (B, groups, length, width)
    return tuple(jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes)


def packed(q, k, v):
    return attention_triton.attend(q, SEGMENTS, POSITIONS, Keys(k, v, SEGMENTS, POSITIONS))


def plain(q, k, v):
    return attention.attend(q, SEGMENTS, POSITIONS, [Keys(k, v, SEGMENTS, POSITIONS)])


def value_and_gradients(function, arrays, dtype=jnp.float32):
    """Of real tokens, every number of the result with a weight of its own."""

    def loss(*arrays):
        out = function(*arrays).astype(jnp.float32)
        weight = jnp.cos(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape)
        return (jnp.where(REAL, out * weight, 0)).sum(), out

    (_, out), gradients = jax.jit(jax.value_and_grad(loss, tuple(range(len(arrays))), has_aux=True))(*arrays)
    return [np.asarray(x, np.float32) for x in (jnp.where(REAL, out, 0), *gradients)], out


@pytest.mark.parametrize(("width", "heads", "groups"), [(64, 2, 2), (128, 4, 2), (256, 3, 1)])
def test_is_the_plain_formula_in_value_and_gradient(width, heads, groups):
    arrays = draw(heads, groups, width)
    (got, out), (want, _) = value_and_gradients(packed, arrays), value_and_gradients(plain, arrays)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    assert np.isfinite(out).all()  # padding too


def test_in_bfloat16_it_is_as_near_to_float32_as_chunks_are():
    def chunked(q, k, v):
        return chunked_attend(q, SEGMENTS, POSITIONS, Keys(k, v, SEGMENTS, POSITIONS))

    arrays = draw(4, 2, 128, jnp.bfloat16)
    exact, _ = value_and_gradients(plain, [x.astype(jnp.float32) for x in arrays])
    ours, chunks = (value_and_gradients(f, arrays)[0] for f in (packed, chunked))
    for a, b, want in zip(ours, chunks, exact, strict=True):
        assert np.linalg.norm(a - want) < 1.2 * np.linalg.norm(b - want) < 0.02 * np.linalg.norm(want)


def test_a_packed_segment_is_what_it_is_alone():
    q, k, v = draw(2, 1, 64)
    whole = jax.jit(packed)(q, k, v)
    for begin, length in ((0, 27), (28, 68)):
        here, segment, position = slice(begin, begin + length), jnp.full((1, length), 7), jnp.arange(length)[None]
        keys = Keys(k[:1, :, here], v[:1, :, here], segment, position)
        alone = jax.jit(attention_triton.attend)(q[:1, here], segment, position, keys)
        np.testing.assert_allclose(alone, whole[:1, here], atol=1e-6)


def test_stretches_of_a_row_are_slices_of_the_whole():
    """As on devices that hold a stretch of queries each, and all keys; where it begins is known at run time only."""
    q, k, v = draw(2, 1, 64)
    n = T // 3

    def stretch(q, k, v, start):
        q, segments, positions = (jax.lax.dynamic_slice_in_dim(x, start, n, 1) for x in (q, SEGMENTS, POSITIONS))
        return attention_triton.attend(q, segments, positions, Keys(k, v, SEGMENTS, POSITIONS), start=start)

    def cut(q, k, v):
        return jnp.moveaxis(jax.lax.map(lambda start: stretch(q, k, v, start), n * jnp.arange(3)), 0, 1).reshape(
            q.shape
        )

    (got, out), (want, whole) = value_and_gradients(cut, (q, k, v)), value_and_gradients(packed, (q, k, v))
    for a, b in zip([out, *got], [whole, *want], strict=True):  # padding too
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_blocks_that_see_nothing_are_not_touched():
    """Not a number times nothing is not a number: so what is not a number was not read."""
    length = 384
    segments = jnp.asarray([np.repeat([1, 2, 3], length // 3)] * B)
    positions = jnp.tile(jnp.arange(length // 3), (B, 3))
    q, k, v = draw(2, 1, 64, length=length)
    others = (segments != 2)[:, None, :, None]
    poisoned = [jnp.where(others, jnp.nan, x) for x in (k, v)]

    def loss(q, k, v):
        out = attention_triton.attend(q, segments, positions, Keys(k, v, segments, positions))
        return jnp.where((segments == 2)[:, :, None, None], out**2, 0).sum()

    gradients = jax.jit(jax.grad(loss, (0, 1, 2)))
    clean, got = gradients(q, k, v), gradients(q, *poisoned)
    np.testing.assert_array_equal(got[0][:, 128:256], clean[0][:, 128:256])
    for a, b in zip(got[1:], clean[1:], strict=True):
        np.testing.assert_array_equal(a[:, :, 128:256], b[:, :, 128:256])


def test_a_query_that_sees_nothing_gives_zero_and_learns_nothing():
    q, k, v = draw(2, 1, 64)

    def foreign(q, k, v):
        return attention_triton.attend(q, SEGMENTS, POSITIONS, Keys(k, v, SEGMENTS + 7, POSITIONS))

    results, out = value_and_gradients(foreign, (q, k, v))
    assert not np.asarray(out).any() and not any(x.any() for x in results)


@pytest.mark.parametrize("blocks", [(16, 8), (8, 32)])
@pytest.mark.parametrize("start", [0, 40])
def test_ranges_leave_nothing_out_and_whole_blocks_need_no_mask(blocks, start):
    (queries, keys), here = blocks, slice(start, start + 96)
    ids_q = ids(SEGMENTS[:, here], POSITIONS[:, here], start, 64, -1)  # filled up by whole blocks
    ids_k = ids(SEGMENTS, POSITIONS, 0, 64, -2)
    found = pairs(ids_q, ids_k, start, queries, keys)
    (sq, pq), (sk, pk) = (np.moveaxis(np.asarray(x), 1, 0) for x in (ids_q, ids_k))
    seen = (sq[:, :, None] == sk[:, None]) & (pk[:, None] <= pq[:, :, None])
    seen = seen.reshape(B, sq.shape[1] // queries, queries, sk.shape[1] // keys, keys)
    some, whole = seen.any((2, 4)), seen.all((2, 4))
    _check_ranges(np.asarray(ranges_of_keys(found)), some, whole, sq.reshape(B, -1, queries).min(2) >= 0)
    ranges, tokens = np.asarray(ranges_of_queries(found)), sk.reshape(B, -1, keys).min(2) > 0
    _check_ranges(ranges, some.swapaxes(1, 2), whole.swapaxes(1, 2), tokens)


def _check_ranges(ranges, some, whole, exact):
    """`exact` are the blocks for which nothing more is gone over than what lies between the first and the last seen."""
    begin, whole_begin, whole_end, end = np.moveaxis(ranges[:, :, None], 3, 0)
    at = np.arange(some.shape[2])
    assert ((begin <= whole_begin) & (whole_begin <= whole_end) & (whole_end <= end)).all()
    within, unmasked = (begin <= at) & (at < end), (whole_begin <= at) & (at < whole_end)
    assert not (some & ~within).any() and not (unmasked & ~whole).any()
    between = np.logical_or.accumulate(some, 2) & np.logical_or.accumulate(some[:, :, ::-1], 2)[:, :, ::-1]
    assert (within == between)[exact].all() and exact.any()
    assert (unmasked[1] == whole[1]).all() and whole[1].any()  # all that could be, where there is no padding


def test_a_row_of_one_segment_costs_its_triangle():
    length, block = 1024, 32
    row = ids(jnp.ones((1, length), jnp.int32), jnp.arange(length)[None], 0, block, 0)
    n = np.arange(length // block)
    found = pairs(row, row, 0, block, block)
    begin, whole_begin, whole_end, end = ranges_of_keys(found)[0].T
    assert (begin == 0).all() and (end == n + 1).all() and (whole_end - whole_begin == n).all()
    begin, whole_begin, whole_end, end = ranges_of_queries(found)[0].T
    assert (begin == n).all() and (end == len(n)).all() and (whole_end - whole_begin == len(n) - n - 1).all()


@pytest.mark.parametrize(
    ("heads", "groups", "width", "dtypes", "words"),
    [
        (2, 1, 96, ("float32",) * 3, "triton attention: heads must be 64, 128, 256 wide, not 96"),
        (3, 2, 64, ("float32",) * 3, "3 query heads cannot share 2 key heads"),
        (2, 1, 64, ("bfloat16", "float32", "float32"), "got bfloat16, float32, float32"),
        (2, 1, 64, ("float16",) * 3, "got float16"),
    ],
)
def test_what_there_are_no_programs_for_is_refused(heads, groups, width, dtypes, words):
    arrays = [x.astype(dtype) for x, dtype in zip(draw(heads, groups, width), dtypes, strict=True)]
    with pytest.raises(ValueError, match=words):
        packed(*arrays)
