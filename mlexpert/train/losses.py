"""The objectives, as sums over tokens. Nothing here divides by the size of a batch: the step does, once, globally.

WIRL (MLExpert eq. 4), for a window m with N_m sampled tokens, the same advantage A_m for each:

    sum_m 1/N_m sum_t keep_t * ( sg(q_t) * -min(rho_t A_m, clip(rho_t, 1-eps, 1+eps) A_m) + kl * k3_t - entropy * H_t )

    rho = exp(l_theta - l_old)     moves during an update; its clip bounds the step
    q   = exp(l_old - l_roll)      how far the sampler's weights were from the learner's when the token was drawn
    keep = q_min <= q <= q_max     tokens outside the band take no part, in none of the three terms
    k3  = exp(d) - d - 1, d = l_ref - l_theta      estimates KL(theta | reference), never negative

`weight_BxT` carries 1/N_m for sampled tokens and 0 elsewhere, so a window may be cut over rows and micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from mlexpert.train import masked

Correction = Literal["weight_and_mask", "mask_only", "off"]

# Only metrics see the bound: exp of a larger log q is infinite or rounds to 0 and would hide the other tokens.
_LOG_Q_SHOWN = 20.0


@dataclass(frozen=True)
class WirlLoss:
    """`off` is the paper's ablation without policy correction: q is 1 and every token is kept."""

    eps: float = 0.2
    q_min: float = 0.2
    q_max: float = 4.0
    kl: float = 1e-3
    entropy: float = 1e-4
    correction: Correction = "weight_and_mask"

    def __post_init__(self) -> None:
        if self.correction not in ("weight_and_mask", "mask_only", "off"):
            raise ValueError(f"correction {self.correction!r}: choose weight_and_mask, mask_only or off")
        if not 0 < self.q_min <= 1 <= self.q_max:
            raise ValueError(f"the keep band [{self.q_min}, {self.q_max}] must contain q = 1 (an on-policy token)")


def wirl_loss(
    logprob_BxT: jax.Array,
    old_BxT: jax.Array,
    rollout_BxT: jax.Array,
    reference_BxT: jax.Array,
    entropy_BxT: jax.Array,
    advantage_BxT: jax.Array,
    weight_BxT: jax.Array,
    config: WirlLoss,
) -> tuple[jax.Array, dict[str, masked.Metric]]:
    """Sum over windows of the window terms (MLExpert eq. 4), and metrics. Gradients reach `logprob` and `entropy` only.

    A NaN log-prob is outside every band and would vanish; it shows up as a NaN `q_log_max`, on which the step raises.
    """
    sampled_BxT = weight_BxT > 0
    log_q_BxT = jnp.where(sampled_BxT, jax.lax.stop_gradient(old_BxT) - rollout_BxT, 0.0)
    keep_BxT, q_BxT = _correction(log_q_BxT, sampled_BxT, config)
    # Masked before the exponential: an infinite ratio times a zero mask would still poison the gradient.
    log_rho_BxT = jnp.where(keep_BxT, logprob_BxT - jax.lax.stop_gradient(old_BxT), 0.0)
    log_ref_BxT = jnp.where(keep_BxT, jax.lax.stop_gradient(reference_BxT) - logprob_BxT, 0.0)
    rho_BxT = jnp.exp(log_rho_BxT)
    clipped_BxT = jnp.clip(rho_BxT, 1 - config.eps, 1 + config.eps)
    policy_BxT = -q_BxT * jnp.minimum(rho_BxT * advantage_BxT, clipped_BxT * advantage_BxT)
    kl_BxT = jnp.exp(log_ref_BxT) - log_ref_BxT - 1
    token_BxT = policy_BxT + config.kl * kl_BxT - config.entropy * entropy_BxT
    loss = masked.total(weight_BxT * token_BxT, keep_BxT)
    cut_BxT = rho_BxT * advantage_BxT > clipped_BxT * advantage_BxT
    metrics: dict[str, masked.Metric] = {
        "loss": masked.Mean(loss, jnp.sum(weight_BxT)),
        "policy_loss": masked.Mean(masked.total(weight_BxT * policy_BxT, keep_BxT), jnp.sum(weight_BxT)),
        "kl": masked.Mean(masked.total(weight_BxT * kl_BxT, keep_BxT), jnp.sum(weight_BxT)),
        "entropy": masked.mean(entropy_BxT, weight_BxT),
        "clip_share": masked.mean(cut_BxT & keep_BxT, sampled_BxT),
        "keep_share": masked.mean(keep_BxT, sampled_BxT),
        **_mismatch(log_q_BxT, sampled_BxT),
    }
    return loss, jax.lax.stop_gradient(metrics)


def sft_loss(logprob_BxT: jax.Array, weight_BxT: jax.Array) -> tuple[jax.Array, dict[str, masked.Metric]]:
    """Weighted negative log-likelihood, summed. With weight 1 / (all trained tokens) it is the token mean."""
    loss = masked.total(-logprob_BxT * weight_BxT, weight_BxT > 0)
    return loss, {"loss": masked.Mean(jax.lax.stop_gradient(loss), jnp.sum(weight_BxT))}


def _correction(log_q_BxT: jax.Array, sampled_BxT: jax.Array, config: WirlLoss) -> tuple[jax.Array, jax.Array]:
    """Which tokens take part, and the factor on their policy term."""
    if config.correction == "off":
        return sampled_BxT, jnp.ones_like(log_q_BxT)
    q_BxT = jnp.exp(log_q_BxT)
    keep_BxT = sampled_BxT & (q_BxT >= config.q_min) & (q_BxT <= config.q_max)
    if config.correction == "mask_only":
        return keep_BxT, jnp.ones_like(log_q_BxT)
    return keep_BxT, jnp.where(keep_BxT, q_BxT, 0.0)


def _mismatch(log_q_BxT: jax.Array, sampled_BxT: jax.Array) -> dict[str, masked.Metric]:
    """How far sampler and learner are apart, over ALL sampled tokens, masked ones included."""
    shown_BxT = jnp.clip(log_q_BxT, -_LOG_Q_SHOWN, _LOG_Q_SHOWN)
    q_BxT = jnp.exp(shown_BxT)
    return {
        "q_mean": masked.mean(q_BxT, sampled_BxT),
        "q_min": masked.least(q_BxT, sampled_BxT),
        "q_max": masked.most(q_BxT, sampled_BxT),
        "q_log_max": masked.most(jnp.abs(log_q_BxT), sampled_BxT),
        "mismatch_kl": masked.mean(q_BxT - 1 - shown_BxT, sampled_BxT),
    }
