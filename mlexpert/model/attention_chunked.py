"""Attention of long rows in chunks of queries and keys: memory is that of a pair of chunks, not of the row squared.

The softmax is taken online over the chunks of keys (Milakov & Gimelshein 2018); the backward pass makes the weights of
each pair again from the kept normaliser (FlashAttention-2). A pair of which no query sees any key, as half of all pairs
in a causal row, is skipped. Who sees whom is said by ids alone, so keys may be other rows' or other devices' than the
queries: nothing is assumed about their order.

Shape letters: H query heads, G key heads, R = H / G, K head width; N chunks of Q queries, M chunks of C keys.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from mlexpert.model.attention import MASKED, Keys

QUERIES, KEYS = 512, 1024  # of a chunk, at most


def chunked_attend(q_BxTxHxK: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array, keys: Keys) -> jax.Array:
    """As `attention.attend` with one part of keys; a query that sees no key gives zero. Returns [B, T, H, K]."""
    batch, length, heads, width = q_BxTxHxK.shape
    groups, n_keys = keys.k_BxGxCxK.shape[1:3]
    q = (q_BxTxHxK * width**-0.5).reshape(batch, length, groups, -1, width)
    q_NxBxGxRxQxK = _cut(q, 1, min(QUERIES, length)).transpose(0, 1, 3, 4, 2, 5)
    k, v = (_cut(x, 2, min(KEYS, n_keys)) for x in (keys.k_BxGxCxK, keys.v_BxGxCxK))
    ids = _ids(segments_BxT, positions_BxT, q_NxBxGxRxQxK.shape[4], -1)
    key_ids = _ids(keys.segments_BxC, keys.positions_BxC, k.shape[3], -2)  # padding sees nothing and is seen by none
    out: Any = _attend(q_NxBxGxRxQxK, k, v, ids, key_ids)
    out_BxNxQxGxRxK = out.transpose(1, 0, 4, 2, 3, 5)
    return out_BxNxQxGxRxK.reshape(batch, -1, heads, width)[:, :length]


@jax.custom_vjp
def _attend(q_NxBxGxRxQxK, k_MxBxGxCxK, v_MxBxGxCxK, ids_NxBxQx2, ids_MxBxCx2):
    return _forward(q_NxBxGxRxQxK, k_MxBxGxCxK, v_MxBxGxCxK, ids_NxBxQx2, ids_MxBxCx2)[0]


def _forward(q_NxBxGxRxQxK, k_MxBxGxCxK, v_MxBxGxCxK, ids_NxBxQx2, ids_MxBxCx2):
    # Ids are the same in every layer. Where layers are scanned, JAX would find who sees whom once, for all pairs, and
    # keep it: the row squared. Behind the barrier ids look like the layer's own.
    q_NxBxGxRxQxK, k_MxBxGxCxK, ids_NxBxQx2, ids_MxBxCx2 = jax.lax.optimization_barrier(
        (q_NxBxGxRxQxK, k_MxBxGxCxK, ids_NxBxQx2, ids_MxBxCx2)
    )

    def queries(_, chunk):
        q_BxGxRxQxK, ids_BxQx2 = chunk
        zero_BxGxRxQ = jnp.zeros(q_BxGxRxQxK.shape[:-1], jnp.float32)

        def add(carry, other):
            k_BxGxCxK, v_BxGxCxK, ids_BxCx2 = other
            seen_BxQxC = _seen(ids_BxQx2, ids_BxCx2)

            def visible(carry):
                top, total, mixed = carry
                scores = _scores(q_BxGxRxQxK, k_BxGxCxK, seen_BxQxC)
                new = jnp.maximum(top, scores.max(axis=-1))
                weights, shrink = jnp.exp(scores - new[..., None]), jnp.exp(top - new)
                # A query may see nothing here and nothing before: all is masked, and exp(0) must not count.
                weights = jnp.where(seen_BxQxC[:, None, None], weights, 0.0)
                added = _product("bgrqc,bgck->bgrqk", weights.astype(v_BxGxCxK.dtype), v_BxGxCxK)
                return new, total * shrink + weights.sum(axis=-1), mixed * shrink[..., None] + added

            return jax.lax.cond(seen_BxQxC.any(), visible, lambda carry: carry, carry), None

        start = zero_BxGxRxQ + MASKED, zero_BxGxRxQ, jnp.zeros(q_BxGxRxQxK.shape, jnp.float32)
        (top, total, mixed), _ = jax.lax.scan(add, start, (k_MxBxGxCxK, v_MxBxGxCxK, ids_MxBxCx2))
        total = jnp.where(total > 0, total, 1.0)
        return None, ((mixed / total[..., None]).astype(q_BxGxRxQxK.dtype), top + jnp.log(total))

    _, (out, log_z) = jax.lax.scan(queries, None, (q_NxBxGxRxQxK, ids_NxBxQx2))
    return out, (q_NxBxGxRxQxK, k_MxBxGxCxK, v_MxBxGxCxK, ids_NxBxQx2, ids_MxBxCx2, out, log_z)


def _backward(saved, d_out):
    q_NxBxGxRxQxK, k_MxBxGxCxK, v_MxBxGxCxK, ids_NxBxQx2, ids_MxBxCx2, out, log_z = saved
    along = jnp.sum(d_out.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)
    per_query = (jnp.arange(len(out)), q_NxBxGxRxQxK, ids_NxBxQx2, d_out, log_z, along)

    def keys(dq_NxBxGxRxQxK, chunk):
        k_BxGxCxK, v_BxGxCxK, ids_BxCx2 = chunk

        def add(carry, one):
            i, q, ids_BxQx2, d_out, log_z, along = one
            seen_BxQxC = _seen(ids_BxQx2, ids_BxCx2)

            def visible(carry):
                dk, dv, dq_NxBxGxRxQxK = carry
                scores = _scores(q, k_BxGxCxK, seen_BxQxC)
                weights = jnp.where(seen_BxQxC[:, None, None], jnp.exp(scores - log_z[..., None]), 0.0)
                d_weights = _product("bgrqk,bgck->bgrqc", d_out, v_BxGxCxK)
                d_scores = (weights * (d_weights - along[..., None])).astype(q.dtype)
                dv = dv + _product("bgrqc,bgrqk->bgck", weights.astype(q.dtype), d_out)
                dk = dk + _product("bgrqc,bgrqk->bgck", d_scores, q)
                dq = _product("bgrqc,bgck->bgrqk", d_scores, k_BxGxCxK)
                return dk, dv, dq_NxBxGxRxQxK.at[i].add(dq)

            return jax.lax.cond(seen_BxQxC.any(), visible, lambda carry: carry, carry), None

        zero = jnp.zeros(k_BxGxCxK.shape, jnp.float32)
        (dk, dv, dq_NxBxGxRxQxK), _ = jax.lax.scan(add, (zero, zero, dq_NxBxGxRxQxK), per_query)
        return dq_NxBxGxRxQxK, (dk.astype(k_BxGxCxK.dtype), dv.astype(v_BxGxCxK.dtype))

    start = jnp.zeros(q_NxBxGxRxQxK.shape, jnp.float32)
    dq, (dk, dv) = jax.lax.scan(keys, start, (k_MxBxGxCxK, v_MxBxGxCxK, ids_MxBxCx2))
    return dq.astype(q_NxBxGxRxQxK.dtype), dk, dv, None, None


_attend.defvjp(_forward, _backward)


def _scores(q_BxGxRxQxK: jax.Array, k_BxGxCxK: jax.Array, seen_BxQxC: jax.Array) -> jax.Array:
    scores = _product("bgrqk,bgck->bgrqc", q_BxGxRxQxK, k_BxGxCxK)
    return jnp.where(seen_BxQxC[:, None, None], scores, MASKED)


def _product(form: str, left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.einsum(form, left, right, preferred_element_type=jnp.float32)


def _seen(ids_BxQx2: jax.Array, ids_BxCx2: jax.Array) -> jax.Array:
    """Same segment, and not later."""
    same = ids_BxQx2[:, :, None, 0] == ids_BxCx2[:, None, :, 0]
    return same & (ids_BxCx2[:, None, :, 1] <= ids_BxQx2[:, :, None, 1])


def _ids(segments_BxT: jax.Array, positions_BxT: jax.Array, chunk: int, padding: int) -> jax.Array:
    """[N, B, Q, 2]: segment and position."""
    return _cut(jnp.stack([segments_BxT, positions_BxT], axis=-1), 1, chunk, padding)


def _cut(x: jax.Array, axis: int, chunk: int, padding: int = 0) -> jax.Array:
    """Chunks of an axis, as a new first axis; padded at its end."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % chunk)
    x = jnp.pad(x, widths, constant_values=padding)
    return jnp.moveaxis(x.reshape(*x.shape[:axis], -1, chunk, *x.shape[axis + 1 :]), axis, 0)
