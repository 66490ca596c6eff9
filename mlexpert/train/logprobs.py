"""Hidden states -> log-prob and entropy of every token, in chunks of the vocabulary (see `head`).

Entry t speaks of token t and comes from hidden state t-1. The first token of a segment, and padding, have nothing
before them: both entries are 0 there and no gradient flows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mlexpert.model import distribution
from mlexpert.model.parallel import ALONE, Parallel, shift, starts
from mlexpert.train.head import Layout, scores

WHOLE = Layout(4096)  # a small vocabulary in one piece


def token_logprobs_and_entropy(
    hidden_BxTxD: jax.Array,
    unembedding_DxV: jax.Array,
    tokens_BxT: jax.Array,
    segments_BxT: jax.Array,
    temperature: float,
    support_BxTxK: jax.Array | None = None,
    layout: Layout = WHOLE,
    parallel: Parallel = ALONE,
) -> tuple[jax.Array, jax.Array]:
    """(logprob_BxT, entropy_BxT), float32, by the one definition in `mlexpert.model.distribution`."""
    known_BxT = ~starts(segments_BxT, parallel) & (segments_BxT > 0)
    # What is asked moves left to the hidden state that answers, and the answers move back: numbers, not hidden states.
    next_BxT = shift(tokens_BxT, -1, parallel)
    support_BxTxK = None if support_BxTxK is None else shift(support_BxTxK, -1, parallel)
    answers = _next_token(hidden_BxTxD, unembedding_DxV, next_BxT, temperature, support_BxTxK, layout)
    logprob_BxT, entropy_BxT = (jnp.where(known_BxT, shift(answer, 1, parallel), 0.0) for answer in answers)
    return logprob_BxT, entropy_BxT


def _next_token(
    hidden_BxTxD: jax.Array,
    unembedding_DxV: jax.Array,
    next_BxT: jax.Array,
    temperature: float,
    support_BxTxK: jax.Array | None,
    layout: Layout,
) -> tuple[jax.Array, jax.Array]:
    """Log-prob of `next` and entropy under the distribution that each hidden state gives."""
    shape = next_BxT.shape
    hidden_NxD, next_N = hidden_BxTxD.reshape(-1, hidden_BxTxD.shape[-1]), next_BxT.reshape(-1)
    if support_BxTxK is None:
        found = scores(hidden_NxD, unembedding_DxV, next_N[:, None], temperature, layout)
        return (found.picked_NxJ[:, 0] - found.log_z_N).reshape(shape), found.entropy_N.reshape(shape)
    support_NxK = support_BxTxK.reshape(len(next_N), -1)
    asked_NxJ = jnp.concatenate([next_N[:, None], support_NxK], axis=1)
    found = scores(hidden_NxD, unembedding_DxV, asked_NxJ, temperature, layout)
    chosen_N, values_NxK = found.picked_NxJ[:, 0], found.picked_NxJ[:, 1:]
    logprob_N = distribution.log_prob_on_support(chosen_N, found.log_z_N, values_NxK, next_N, support_NxK)
    entropy_N = distribution.entropy_on_support(found.entropy_N, values_NxK, support_NxK)
    return logprob_N.reshape(shape), entropy_N.reshape(shape)
