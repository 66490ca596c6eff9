"""Attention for NVIDIA GPUs: FlashAttention-2 (Dao 2023) as three Pallas programs, none of which keeps a score.

    out, log z   one program per block of queries and head, over blocks of keys, softmax taken online
    dk, dv       one program per block of keys and key head, over its query heads and their blocks of queries
    dq           one program per block of queries and head, over blocks of keys

The backward programs make the weights again from the kept normaliser, exp(score - log z). Keys are never repeated for
the query heads that share them. Every program is told beforehand which blocks its loop goes over, and which of them
need no mask (attention_blocks).

Sums and softmax are float32; products are of the inputs' dtype, those of float32 as exact as JAX is set to
(jax_default_matmul_precision). Logarithms are binary inside, as the hardware's exponential is.

Shape letters: H query heads, G key heads, R = H / G, K head width, T queries and C keys, N and M blocks of them; the
second 2 of ids is (segment, position).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from mlexpert.model.attention import MASKED, Keys
from mlexpert.model.attention_blocks import fill, ids, pairs, ranges_of_keys, ranges_of_queries

INTERPRET = False  # True runs the programs as plain JAX on any device: for tests
FLOOR = -1e20  # where the running maximum begins: above MASKED, so that what is masked weighs exactly nothing


class Tile(NamedTuple):
    """Queries and keys of a block (powers of two), and how many warps and buffered steps they are worked on with."""

    queries: int
    keys: int
    warps: int
    stages: int


class Tiles(NamedTuple):
    forward: Tile
    dkv: Tile
    dq: Tile


class Ranges(NamedTuple):
    """Of every program's loop."""

    forward_BxNx4: jax.Array
    dkv_BxMx4: jax.Array
    dq_BxNx4: jax.Array


# By head width and bytes of a number. They fit into Hopper's 227 KiB of shared memory and, by its compiler's word,
# wholly or nearly into registers; a wider head leaves room for fewer keys.
TILES = {
    (64, 2): Tiles(Tile(128, 64, 4, 3), Tile(64, 128, 8, 3), Tile(128, 64, 4, 3)),
    (128, 2): Tiles(Tile(128, 128, 8, 2), Tile(64, 128, 8, 2), Tile(128, 64, 8, 2)),
    (256, 2): Tiles(Tile(128, 64, 8, 2), Tile(64, 64, 8, 2), Tile(128, 32, 8, 2)),
    (64, 4): Tiles(Tile(64, 32, 8, 2), Tile(32, 32, 8, 2), Tile(32, 32, 8, 2)),
    (128, 4): Tiles(Tile(32, 32, 8, 2), Tile(32, 32, 8, 2), Tile(32, 32, 8, 2)),
    (256, 4): Tiles(Tile(32, 32, 8, 1), Tile(16, 32, 8, 1), Tile(32, 32, 8, 1)),
}


def attend(
    q_BxTxHxK: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array, keys: Keys, start: jax.Array | int = 0
) -> jax.Array:
    """As `attention.attend` with one part of keys, of packed rows; a query that sees no key gives zero; [B, T, H, K].

    Keys are the whole row's, queries those from `start` on; within a segment positions ascend along the row. Padding
    (segment 0) sees the padding before it. Raises ValueError for heads or dtypes that there are no programs for.
    """
    _check(q_BxTxHxK, keys)
    tiles, length = _tiles(q_BxTxHxK), q_BxTxHxK.shape[1]
    n_queries, n_keys = max(tile.queries for tile in tiles), max(tile.keys for tile in tiles)
    ids_Bx2xT = ids(segments_BxT, positions_BxT, start, n_queries, -1)  # what fills up sees nothing and is not seen
    ids_Bx2xC = ids(keys.segments_BxC, keys.positions_BxC, 0, n_keys, -2)
    forward, dkv, dq = (pairs(ids_Bx2xT, ids_Bx2xC, start, tile.queries, tile.keys) for tile in tiles)
    ranges = Ranges(ranges_of_keys(forward), ranges_of_queries(dkv), ranges_of_keys(dq))
    k, v = fill(keys.k_BxGxCxK, 2, n_keys), fill(keys.v_BxGxCxK, 2, n_keys)
    return _attend(fill(q_BxTxHxK, 1, n_queries), k, v, ids_Bx2xT, ids_Bx2xC, ranges)[:, :length]


def refusal(q_shape: tuple[int, ...], k_shape: tuple[int, ...]) -> str:
    """What of queries [B, T, H, K] over keys [B, G, C, K] there are no programs for; "" if nothing."""
    heads, groups, width = q_shape[2], k_shape[1], q_shape[3]
    if heads % groups:
        return f"{heads} query heads cannot share {groups} key heads evenly"
    widths = sorted({width for width, _ in TILES})
    return "" if width in widths else f"heads must be {', '.join(map(str, widths))} wide, not {width}"


def _check(q_BxTxHxK: jax.Array, keys: Keys) -> None:
    if refused := refusal(q_BxTxHxK.shape, keys.k_BxGxCxK.shape):
        raise ValueError(f"triton attention: {refused}")
    dtypes = [str(x.dtype) for x in (q_BxTxHxK, keys.k_BxGxCxK, keys.v_BxGxCxK)]
    if len(set(dtypes)) > 1 or dtypes[0] not in ("bfloat16", "float32"):
        found = ", ".join(dtypes)
        raise ValueError(f"triton attention: queries, keys, values must all be bfloat16 or all float32, got {found}")


def _tiles(q_BxTxHxK: jax.Array) -> Tiles:
    return TILES[q_BxTxHxK.shape[3], q_BxTxHxK.dtype.itemsize]


@jax.custom_vjp
def _attend(q_BxTxHxK, k_BxGxCxK, v_BxGxCxK, ids_Bx2xT, ids_Bx2xC, ranges: Ranges):
    return _forward(q_BxTxHxK, k_BxGxCxK, v_BxGxCxK, ids_Bx2xT, ids_Bx2xC, ranges)[0]


def _forward(q_BxTxHxK, k_BxGxCxK, v_BxGxCxK, ids_Bx2xT, ids_Bx2xC, ranges: Ranges):
    batch, length, heads, _ = q_BxTxHxK.shape
    log_z = jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)
    arrays = ids_Bx2xT, ids_Bx2xC, q_BxTxHxK, k_BxGxCxK, v_BxGxCxK
    tile = _tiles(q_BxTxHxK).forward
    out, log_z_BxHxT = _per_queries(_attention, tile, (_like(q_BxTxHxK), log_z), ranges.forward_BxNx4, *arrays)
    return out, (*arrays, ranges, out, log_z_BxHxT)


def _backward(saved, d_out_BxTxHxK: jax.Array):
    ids_Bx2xT, ids_Bx2xC, q, k, v, ranges, out_BxTxHxK, log_z_BxHxT = saved
    along_BxTxH = (d_out_BxTxHxK.astype(jnp.float32) * out_BxTxHxK.astype(jnp.float32)).sum(-1)
    rest = ids_Bx2xT, ids_Bx2xC, q, k, v, d_out_BxTxHxK, log_z_BxHxT, along_BxTxH.swapaxes(1, 2)
    dk, dv = _per_keys(_attention_dkv, _tiles(q).dkv, (_like(k), _like(v)), ranges.dkv_BxMx4, *rest)
    (dq,) = _per_queries(_attention_dq, _tiles(q).dq, (_like(q),), ranges.dq_BxNx4, *rest)
    return dq, dk, dv, None, None, None


_attend.defvjp(_forward, _backward)


def _like(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _per_queries(program: Callable, tile: Tile, shapes, ranges_BxNx4, ids_Bx2xT, ids_Bx2xC, q_BxTxHxK, k, v, *rest):
    """Runs a program for every block of queries of every head; late blocks, which see most, go first."""
    (batch, length, heads, width), (_, groups, n_keys, _) = q_BxTxHxK.shape, k.shape
    size, last, repeats = tile.queries, length // tile.queries - 1, heads // groups
    query = pl.BlockSpec((None, size, None, width), lambda n, h, b: (b, last - n, h, 0))
    number = pl.BlockSpec((None, None, size), lambda n, h, b: (b, h, last - n))  # one per query
    key = pl.BlockSpec((None, None, n_keys, width), lambda n, h, b: (b, h // repeats, 0, 0))
    places = [
        pl.BlockSpec((None, None, 4), lambda n, h, b: (b, last - n, 0)),
        pl.BlockSpec((None, 2, size), lambda n, h, b: (b, 0, last - n)),
        pl.BlockSpec((None, 2, n_keys), lambda n, h, b: (b, 0, 0)),
        *(query, key, key, query, number, number)[: 3 + len(rest)],
    ]
    arrays = ranges_BxNx4, ids_Bx2xT, ids_Bx2xC, q_BxTxHxK, k, v, *rest
    grid = length // size, heads, batch
    return _run(partial(program, block=tile.keys), tile, grid, places, [query, number][: len(shapes)], shapes, arrays)


def _per_keys(program: Callable, tile: Tile, shapes, ranges_BxMx4, ids_Bx2xT, ids_Bx2xC, q_BxTxHxK, k, v, *rest):
    """Runs a program for every block of keys of every key head; early blocks, which are seen most, go first."""
    (batch, length, heads, width), (_, groups, n_keys, _) = q_BxTxHxK.shape, k.shape
    repeats = heads // groups
    query = pl.BlockSpec((None, length, repeats, width), lambda m, g, b: (b, 0, g, 0))
    number = pl.BlockSpec((None, repeats, length), lambda m, g, b: (b, g, 0))
    key = pl.BlockSpec((None, None, tile.keys, width), lambda m, g, b: (b, g, m, 0))
    places = [
        pl.BlockSpec((None, None, 4), lambda m, g, b: (b, m, 0)),
        pl.BlockSpec((None, 2, length), lambda m, g, b: (b, 0, 0)),
        pl.BlockSpec((None, 2, tile.keys), lambda m, g, b: (b, 0, m)),
        *(query, key, key, query, number, number),
    ]
    arrays = ranges_BxMx4, ids_Bx2xT, ids_Bx2xC, q_BxTxHxK, k, v, *rest
    grid = n_keys // tile.keys, groups, batch
    return _run(partial(program, block=tile.queries), tile, grid, places, [key, key], shapes, arrays)


def _run(program: partial, tile: Tile, grid: tuple[int, ...], places, places_out, shapes, arrays):
    return pl.pallas_call(
        program,
        grid=grid,
        in_specs=places,
        out_specs=places_out,
        out_shape=shapes,
        compiler_params=plgpu.CompilerParams(num_warps=tile.warps, num_stages=tile.stages),
        interpret=INTERPRET,
        name=program.func.__name__.strip("_"),
    )(*arrays)


def _attention(range_ref, ids_ref, key_ids_ref, q_ref, k_ref, v_ref, out_ref, log_z_ref, *, block: int):
    q, scale = q_ref[...], _scale(q_ref)

    def add(i, carry, masked: bool):
        top, total, mixed = carry
        here = pl.ds(i * block, block)
        scores = plgpu.dot(q, k_ref[here, :], trans_b=True)
        if masked:
            scores = jnp.where(_seen(ids_ref, key_ids_ref, here), scores, MASKED)
        new = jnp.maximum(top, scores.max(axis=1) * scale)
        weights, shrink = jnp.exp2(scores * scale - new[:, None]), jnp.exp2(top - new)
        added = plgpu.dot(weights.astype(v_ref.dtype), v_ref[here, :])
        return new, total * shrink + weights.sum(axis=1), mixed * shrink[:, None] + added

    nothing = jnp.zeros(log_z_ref.shape, jnp.float32)
    empty = nothing + FLOOR, nothing, jnp.zeros(out_ref.shape, jnp.float32)
    top, total, mixed = _over_blocks(range_ref, add, empty)
    total = jnp.where(total > 0, total, 1.0)
    out_ref[...] = (mixed / total[:, None]).astype(out_ref.dtype)
    log_z_ref[...] = top + jnp.log2(total)


def _attention_dq(
    range_ref, ids_ref, key_ids_ref, q_ref, k_ref, v_ref, d_out_ref, log_z_ref, along_ref, dq_ref, *, block: int
):
    q, d_out, log_z, along, scale = q_ref[...], d_out_ref[...], log_z_ref[...], along_ref[...], _scale(q_ref)

    def add(i, dq, masked: bool):
        here = pl.ds(i * block, block)
        k = k_ref[here, :]
        scores = plgpu.dot(q, k, trans_b=True)
        if masked:
            scores = jnp.where(_seen(ids_ref, key_ids_ref, here), scores, MASKED)
        weights = jnp.exp2(scores * scale - log_z[:, None])
        d_scores = weights * (plgpu.dot(d_out, v_ref[here, :], trans_b=True) - along[:, None])
        return dq + plgpu.dot(d_scores.astype(k.dtype), k)

    dq = _over_blocks(range_ref, add, jnp.zeros(dq_ref.shape, jnp.float32))
    dq_ref[...] = (dq * q_ref.shape[-1] ** -0.5).astype(dq_ref.dtype)


def _attention_dkv(
    range_ref, ids_ref, key_ids_ref, q_ref, k_ref, v_ref, d_out_ref, log_z_ref, along_ref, *dkv_refs, block: int
):
    k, v, scale = k_ref[...], v_ref[...], _scale(q_ref)

    def add(i, carry, masked: bool, head):
        dk, dv = carry
        here = pl.ds(i * block, block)
        q, d_out = q_ref[here, head, :], d_out_ref[here, head, :]
        scores = plgpu.dot(k, q, trans_b=True)  # keys x queries, as the last two products read them
        if masked:
            scores = jnp.where(_seen(key_ids_ref, ids_ref, here, swapped=True), scores, MASKED)
        weights = jnp.exp2(scores * scale - log_z_ref[head, here][None])
        d_scores = weights * (plgpu.dot(v, d_out, trans_b=True) - along_ref[head, here][None])
        return dk + plgpu.dot(d_scores.astype(q.dtype), q), dv + plgpu.dot(weights.astype(q.dtype), d_out)

    def of_head(head, carry):
        return _over_blocks(range_ref, partial(add, head=head), carry)

    nothing = jnp.zeros(k_ref.shape, jnp.float32)
    dk, dv = jax.lax.fori_loop(0, q_ref.shape[1], of_head, (nothing, nothing))
    for ref, gradient in zip(dkv_refs, (dk * q_ref.shape[-1] ** -0.5, dv), strict=True):
        ref[...] = gradient.astype(ref.dtype)


def _over_blocks(range_ref, add: Callable, carry: Any) -> Any:
    begin, whole_begin, whole_end, end = (range_ref[i] for i in range(4))
    carry = jax.lax.fori_loop(begin, whole_begin, partial(add, masked=True), carry)
    carry = jax.lax.fori_loop(whole_begin, whole_end, partial(add, masked=False), carry)
    return jax.lax.fori_loop(whole_end, end, partial(add, masked=True), carry)


def _seen(rows_ref, columns_ref, here, swapped: bool = False) -> jax.Array:
    """Same segment and key not later: the program's own ids in rows, those `here` in columns, keys unless swapped."""
    segment, position = rows_ref[0, :][:, None], rows_ref[1, :][:, None]
    other_segment, other_position = columns_ref[0, here][None], columns_ref[1, here][None]
    past = position <= other_position if swapped else other_position <= position
    return (segment == other_segment) & past


def _scale(q_ref) -> float:
    """Of scores, for exponents of two."""
    return q_ref.shape[-1] ** -0.5 * math.log2(math.e)
