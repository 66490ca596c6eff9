"""The small pieces: RMS norm, rotary positions, gated MLP. F is the MLP's hidden width."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mlexpert.model.params import Params


def rms_norm(x: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    """x / rms(x) * gain over the last axis. The mean is float32 and the cast comes before the gain (Qwen3)."""
    x_f32 = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(x_f32), axis=-1, keepdims=True) + eps)
    return (x_f32 * scale).astype(x.dtype) * jnp.broadcast_to(gain, x.shape)


def rotary_table(positions_BxT: jax.Array, head_dim: int, theta: float) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of the rotary angles, float32 [B, T, 1, head_dim / 2]; one table serves all layers (RoFormer)."""
    half = head_dim // 2
    frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions_BxT[:, :, None, None].astype(jnp.float32) * frequency[None, None, None, :]
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x_BxTxHxK: jax.Array, table: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Rotates pairs (i, i + K/2) of every head by the angle of its position, in float32."""
    cos, sin = table
    first, second = jnp.split(x_BxTxHxK.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)
    return rotated.astype(x_BxTxHxK.dtype)


def gated_mlp(x_NxD: jax.Array, weights: Params) -> jax.Array:
    """down(silu(gate x) * up x) (SwiGLU). Tokens on one axis: XLA's CPU weight gradient over two is far slower."""
    hidden_NxF = jax.nn.silu(x_NxD @ weights["gate"]) * (x_NxD @ weights["up"])
    return hidden_NxF @ weights["down"]
