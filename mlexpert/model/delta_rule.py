"""The gated delta rule (Yang et al. 2024): a linear attention whose memory forgets, and corrects itself as it writes.

Each value head keeps a matrix S from keys to values. For every token, with key k, value v, query q, log decay g <= 0
and write strength b in [0, 1]:

    S <- exp(g) S;   S <- S + k (b (v - S^T k))^T;   out = S^T q

`step` and `recurrent` do just this. `chunked` gives the same from products of matrices. Within a chunk, what the tokens
write solves a unit lower triangular system, because each token reads what the earlier ones wrote; once it is solved for
all chunks, a scan over the chunks hands the memory on. Where a token is `fresh`, it finds an empty memory: runs of
tokens are compared inside a chunk, so packed sequences never meet, wherever in a chunk the border lies.

All of it is float32 and asks for exact products: errors of a memory that lives for 100,000 tokens add up.

Shape letters: G key heads, H value heads, R = H / G (value heads r, r + 1, ... of a key head are neighbours), K and V
widths of keys and values, N chunks of C tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

CHUNK = 64
EXACT = jax.lax.Precision.HIGHEST


class Tokens(NamedTuple):
    """What the tokens of some rows bring, float32; a token with write 0 and decay 0 leaves the memory alone."""

    q_BxTxGxK: jax.Array  # already scaled
    k_BxTxGxK: jax.Array
    v_BxTxHxV: jax.Array
    decay_BxTxH: jax.Array  # log, at most 0
    write_BxTxH: jax.Array
    fresh_BxT: jax.Array  # true where the memory starts anew, before this token


class Chunks(NamedTuple):
    """All that does not depend on the memory. N leads, for the scan."""

    value_NxBxGxRxCxV: jax.Array  # what the tokens would write into an empty memory
    read_NxBxGxRxCxK: jax.Array  # times the incoming memory: what they write less, since it knows already
    asked_NxBxGxRxCxK: jax.Array  # queries on the incoming memory
    scores_NxBxGxRxCxC: jax.Array  # queries on what the chunk's own tokens write
    stored_NxBxGxRxCxK: jax.Array  # keys, decayed to the chunk's end
    kept_NxBxGxR: jax.Array  # of the incoming memory at the chunk's end


def step(tokens: Tokens, memory_BxHxKxV: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One token a row (T is 1): (out [B, 1, H, V], memory)."""
    repeats = tokens.v_BxTxHxV.shape[2] // tokens.k_BxTxGxK.shape[2]
    q_BxHxK, k_BxHxK = (jnp.repeat(x[:, 0], repeats, axis=1) for x in (tokens.q_BxTxGxK, tokens.k_BxTxGxK))
    kept_BxH = jnp.where(tokens.fresh_BxT, 0.0, jnp.exp(tokens.decay_BxTxH[:, 0]))
    memory_BxHxKxV = memory_BxHxKxV * kept_BxH[:, :, None, None]
    known_BxHxV = jnp.einsum("bhkv,bhk->bhv", memory_BxHxKxV, k_BxHxK, precision=EXACT)
    written_BxHxV = (tokens.v_BxTxHxV[:, 0] - known_BxHxV) * tokens.write_BxTxH[:, 0, :, None]
    memory_BxHxKxV = memory_BxHxKxV + k_BxHxK[..., None] * written_BxHxV[:, :, None, :]
    return jnp.einsum("bhkv,bhk->bhv", memory_BxHxKxV, q_BxHxK, precision=EXACT)[:, None], memory_BxHxKxV


def recurrent(tokens: Tokens, memory_BxHxKxV: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Token by token: (out [B, T, H, V], memory)."""

    def next_token(memory: jax.Array, one: Tokens) -> tuple[jax.Array, jax.Array]:
        out, memory = step(jax.tree.map(lambda x: x[:, None], one), memory)
        return memory, out[:, 0]

    by_time = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), tokens)
    memory, out_TxBxHxV = jax.lax.scan(next_token, memory_BxHxKxV, by_time)
    return jnp.moveaxis(out_TxBxHxV, 0, 1), memory


def chunked(tokens: Tokens, memory_BxHxKxV: jax.Array, chunk: int = CHUNK) -> tuple[jax.Array, jax.Array]:
    """The same in chunks: (out [B, T, H, V], memory)."""
    batch, length = tokens.v_BxTxHxV.shape[:2]
    groups = tokens.k_BxTxGxK.shape[2]
    memory = memory_BxHxKxV.reshape(batch, groups, -1, *memory_BxHxKxV.shape[2:])
    out_NxBxGxRxCxV, memory = sweep(prepare(tokens, min(chunk, length)), memory)
    return rows_of(out_NxBxGxRxCxV, length), memory.reshape(memory_BxHxKxV.shape)


def rows_of(out_NxBxGxRxCxV: jax.Array, length: int) -> jax.Array:
    """Chunks back into rows: [B, T, H, V] of `length` tokens."""
    n, batch, groups, repeats, chunk, width = out_NxBxGxRxCxV.shape
    out_BxNxCxGxRxV = out_NxBxGxRxCxV.transpose(1, 0, 4, 2, 3, 5)
    return out_BxNxCxGxRxV.reshape(batch, n * chunk, groups * repeats, width)[:, :length]


def sweep(chunks: Chunks, memory_BxGxRxKxV: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Hands the memory from chunk to chunk: (out [N, B, G, R, C, V], memory)."""

    def one(memory: jax.Array, c: Chunks) -> tuple[jax.Array, jax.Array]:
        written = c.value_NxBxGxRxCxV - jnp.matmul(c.read_NxBxGxRxCxK, memory, precision=EXACT)
        out = jnp.matmul(c.asked_NxBxGxRxCxK, memory, precision=EXACT)
        out = out + jnp.matmul(c.scores_NxBxGxRxCxC, written, precision=EXACT)
        added = jnp.matmul(c.stored_NxBxGxRxCxK.swapaxes(-1, -2), written, precision=EXACT)
        return memory * c.kept_NxBxGxR[..., None, None] + added, out

    memory, out = jax.lax.scan(one, memory_BxGxRxKxV, chunks)
    return out, memory


def prepare(tokens: Tokens, chunk: int) -> Chunks:
    """Everything about the chunks but the memory they find; solves the triangular systems."""
    groups = tokens.k_BxTxGxK.shape[2]
    q, k = (_chunks(x, chunk).transpose(0, 1, 3, 2, 4) for x in (tokens.q_BxTxGxK, tokens.k_BxTxGxK))  # [B,N,G,C,K]
    v = _grouped(_chunks(tokens.v_BxTxHxV, chunk), groups)
    write, decay = (_grouped(_chunks(x, chunk), groups) for x in (tokens.write_BxTxH, tokens.decay_BxTxH))
    kept, seen = _decays(decay, _runs(tokens.fresh_BxT, chunk))
    scores = jnp.einsum("bngik,bngjk->bngij", q, k, precision=EXACT)[:, :, :, None] * kept
    system = jnp.einsum("bngik,bngjk->bngij", k, k, precision=EXACT)[:, :, :, None] * kept * write[..., None]
    q, k = q[:, :, :, None], k[:, :, :, None]
    right = jnp.concatenate((v * write[..., None], k * (write * seen)[..., None]), axis=-1)
    # Only what lies below the diagonal is looked at; the diagonal is taken for 1.
    solved = jax.lax.linalg.triangular_solve(system, right, left_side=True, lower=True, unit_diagonal=True)
    value, read = jnp.split(solved, (v.shape[-1],), axis=-1)
    chunks = Chunks(value, read, q * seen[..., None], scores, k * kept[..., -1, :, None], seen[..., -1])
    return jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), chunks)


def _decays(decay_BxNxGxRxC: jax.Array, runs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """What is left at token i of what token j wrote [.., C, C], and of the memory that the chunk found [.., C].

    The sum of the decays between two tokens is summed for each pair. The difference of two running sums would lose its
    digits: a strong decay early in the chunk would blur all weak ones after it.
    """
    run_BxNxC, before_BxN = runs
    earlier = jnp.tri(run_BxNxC.shape[-1], dtype=bool)  # j <= i
    after_j = jnp.where(~earlier.T[(None,) * 4], decay_BxNxGxRxC[..., :, None], 0.0)  # token m for pair (., j)
    between = jnp.einsum("im,bngrmj->bngrij", earlier.astype(jnp.float32), after_j, precision=EXACT)
    same_BxNxCxC = (run_BxNxC[..., :, None] == run_BxNxC[..., None, :]) & earlier[None, None]
    kept = jnp.exp(jnp.where(same_BxNxCxC[:, :, None, None], between, -jnp.inf))
    carried_BxNxC = run_BxNxC == before_BxN[..., None]
    return kept, jnp.where(carried_BxNxC[:, :, None, None], jnp.exp(jnp.cumsum(decay_BxNxGxRxC, axis=-1)), 0.0)


def _runs(fresh_BxT: jax.Array, chunk: int) -> tuple[jax.Array, jax.Array]:
    """The number of each token's run [B, N, C], and of the run that the incoming memory belongs to [B, N]."""
    run_BxNxC = jnp.cumsum(_chunks(fresh_BxT.astype(jnp.int32), chunk).reshape(fresh_BxT.shape[0], -1), axis=1)
    run_BxNxC = run_BxNxC.reshape(fresh_BxT.shape[0], -1, chunk)
    return run_BxNxC, jnp.pad(run_BxNxC[:, :-1, -1], ((0, 0), (1, 0)))


def _chunks(x_BxTx: jax.Array, chunk: int) -> jax.Array:
    """[B, T, ...] -> [B, N, C, ...]; what is added at the end is zero: it writes nothing and forgets nothing."""
    padding = ((0, 0), (0, -x_BxTx.shape[1] % chunk)) + ((0, 0),) * (x_BxTx.ndim - 2)
    return jnp.pad(x_BxTx, padding).reshape(x_BxTx.shape[0], -1, chunk, *x_BxTx.shape[2:])


def _grouped(x_BxNxCxH: jax.Array, groups: int) -> jax.Array:
    """[B, N, C, H, ...] -> [B, N, G, R, C, ...]."""
    batch, n, length, heads = x_BxNxCxH.shape[:4]
    split = x_BxNxCxH.reshape(batch, n, length, groups, heads // groups, *x_BxNxCxH.shape[4:])
    return jnp.moveaxis(split, 2, 4)
