"""The single definition of a token's log-prob, used by the sampler and by the learner alike.

log_softmax(logits / temperature) in float32, restricted to the sampling support and renormalised over it. A support is
the list of ids that top-k and top-p left, padded with -1; an empty one (all -1, as on tokens nobody sampled) or None
means that nothing was cut. With equal weights the sampler's value and the learner's differ by rounding only.

Shape letters: x any leading axes, V vocabulary, K size of the support.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

MASKED = -1e30  # finite, so that gradients of rows without a support stay finite


def truncate(logits_xV: jax.Array, temperature: float, top_k: int, top_p: float) -> jax.Array | None:
    """Ids that may be drawn, int32 [x, K], most probable first, -1 padded; None when nothing is cut.

    First the `top_k` most probable tokens (0: all), then the smallest leading set whose probability, renormalised after
    top-k, reaches `top_p`; never fewer than one. K is top_k (V if 0). Raises ValueError for a setting out of range.
    """
    if top_k < 0 or not 0.0 < top_p <= 1.0:
        raise ValueError(f"sampling needs top_k >= 0 and 0 < top_p <= 1, got top_k={top_k}, top_p={top_p}")
    if top_k == 0 and top_p == 1.0:
        return None
    vocab = logits_xV.shape[-1]
    scaled_xK, ids_xK = jax.lax.top_k(_scaled(logits_xV, temperature), min(top_k, vocab) if top_k else vocab)
    probs_xK = jax.nn.softmax(scaled_xK, axis=-1)
    before_xK = jnp.cumsum(probs_xK, axis=-1) - probs_xK
    keep_xK = (before_xK < top_p).at[..., 0].set(True)
    return jnp.where(keep_xK, ids_xK, -1).astype(jnp.int32)


def draw(keys_S: jax.Array, logits_SxV: jax.Array, temperature: float, support_SxK: jax.Array | None) -> jax.Array:
    """One token id per row, int32 [S], from logits [S, V] and typed keys [S]: a row's draw depends on its own key and
    logits only."""
    scaled_SxV = _scaled(logits_SxV, temperature)
    if support_SxK is None:
        return jax.vmap(jax.random.categorical)(keys_S, scaled_SxV).astype(jnp.int32)
    values_SxK = jnp.where(support_SxK >= 0, _take_support(scaled_SxV, support_SxK), MASKED)
    place_S = jax.vmap(jax.random.categorical)(keys_S, values_SxK)
    return jnp.take_along_axis(support_SxK, place_S[:, None], axis=-1)[:, 0]


def log_probs(
    logits_xV: jax.Array, ids_x: jax.Array, temperature: float, support_xK: jax.Array | None = None
) -> jax.Array:
    """Log-prob of each id, float32 [x]; -inf for an id outside a non-empty support."""
    scaled_xV = _scaled(logits_xV, temperature)
    chosen_x = jnp.take_along_axis(scaled_xV, ids_x[..., None], axis=-1)[..., 0]
    whole_x = jax.nn.logsumexp(scaled_xV, axis=-1)
    if support_xK is None:
        return chosen_x - whole_x
    return log_prob_on_support(chosen_x, whole_x, _take_support(scaled_xV, support_xK), ids_x, support_xK)


def log_prob_on_support(
    chosen_x: jax.Array, whole_x: jax.Array, values_xK: jax.Array, ids_x: jax.Array, support_xK: jax.Array
) -> jax.Array:
    """The log-prob from scaled logits of the ids and of their supports (any where -1), and log Z of the whole."""
    cut_x = jax.nn.logsumexp(jnp.where(support_xK >= 0, values_xK, MASKED), axis=-1)
    value_x = chosen_x - jnp.where(_has_support(support_xK), cut_x, whole_x)
    possible_x = (support_xK == ids_x[..., None]).any(axis=-1) | ~_has_support(support_xK)
    return jnp.where(possible_x, value_x, -jnp.inf)


def entropy(logits_xV: jax.Array, temperature: float, support_xK: jax.Array | None = None) -> jax.Array:
    """Exact entropy of the distribution that is sampled from, in nats, float32 [x]."""
    scaled_xV = _scaled(logits_xV, temperature)
    whole_x = _entropy(scaled_xV)
    if support_xK is None:
        return whole_x
    return entropy_on_support(whole_x, _take_support(scaled_xV, support_xK), support_xK)


def entropy_on_support(whole_x: jax.Array, values_xK: jax.Array, support_xK: jax.Array) -> jax.Array:
    """The entropy from the scaled logits of the supports, and the entropy of the whole where there is none."""
    return jnp.where(_has_support(support_xK), _entropy(jnp.where(support_xK >= 0, values_xK, MASKED)), whole_x)


def _scaled(logits_xV: jax.Array, temperature: float) -> jax.Array:
    if isinstance(temperature, float | int) and temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}; the most probable token is top_k=1")
    return logits_xV.astype(jnp.float32) / temperature


def _has_support(support_xK: jax.Array) -> jax.Array:
    return (support_xK >= 0).any(axis=-1)


def _take_support(scaled_xV: jax.Array, support_xK: jax.Array) -> jax.Array:
    return jnp.take_along_axis(scaled_xV, jnp.maximum(support_xK, 0), axis=-1)


def _entropy(scaled: jax.Array) -> jax.Array:
    log_p = jax.nn.log_softmax(scaled, axis=-1)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)
