"""The small pieces: RMS norms, gated MLP, the expert that all tokens share. F is an MLP's hidden width."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mlexpert.model.config import ModelConfig
from mlexpert.model.weights import Params


def norm(x: jax.Array, gain: jax.Array, config: ModelConfig) -> jax.Array:
    """The model's RMS norm over the last axis, in its family's convention."""
    if config.norm == "one_plus":
        return one_plus_norm(x, gain, config.rms_eps)
    return rms_norm(x, gain, config.rms_eps)


def rms_norm(x: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    """x / rms(x) * gain over the last axis. The mean is float32 and the cast comes before the gain (Llama, Qwen3)."""
    return _unit(x, eps).astype(x.dtype) * jnp.broadcast_to(gain, x.shape)


def one_plus_norm(x: jax.Array, excess: jax.Array, eps: float) -> jax.Array:
    """x / rms(x) * (1 + excess) over the last axis, all of it float32, cast last (Qwen3-Next)."""
    gain = jnp.broadcast_to(1.0 + excess.astype(jnp.float32), x.shape)
    return (_unit(x, eps) * gain).astype(x.dtype)


def gated_mlp(x_NxD: jax.Array, weights: Params) -> jax.Array:
    """down(silu(gate x) * up x) (SwiGLU). Tokens on one axis: XLA's CPU weight gradient over two is far slower."""
    hidden_NxF = jax.nn.silu(x_NxD @ weights["gate"]) * (x_NxD @ weights["up"])
    return hidden_NxF @ weights["down"]


def shared_expert(x_NxD: jax.Array, weights: Params) -> jax.Array:
    """The MLP that every token goes through, scaled by a sigmoid of the token."""
    share_N = jax.nn.sigmoid(x_NxD @ weights["share"])
    return share_N[:, None] * gated_mlp(x_NxD, weights)


def _unit(x: jax.Array, eps: float) -> jax.Array:
    x_f32 = x.astype(jnp.float32)
    return x_f32 * jax.lax.rsqrt(jnp.mean(jnp.square(x_f32), axis=-1, keepdims=True) + eps)
