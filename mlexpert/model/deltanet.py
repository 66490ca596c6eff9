"""The mixer of linear-attention layers (Gated DeltaNet): projections, a short causal convolution over queries, keys and
values, the gated delta rule, a norm gated by the token, and the way back into the stream.

Its past is not a list of tokens but a state: the last inputs of the convolution and the memory of the delta rule. A
state cannot be taken back, so a slot goes on exactly where it stands or starts over at position 0. Anything else has no
right answer; it gives NaN, which the engine's own check of log-probs turns into an error.

Shape letters: G key heads, H value heads, K their width, W taps of the convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import flax.struct
import jax
import jax.numpy as jnp

from mlexpert.model.config import ModelConfig
from mlexpert.model.delta_rule import Tokens, chunked, step
from mlexpert.model.layers import rms_norm
from mlexpert.model.parallel import ALONE, Parallel, starts
from mlexpert.model.sequence import delta_rule_over, in_head_groups, left_inputs
from mlexpert.model.weights import Params

STREAMS = ("query", "key", "value")  # what the convolution runs over


@flax.struct.dataclass
class DeltaState:
    """What a row has behind it; in a cache, of every slot, below an axis for the blocks: [blocks, S, ...]."""

    inputs: dict[str, jax.Array]  # for each stream the last W - 1 inputs of the convolution [S, W - 1, heads, width]
    memory: jax.Array  # [S, H, K, V], float32
    held: jax.Array  # [S], int32: tokens seen


def empty_state(config: ModelConfig, rows: int) -> DeltaState:
    c = config
    key, value = (c.delta_key_heads, c.delta_key_dim), (c.delta_value_heads, c.delta_value_dim)
    inputs = {
        name: jnp.zeros((rows, c.delta_conv - 1, *(value if name == "value" else key)), c.dtype) for name in STREAMS
    }
    memory = jnp.zeros((rows, value[0], key[1], value[1]), jnp.float32)
    return DeltaState(inputs, memory, jnp.zeros(rows, jnp.int32))


def mix_rows(
    x_BxTxD: jax.Array, weights: Params, config: ModelConfig, segments_BxT: jax.Array, parallel: Parallel = ALONE
) -> jax.Array:
    """Packed rows, or the device's own stretches of them: convolution and memory start anew wherever the segment
    changes. Returns what is added to the stream, [B, T, D]."""
    fresh_BxT, past = starts(segments_BxT, parallel), empty_state(config, x_BxTxD.shape[0])
    if not parallel.sequence:
        return mix(x_BxTxD, weights, config, fresh_BxT, past)[0]
    left = left_inputs(x_BxTxD, fresh_BxT, config.delta_conv - 1, parallel)
    past = replace(past, inputs={name: _project(left, weights[name]) for name in STREAMS})
    return mix(x_BxTxD, weights, config, fresh_BxT, past, rule=partial(delta_rule_over, parallel=parallel))[0]


def extend(
    x_RxPxD: jax.Array, weights: Params, config: ModelConfig, past: DeltaState, starts_R: jax.Array, counts_R: jax.Array
) -> tuple[jax.Array, DeltaState]:
    """counts[r] tokens onto the state of row r; it starts over if starts[r] is 0 and is left alone if counts[r] is."""
    width = x_RxPxD.shape[1]
    works_R = counts_R > 0
    fresh_RxP = ((starts_R == 0) & works_R)[:, None] & (jnp.arange(width) == 0)[None, :]
    real_RxP = jnp.arange(width)[None, :] < counts_R[:, None]
    out_RxPxD, state = mix(x_RxPxD, weights, config, fresh_RxP, past, real_RxP)
    lost_R = works_R & (starts_R != 0) & (starts_R != past.held)
    out_RxPxD = jnp.where(lost_R[:, None, None], jnp.nan, out_RxPxD)
    return out_RxPxD, replace(state, held=jnp.where(works_R, starts_R + counts_R, past.held))


def mix(
    x_BxTxD: jax.Array,
    weights: Params,
    config: ModelConfig,
    fresh_BxT: jax.Array,
    past: DeltaState,
    real_BxT: jax.Array | None = None,
    rule: Callable[[Tokens, jax.Array], tuple[jax.Array, jax.Array]] | None = None,
) -> tuple[jax.Array, DeltaState]:
    """What is added to the stream and the state after the row's real tokens (they come first), whose `held` is not
    counted. Tokens that are not real leave no trace; where a token is fresh, nothing before it is seen."""
    streams, inputs = {}, {}
    for name in STREAMS:
        projected = _project(x_BxTxD, weights[name])
        joined = _join(past.inputs[name], projected, fresh_BxT)
        streams[name] = jax.nn.silu(_convolve(joined, weights[f"{name}_conv"], fresh_BxT))
        inputs[name] = _last(joined, config.delta_conv - 1, real_BxT)
    decay, write = _strengths(x_BxTxD, weights, real_BxT)
    scale = config.delta_key_dim**-0.5
    tokens = Tokens(_unit(streams["query"]) * scale, _unit(streams["key"]), streams["value"], decay, write, fresh_BxT)
    rule = rule or (step if x_BxTxD.shape[1] == 1 else chunked)
    mixed_BxTxHxV, memory = in_head_groups(rule, tokens, past.memory)
    gate_BxTxHxV = jnp.einsum("btd,dhv->bthv", x_BxTxD, weights["gate"]).astype(jnp.float32)
    normed = rms_norm(mixed_BxTxHxV, weights["norm"].astype(jnp.float32), config.rms_eps)
    gated = (normed * jax.nn.silu(gate_BxTxHxV)).astype(x_BxTxD.dtype)
    return jnp.einsum("bthv,hvd->btd", gated, weights["output"]), DeltaState(inputs, memory, past.held)


def _project(x_BxTxD: jax.Array, weight_DxHxK: jax.Array) -> jax.Array:
    return jnp.einsum("btd,dhk->bthk", x_BxTxD, weight_DxHxK)


def _strengths(x_BxTxD: jax.Array, weights: Params, real_BxT: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Log decay and write strength of every value head, float32 [B, T, H]."""
    write = jax.nn.sigmoid((x_BxTxD @ weights["write"]).astype(jnp.float32))
    raw = (x_BxTxD @ weights["decay"]).astype(jnp.float32) + weights["decay_bias"][None, None]
    decay = -jnp.exp(weights["decay_rate"])[None, None] * jax.nn.softplus(raw)
    if real_BxT is None:
        return decay, write
    return jnp.where(real_BxT[..., None], decay, 0.0), jnp.where(real_BxT[..., None], write, 0.0)


def _join(past_BxWxHxK: jax.Array, x_BxTxHxK: jax.Array, fresh_BxT: jax.Array) -> jax.Array:
    """The inputs with the past ones before them, [B, W - 1 + T, H, K]; none where the row starts over."""
    past = jnp.where(fresh_BxT[:, 0, None, None, None], jnp.zeros((), x_BxTxHxK.dtype), past_BxWxHxK)
    return jnp.concatenate((past, x_BxTxHxK), axis=1)


def _convolve(joined: jax.Array, taps_WxHxK: jax.Array, fresh_BxT: jax.Array) -> jax.Array:
    """Causal and depthwise, float32 [B, T, H, K]; a tap that reaches back beyond a fresh token finds zero."""
    n_taps, length = taps_WxHxK.shape[0], fresh_BxT.shape[1]
    run_BxT = jnp.cumsum(fresh_BxT, axis=1)
    runs = jnp.pad(run_BxT, ((0, 0), (n_taps - 1, 0)))
    total = jnp.zeros((), jnp.float32)
    for i in range(n_taps):
        same_BxT = runs[:, i : i + length] == run_BxT
        term = joined[:, i : i + length].astype(jnp.float32) * taps_WxHxK[i].astype(jnp.float32)[None, None]
        total = total + jnp.where(same_BxT[..., None, None], term, 0.0)
    return total


def _last(joined: jax.Array, n: int, real_BxT: jax.Array | None) -> jax.Array:
    """The last n inputs that are real, of [B, n + T, H, K]."""
    if real_BxT is None:
        return joined[:, -n:]
    first_B = real_BxT.sum(axis=1)
    index_BxN = first_B[:, None] + jnp.arange(n)[None, :]
    return jnp.take_along_axis(joined, index_BxN[..., None, None], axis=1)


def _unit(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True) + 1e-6)
