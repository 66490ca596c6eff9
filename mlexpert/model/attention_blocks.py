"""Which blocks of queries and keys see each other, for programs that go over the one or the other block by block.

A row is packed: its segments follow each other, padding comes last, positions ascend within a segment. So what a block
sees is one range of blocks, within which a second range is seen whole and needs no mask:

    blocks   begin ... whole_begin ... whole_end ... end      masked | not masked | masked

In a row of one segment nearly every pair is whole or nothing. The ranges are found from each block's first and last
ids, without a look at single pairs of tokens. They may hold blocks that see nothing, so masks have the last word; they
never leave one out.

Shape letters: T queries, C keys, N and M blocks of them; the second 2 of ids is (segment, position).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

LATE = 2**30  # padding comes behind all segments


class Pairs(NamedTuple):
    """Whether blocks see something of each other, and whether each query sees every key."""

    some_BxNxM: jax.Array
    whole_BxNxM: jax.Array


def ids(segments_BxC: jax.Array, positions_BxC: jax.Array, start: jax.Array | int, block: int, filler: int):
    """[B, 2, C], C filled up to whole blocks. `start` is the place of the first token in its row.

    Padding gets its place in the row for its position (it often has none of its own): it sees the padding before it.
    """
    here_BxC = jnp.broadcast_to(start + jnp.arange(segments_BxC.shape[1])[None], segments_BxC.shape)
    positions_BxC = jnp.where(segments_BxC == 0, here_BxC, positions_BxC)
    return fill(jnp.stack([segments_BxC, positions_BxC], axis=1).astype(jnp.int32), 2, block, filler)


def fill(x: jax.Array, axis: int, block: int, filler: int = 0) -> jax.Array:
    """Up to whole blocks."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % block)
    return jnp.pad(x, widths, constant_values=filler)


def pairs(ids_Bx2xT: jax.Array, ids_Bx2xC: jax.Array, start: jax.Array | int, queries: int, keys: int) -> Pairs:
    """Of blocks of so many queries and keys; the first query is at `start` of the row of keys."""
    low_q, high_q, first_q, _ = (x[:, :, None] for x in _extremes(ids_Bx2xT, queries))
    low_k, high_k, _, last_k = (x[:, None] for x in _extremes(ids_Bx2xC, keys))
    ends_N = start + (jnp.arange(low_q.shape[1]) + 1) * queries
    begun_NxM = (jnp.arange(low_k.shape[2]) * keys)[None] < ends_N[:, None]
    some_BxNxM = (low_q <= high_k) & (low_k <= high_q) & begun_NxM[None]
    one_segment = (low_q == high_q) & (low_k == high_k) & (high_q < LATE)
    return Pairs(some_BxNxM, some_BxNxM & one_segment & (last_k <= first_q))


def _extremes(ids_Bx2xC: jax.Array, block: int) -> tuple[jax.Array, ...]:
    """Lowest and highest segment, first and last position of every block."""
    segments, positions = jnp.moveaxis(ids_Bx2xC.reshape(*ids_Bx2xC.shape[:2], -1, block), 1, 0)
    segments = jnp.where(segments > 0, segments, LATE)
    return segments.min(-1), segments.max(-1), positions.min(-1), positions.max(-1)


def ranges_of_keys(found: Pairs) -> jax.Array:
    """begin, whole_begin, whole_end, end of every block of queries, [B, N, 4]; all 0 where nothing is seen."""
    at = jnp.arange(found.some_BxNxM.shape[2], dtype=jnp.int32)[None, None]
    end = jnp.where(found.some_BxNxM, at + 1, 0).max(2)

    def first(chosen_BxNxM: jax.Array) -> jax.Array:
        return jnp.where(chosen_BxNxM, at, end[..., None]).min(2)

    whole_begin = first(found.whole_BxNxM)
    whole_end = first(~found.whole_BxNxM & (at >= whole_begin[..., None]))
    return jnp.stack([first(found.some_BxNxM), whole_begin, whole_end, end], axis=2)


def ranges_of_queries(found: Pairs) -> jax.Array:
    """The same of every block of keys, [B, M, 4]."""
    return ranges_of_keys(Pairs(*(x.swapaxes(1, 2) for x in found)))
