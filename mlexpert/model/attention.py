"""Causal attention within segments, grouped queries, softmax in float32.

A query sees a key iff both carry the same segment id and the key's position is not later. Segment ids are not
optional: a packed row must give each sequence exactly what it would get alone. Padding (segment 0) sees padding, so no
query is ever without a key and nothing needs a guard against an empty softmax.

Keys come in parts, each with its own ids, and one softmax runs over all of them: a cache is read where it lies, next
to the keys of the tokens being appended, and is never copied to be joined with them.

Rows of training can be long, and are attended to by one of several backends (backends.py chooses):

    chunked   an online softmax over chunks of keys (attention_chunked.py), short rows whole (`self_attend`). For CPUs,
              and what the others are tested against
    splash    JAX's Pallas kernels for TPUs (attention_splash.py)
    triton    a Pallas kernel for NVIDIA GPUs (attention_triton.py)

Shape letters: H query heads, G key heads, R = H / G, K head width, C keys of a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

ATTENTION_BACKENDS = ("chunked", "splash", "triton")
QUERY_BLOCK = 128  # queries at a time, at least
MAX_BLOCKS = 8  # the blocks are unrolled, so their number is bounded
MASKED = -1e30  # finite: a masked score must never make a NaN out of (-inf) - (-inf)


class Keys(NamedTuple):
    """One part of the keys and values, with what decides who sees them."""

    k_BxGxCxK: jax.Array
    v_BxGxCxK: jax.Array
    segments_BxC: jax.Array
    positions_BxC: jax.Array


def default_attention() -> str:
    """What suits the devices of this process."""
    return {"tpu": "splash", "gpu": "triton"}.get(jax.default_backend(), "chunked")


def self_attend(
    q_BxTxHxK: jax.Array, k_BxGxTxK: jax.Array, v_BxGxTxK: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array
) -> jax.Array:
    """Attention of packed rows over themselves; within a segment, positions must ascend along the row.

    Queries go in blocks, each over the keys up to its own end only: the rest of the row is masked anyway, and a block's
    scores fit the processor's cache.
    """
    length = q_BxTxHxK.shape[1]
    block = max(QUERY_BLOCK, -(-length // MAX_BLOCKS))
    outputs = []
    for start in range(0, length, block):
        end = min(start + block, length)
        keys = Keys(k_BxGxTxK[:, :, :end], v_BxGxTxK[:, :, :end], segments_BxT[:, :end], positions_BxT[:, :end])
        here = slice(start, end)
        outputs.append(attend(q_BxTxHxK[:, here], segments_BxT[:, here], positions_BxT[:, here], [keys]))
    return outputs[0] if len(outputs) == 1 else jnp.concatenate(outputs, axis=1)


def attend(q_BxTxHxK: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array, parts: Sequence[Keys]) -> jax.Array:
    """Attention of every query over all visible keys of all parts; returns [B, T, H, K]."""
    batch, length, heads, width = q_BxTxHxK.shape
    groups = parts[0].k_BxGxCxK.shape[1]
    repeats = heads // groups
    q = (q_BxTxHxK * width**-0.5).reshape(batch, length, groups, repeats, width).transpose(0, 2, 3, 1, 4)
    # Heads that share keys are rows of one product.
    q_BxGxRTxK = q.reshape(batch, groups, repeats * length, width)
    scores = [_scores(q_BxGxRTxK, segments_BxT, positions_BxT, part) for part in parts]
    probs = jax.nn.softmax(scores[0] if len(scores) == 1 else jnp.concatenate(scores, axis=-1), axis=-1)
    probs = probs.astype(q.dtype).reshape(batch, groups, repeats * length, -1)
    ends = [sum(part.k_BxGxCxK.shape[2] for part in parts[: i + 1]) for i in range(len(parts) - 1)]
    shares = jnp.split(probs, ends, axis=-1)
    mixed = sum(jnp.einsum("bgtc,bgck->bgtk", share, part.v_BxGxCxK) for share, part in zip(shares, parts, strict=True))
    mixed_BxGxRxTxK = jnp.asarray(mixed).reshape(batch, groups, repeats, length, width)
    return mixed_BxGxRxTxK.transpose(0, 3, 1, 2, 4).reshape(batch, length, heads, width)


def _scores(q_BxGxRTxK: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array, part: Keys) -> jax.Array:
    """Masked scores [B, G, R, T, C], float32."""
    scores = jnp.einsum("bgtk,bgck->bgtc", q_BxGxRTxK, part.k_BxGxCxK, preferred_element_type=jnp.float32)
    batch, groups, _, keys = scores.shape
    scores = scores.reshape(batch, groups, -1, segments_BxT.shape[1], keys)
    same = segments_BxT[:, :, None] == part.segments_BxC[:, None, :]
    past = part.positions_BxC[:, None, :] <= positions_BxT[:, :, None]
    return jnp.where((same & past)[:, None, None], scores, MASKED)
