"""Rotary positions (RoFormer), on all channels of a head or the first ones, with the stretches to longer contexts.

linear   all angles divided by the factor (Chen et al. 2023)
llama3   slow frequencies divided, fast ones kept, those between blended by their turns over the original length
yarn     the same with a blend linear in the index of the frequency, and cosine and sine scaled (Peng et al. 2023)
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from mlexpert.model.config import ModelConfig, RopeScaling

Table = tuple[jax.Array, jax.Array]


def rotary_table(positions_BxT: jax.Array, config: ModelConfig) -> Table:
    """Cosine and sine of the rotary angles, float32 [B, T, 1, rotated channels / 2]; one table serves all layers."""
    half = (config.rotary_dim or config.head_dim) // 2
    frequency = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    scaling, size = config.rope_scaling, 1.0
    if scaling is not None:
        frequency = frequency * jnp.asarray(_stretch(scaling, config.rope_theta, half), jnp.float32)
        size = _size(scaling)
    angle = positions_BxT[:, :, None, None].astype(jnp.float32) * frequency[None, None, None, :]
    return (jnp.cos(angle), jnp.sin(angle)) if size == 1.0 else (size * jnp.cos(angle), size * jnp.sin(angle))


def rotate(x_BxTxHxK: jax.Array, table: Table) -> jax.Array:
    """Rotates pairs (i, i + R/2) of the first R channels of every head by the angle of its position, in float32."""
    cos, sin = table
    width = 2 * cos.shape[-1]
    turning = x_BxTxHxK if width == x_BxTxHxK.shape[-1] else x_BxTxHxK[..., :width]
    first, second = jnp.split(turning.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)
    rotated = rotated.astype(x_BxTxHxK.dtype)
    if width == x_BxTxHxK.shape[-1]:
        return rotated
    return jnp.concatenate((rotated, x_BxTxHxK[..., width:]), axis=-1)


def _stretch(scaling: RopeScaling, theta: float, half: int) -> np.ndarray:
    """What each frequency is multiplied by."""
    if scaling.kind == "linear":
        return np.full(half, 1.0 / scaling.factor)
    turns = scaling.original_length * theta ** (-np.arange(half) / half) / (2 * math.pi)
    if scaling.kind == "llama3":
        kept = (turns - scaling.low) / (scaling.high - scaling.low)
    else:

        def index(n_turns: float) -> float:
            return half * math.log(scaling.original_length / (n_turns * 2 * math.pi)) / math.log(theta)

        first, last = max(math.floor(index(scaling.high)), 0), min(math.ceil(index(scaling.low)), 2 * half - 1)
        kept = 1.0 - (np.arange(half) - first) / max(last - first, 1e-3)
    kept = np.clip(kept, 0.0, 1.0)
    return kept + (1.0 - kept) / scaling.factor


def _size(scaling: RopeScaling) -> float:
    if scaling.kind != "yarn":
        return 1.0
    return scaling.attention_factor or 0.1 * math.log(scaling.factor) + 1.0
