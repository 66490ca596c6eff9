"""Hidden states -> log-prob and entropy of every token, never holding logits of more than `chunk` tokens.

Entry t speaks of token t and comes from hidden state t-1. The first token of a segment, and padding, have nothing
before them: both entries are 0 there and no gradient flows. Chunks run one after another in a scan and are recomputed
in the backward pass, so memory above the hidden states is O(chunk * V), not O(B * T * V).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mlexpert.model import distribution


def token_logprobs_and_entropy(
    hidden_BxTxD: jax.Array,
    unembedding_DxV: jax.Array,
    tokens_BxT: jax.Array,
    segments_BxT: jax.Array,
    temperature: float,
    support_BxTxK: jax.Array | None = None,
    chunk: int = 256,
) -> tuple[jax.Array, jax.Array]:
    """(logprob_BxT, entropy_BxT), float32, by the one definition in `mlexpert.model.distribution`."""
    batch, length = tokens_BxT.shape
    n = batch * length
    first_BxT = jnp.pad(segments_BxT[:, 1:] != segments_BxT[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    known_BxT = ~first_BxT & (segments_BxT > 0)
    before_BxTxD = jnp.roll(hidden_BxTxD, 1, axis=1)
    xs = (before_BxTxD, tokens_BxT, known_BxT, support_BxTxK)
    xs = jax.tree.map(lambda x: _chunks(x.reshape(n, *x.shape[2:]), min(chunk, n)), xs)

    @jax.checkpoint
    def body(_: None, x: tuple) -> tuple[None, tuple[jax.Array, jax.Array]]:
        before_CxD, tokens_C, known_C, support_CxK = x
        logits_CxV = jnp.matmul(before_CxD, unembedding_DxV, preferred_element_type=jnp.float32)
        logprob_C = distribution.log_probs(logits_CxV, tokens_C, temperature, support_CxK)
        entropy_C = distribution.entropy(logits_CxV, temperature, support_CxK)
        return None, (jnp.where(known_C, logprob_C, 0.0), jnp.where(known_C, entropy_C, 0.0))

    _, (logprob, entropy) = jax.lax.scan(body, None, xs)
    return logprob.reshape(-1)[:n].reshape(batch, length), entropy.reshape(-1)[:n].reshape(batch, length)


def _chunks(x_N: jax.Array, chunk: int) -> jax.Array:
    """[N, ...] -> [ceil(N / chunk), chunk, ...], zero-padded."""
    x_N = jnp.pad(x_N, [(0, -x_N.shape[0] % chunk)] + [(0, 0)] * (x_N.ndim - 1))
    return x_N.reshape(-1, chunk, *x_N.shape[1:])
