"""Attention of long rows on TPUs: JAX's splash kernels, told at run time which blocks of keys to visit.

Splash attention walks a grid of blocks of queries and keys with an online softmax, and leaves out blocks that a table
of block masks calls empty. Its own tables are made in Python, of a mask that is known when the program is compiled: for
131,072 tokens that takes seconds for each of three kernels, knows nothing of segments, and fits rows that are whole.
Here the tables are computed on the device, from the ids themselves (attention_blocks.py). They may call a block visited
that holds nothing to see, never the other way round: inside a block the kernel compares ids and indices anyway. So a
packed row costs what its sequences would alone, and a stretch of a row, whose first query has the index `start`, needs
no other program than a whole one.

Key heads are not repeated for the query heads that share them. Softmax and sums are float32.
Shape letters: H query heads, G key heads, K head width; N blocks of queries, M blocks of keys, C keys.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask_info import MaskInfo

from mlexpert.model.attention import Keys
from mlexpert.model.attention_blocks import ids, pairs

INTERPRET = False  # True runs the kernels as plain JAX on any device: for tests
LANES = 128  # of a vector register: blocks are multiples
QUERIES, KEYS = 512, 1024  # of a block, at most: with heads of 256 these fit the kernels' memory on all chips
KEYS_AT_ONCE = 512  # of a block of keys, at most, that are multiplied at once
TABLE = 2**18  # entries, at most: tables lie in the scalar processor's memory of 1 MiB


class Blocks(NamedTuple):
    queries: int
    keys: int


def refusal(q_shape: tuple[int, ...], k_shape: tuple[int, ...]) -> str:
    """What of queries [B, T, H, K] over keys [B, G, C, K] the kernels cannot do; "" if nothing."""
    for count, what in ((q_shape[1], "queries"), (k_shape[2], "keys")):
        if count % LANES:
            return f"{count} {what} of a row are no multiple of {LANES}"
    blocks = _blocks(q_shape[1], k_shape[2])
    if (q_shape[1] // blocks.queries) * (k_shape[2] // blocks.keys) > TABLE:
        return f"{k_shape[2]} keys of a row divide into blocks of {blocks.keys} only, too many for their tables"
    return ""


def attend(
    q_BxTxHxK: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array, keys: Keys, start: jax.Array | int = 0
) -> jax.Array:
    """As `attention_chunked.chunked_attend`, [B, T, H, K]: keys are those of whole rows, the queries a stretch of them
    from index `start` on. Within a segment positions must ascend along the row. Raises ValueError (see `refusal`)."""
    if refused := refusal(q_BxTxHxK.shape, keys.k_BxGxCxK.shape):
        raise ValueError(f"splash attention: {refused}")
    blocks = _blocks(q_BxTxHxK.shape[1], keys.k_BxGxCxK.shape[2])
    ids_Bx2xT = ids(segments_BxT, positions_BxT, start, blocks.queries, -1)  # whole blocks already: no filler
    ids_Bx2xC = ids(keys.segments_BxC, keys.positions_BxC, 0, blocks.keys, -2)
    visited_BxNxM = pairs(ids_Bx2xT, ids_Bx2xC, start, *blocks).some_BxNxM
    q_BxHxTxK = (q_BxTxHxK * q_BxTxHxK.shape[-1] ** -0.5).transpose(0, 2, 1, 3)
    # Rows have tables of their own, so each is a call of the kernel.
    rows = (q_BxHxTxK, keys.k_BxGxCxK, keys.v_BxGxCxK, ids_Bx2xT[:, 0], ids_Bx2xC[:, 0], visited_BxNxM)
    return jax.lax.map(partial(_row, start=start, blocks=blocks), rows).transpose(0, 2, 1, 3)


def _row(row: tuple[jax.Array, ...], start: jax.Array | int, blocks: Blocks) -> jax.Array:
    q_HxTxK, k_GxCxK, v_GxCxK, segments_T, segments_C, visited_NxM = row
    index_T = start + jnp.arange(len(segments_T), dtype=jnp.int32)
    by_queries, by_keys = (_table(visited_NxM, index_T, axis) for axis in (1, 0))
    kernel: Any = splash.SplashAttentionKernel(by_queries, by_queries, by_keys, **_settings(blocks))
    return kernel(q_HxTxK, k_GxCxK, v_GxCxK, splash.SegmentIds(segments_T, segments_C))


def _table(visited_NxM: jax.Array, index_T: jax.Array, axis: int) -> MaskInfo:
    """What a kernel that walks along `axis` fetches at every step: the step's own block, or, before the first visited
    one and behind the last, that one, which costs no copy."""
    n = visited_NxM.shape[axis]
    step_NxM = jax.lax.broadcasted_iota(jnp.int32, visited_NxM.shape, axis)
    first = jnp.where(visited_NxM, step_NxM, n).min(axis, keepdims=True)
    last = jnp.where(visited_NxM, step_NxM, 0).max(axis, keepdims=True)
    fetched_NxM = jnp.minimum(jnp.maximum(step_NxM, first), last)
    small = jnp.int8 if n <= 128 else jnp.int16
    return MaskInfo(
        data_next=fetched_NxM[None].astype(small),
        mask_next=None,
        block_mask=visited_NxM[None].astype(jnp.int8),
        partial_mask_blocks=None,
        q_sequence=index_T,  # pyright: ignore[reportArgumentType]  # an array as good as numpy's
    )


def _settings(blocks: Blocks) -> dict:
    queries, keys, at_once = *blocks, min(blocks.keys, KEYS_AT_ONCE)
    sizes = splash.BlockSizes(
        block_q=queries,
        block_kv=keys,
        block_kv_compute=at_once,
        block_q_dkv=queries,
        block_kv_dkv=keys,
        block_kv_dkv_compute=at_once,
        block_q_dq=queries,
        block_kv_dq=keys,
    )
    return dict(
        block_sizes=sizes,
        is_mqa=False,  # also right, and without repeated keys, for groups of heads
        save_residuals=False,
        mask_value=splash.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=None,
        residual_checkpoint_name=None,
        mask_function=operator.ge,  # index of the query, index of the key
        interpret=INTERPRET,
    )


def _blocks(queries: int, keys: int) -> Blocks:
    """The largest powers of two that divide the lengths, up to what a block may hold."""
    return Blocks(min(QUERIES, queries & -queries), min(KEYS, keys & -keys))
