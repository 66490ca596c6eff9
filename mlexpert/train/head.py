"""What a log-prob and an entropy need of the logits, in chunks of the vocabulary: [tokens, vocabulary] never exists.

Forward, online over chunks of columns of the unembedding, per token (Milakov & Gimelshein 2018, with one sum more):
    m  largest scaled logit z       s = sum e^(z-m)       t = sum (z-m) e^(z-m)
    log Z = m + log s               H = log s - t / s
and the logits of the few ids that were asked for. Backward, each chunk's logits are made again from log Z and H alone:
    dz_v = dlogZ * p_v - dH * p_v (log p_v + H) + sum of the gradients of the asked ids that are v
The weight gradient of a chunk is complete when its chunk is done, so it is written once and never accumulated.

On a mesh the rows of the unembedding may be split over axes: a chunk is gathered when its turn comes, and its gradient
is scattered back. Call it inside `jax.shard_map` then; tokens are the device's own.

Shape letters: N tokens, J ids asked per token (an id below 0 asks for nothing), C columns of a chunk.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

MASKED = -1e30


class Scores(NamedTuple):
    """Of the distribution softmax(z), z = logits / temperature; all float32."""

    picked_NxJ: jax.Array  # z of the asked ids, 0 where nothing was asked
    log_z_N: jax.Array
    entropy_N: jax.Array


class Layout(NamedTuple):
    """`chunk` columns at a time; `axes`: the mesh axes over which the rows of the table are split."""

    chunk: int
    axes: tuple[str, ...] = ()


def scores(
    hidden_NxD: jax.Array, table_DxV: jax.Array, ids_NxJ: jax.Array, temperature: float, layout: Layout
) -> Scores:
    """Scores of every token's next-token distribution. Memory above the arguments is O(N * chunk), not O(N * V)."""
    found: Any = _scores(hidden_NxD, table_DxV, ids_NxJ, temperature, layout)
    return found


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _scores(hidden_NxD: jax.Array, table_DxV: jax.Array, ids_NxJ: jax.Array, temperature: float, layout: Layout):
    return _forward(hidden_NxD, table_DxV, ids_NxJ, temperature, layout)[0]


def _forward(hidden_NxD: jax.Array, table_DxV: jax.Array, ids_NxJ: jax.Array, temperature: float, layout: Layout):
    n, asked = ids_NxJ.shape

    def add(i: jax.Array | int, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        m_N, s_N, t_N, picked_NxJ = carry
        start, _, z_NxC = _logits(i, hidden_NxD, table_DxV, temperature, layout)
        top_N = jnp.maximum(m_N, z_NxC.max(axis=1))
        shifted_NxC = z_NxC - top_N[:, None]
        e_NxC, shrink_N = jnp.exp(shifted_NxC), jnp.exp(m_N - top_N)
        t_N = shrink_N * (t_N + (m_N - top_N) * s_N) + (shifted_NxC * e_NxC).sum(axis=1)
        here_NxJ, at_NxJ = _places(i, start, ids_NxJ, z_NxC.shape[1])
        picked_NxJ = jnp.where(here_NxJ, jnp.take_along_axis(z_NxC, at_NxJ, axis=1), picked_NxJ)
        return top_N, shrink_N * s_N + e_NxC.sum(axis=1), t_N, picked_NxJ

    zero_N = jnp.zeros(n, jnp.float32)
    start = (zero_N + MASKED, zero_N, zero_N, jnp.zeros((n, asked), jnp.float32))
    m_N, s_N, t_N, picked_NxJ = _each_chunk(table_DxV.shape[1], layout, add, start)
    found = Scores(picked_NxJ, m_N + jnp.log(s_N), jnp.log(s_N) - t_N / s_N)
    return found, (hidden_NxD, table_DxV, ids_NxJ, found.log_z_N, found.entropy_N)


def _backward(temperature: float, layout: Layout, saved: tuple[jax.Array, ...], grads: Scores):
    hidden_NxD, table_DxV, ids_NxJ, log_z_N, entropy_N = saved
    rows_Nx1 = jnp.arange(len(ids_NxJ))[:, None]

    def add(i: jax.Array | int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        d_hidden_NxD, d_table_DxV = carry
        start, part_DxC, z_NxC = _logits(i, hidden_NxD, table_DxV, temperature, layout)
        log_p_NxC = z_NxC - log_z_N[:, None]
        pull_NxC = grads.log_z_N[:, None] - grads.entropy_N[:, None] * (log_p_NxC + entropy_N[:, None])
        here_NxJ, at_NxJ = _places(i, start, ids_NxJ, z_NxC.shape[1])
        dz_NxC = (jnp.exp(log_p_NxC) * pull_NxC).at[rows_Nx1, at_NxJ].add(jnp.where(here_NxJ, grads.picked_NxJ, 0))
        # In the weights' own precision, as every other product of the backward pass; sums stay float32.
        dz_NxC = (dz_NxC / temperature).astype(hidden_NxD.dtype)
        d_hidden_NxD += jnp.matmul(dz_NxC, part_DxC.T, preferred_element_type=jnp.float32)
        d_part_DxC = jnp.matmul(hidden_NxD.T, dz_NxC, preferred_element_type=jnp.float32)
        return d_hidden_NxD, _store(start, d_part_DxC, d_table_DxV, layout)

    zeros = jnp.zeros(hidden_NxD.shape, jnp.float32), jnp.zeros_like(table_DxV)
    d_hidden_NxD, d_table_DxV = _each_chunk(table_DxV.shape[1], layout, add, zeros)
    return d_hidden_NxD.astype(hidden_NxD.dtype), d_table_DxV, None


_scores.defvjp(_forward, _backward)


def _each_chunk(vocab: int, layout: Layout, body, carry):
    n_chunks = -(-vocab // layout.chunk)
    return body(0, carry) if n_chunks == 1 else jax.lax.fori_loop(0, n_chunks, body, carry)


def _logits(
    i: jax.Array | int, hidden_NxD: jax.Array, table_DxV: jax.Array, temperature: float, layout: Layout
) -> tuple[jax.Array | int, jax.Array, jax.Array]:
    """First column, columns of the table, and scaled logits of chunk i. The last chunk reaches back to be whole; what
    the chunk before it has counted is masked."""
    vocab = table_DxV.shape[1]
    width = min(layout.chunk, vocab)
    start = jnp.minimum(i * width, vocab - width)
    part_DxC = jax.lax.dynamic_slice_in_dim(table_DxV, start, width, axis=1)
    if layout.axes:
        part_DxC = jax.lax.all_gather(part_DxC, layout.axes, axis=0, tiled=True)
    z_NxC = jnp.matmul(hidden_NxD, part_DxC, preferred_element_type=jnp.float32) / temperature
    if vocab % width:
        z_NxC = jnp.where(start + jnp.arange(width)[None, :] >= i * width, z_NxC, MASKED)
    return start, part_DxC, z_NxC


def _places(i: jax.Array | int, start: jax.Array | int, ids_NxJ: jax.Array, width: int) -> tuple[jax.Array, jax.Array]:
    """Which asked ids are counted in chunk i, and their columns in it (any column for the others)."""
    at_NxJ = ids_NxJ - start
    here_NxJ = (ids_NxJ >= i * width) & (at_NxJ < width)
    return here_NxJ, jnp.clip(at_NxJ, 0, width - 1)


def _store(start: jax.Array | int, d_part_DxC: jax.Array, d_table_DxV: jax.Array, layout: Layout) -> jax.Array:
    if layout.axes:
        d_part_DxC = jax.lax.psum_scatter(d_part_DxC, layout.axes, scatter_dimension=0, tiled=True)
    # Added, not written: the last chunk reaches back over columns whose gradient here is zero.
    old = jax.lax.dynamic_slice_in_dim(d_table_DxV, start, d_part_DxC.shape[1], axis=1)
    return jax.lax.dynamic_update_slice_in_dim(d_table_DxV, old + d_part_DxC.astype(old.dtype), start, axis=1)
