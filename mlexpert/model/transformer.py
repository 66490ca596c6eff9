"""The decoder: tokens to final-normed hidden states, never to logits (who needs logits, takes them in chunks).

`hidden` reads whole packed rows (training); `extend` appends tokens to the slots of a key-value cache (prefill and
decoding). Both run the same block; they differ only in the keys that a query may see. Layers are stacked and scanned,
so compile time does not grow with depth.
"""

from __future__ import annotations

from dataclasses import replace

import flax.struct
import jax
import jax.numpy as jnp

from mlexpert.model.attention import Keys, attend, self_attend
from mlexpert.model.config import ModelConfig, require_built
from mlexpert.model.layers import gated_mlp, rms_norm, rotary_table, rotate
from mlexpert.model.moe import Routing, moe
from mlexpert.model.params import Params


@flax.struct.dataclass
class Cache:
    """Keys and values of every slot, [L, S, G, C, K]: G key heads, C positions, K head width. A slot's entries at and
    beyond the position where it is next extended are stale and never read, so a slot needs no clearing."""

    k: jax.Array
    v: jax.Array

    @property
    def slots(self) -> int:
        return self.k.shape[1]

    @property
    def length(self) -> int:
        return self.k.shape[3]


def hidden(
    params: Params, config: ModelConfig, tokens_BxT: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array
) -> jax.Array:
    """Final-normed hidden states [B, T, D] of packed rows. Rows of segment 0 are padding; their output is finite and
    meaningless. Raises NotImplementedError for a mixer that is not built."""
    return hidden_and_routing(params, config, tokens_BxT, segments_BxT, positions_BxT)[0]


def hidden_and_routing(
    params: Params,
    config: ModelConfig,
    tokens_BxT: jax.Array,
    segments_BxT: jax.Array,
    positions_BxT: jax.Array,
    replay_LxBxTxK: jax.Array | None = None,
) -> tuple[jax.Array, Routing | None]:
    """As `hidden`, with the routing of every layer (None for a dense model) and, if given, recorded expert ids instead
    of the router's own choice."""
    require_built(config)
    table = rotary_table(positions_BxT, config.head_dim, config.rope_theta)

    def step(x_BxTxD: jax.Array, xs: tuple[Params, jax.Array | None]) -> tuple[jax.Array, Routing | None]:
        layer, replay_BxTxK = xs
        q, k, v = _project(x_BxTxD, layer, config, table)
        mixed = self_attend(q, k, v, segments_BxT, positions_BxT)
        return _finish(x_BxTxD, mixed, layer, config, segments_BxT > 0, replay_BxTxK)

    step = jax.checkpoint(step) if config.remat else step
    x_BxTxD, routing = jax.lax.scan(step, _embed(params, tokens_BxT), (params["layers"], replay_LxBxTxK))
    return rms_norm(x_BxTxD, params["final_norm"], config.rms_eps), routing


def unembedding(params: Params, config: ModelConfig) -> jax.Array:
    """The matrix [D, V] that turns hidden states into logits."""
    return params["embedding"].T if config.tied_embedding else params["unembedding"]


def init_cache(config: ModelConfig, slots: int, length: int) -> Cache:
    """An empty cache of `slots` sequences of at most `length` tokens."""
    require_built(config)
    shape = (config.n_layers, slots, config.n_kv_heads, length, config.head_dim)
    return Cache(jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype))


def extend(
    params: Params,
    config: ModelConfig,
    cache: Cache,
    tokens_RxP: jax.Array,
    starts_R: jax.Array,
    counts_R: jax.Array,
    slots_R: jax.Array | None = None,
    read: int | None = None,
) -> tuple[jax.Array, Cache]:
    """Appends counts[r] tokens of row r to its slot from position starts[r] on; returns ([R, P, D], cache).

    A row of count 0 leaves its slot untouched. Row r is slot r, or slots_R[r] if given (no slot twice). `read` (static)
    promises that all starts are at most `read`, so only that many cached positions are looked at. The caller sees to
    starts + counts <= cache.length: positions beyond it are not stored.
    """
    require_built(config)
    n_rows, width = tokens_RxP.shape
    rows_R = jnp.arange(n_rows) if slots_R is None else slots_R
    new_P = jnp.arange(width)
    positions_RxP = starts_R[:, None] + new_P[None, :]
    segments_RxP = (new_P[None, :] < counts_R[:, None]).astype(jnp.int32)
    old_RxC = jnp.broadcast_to(jnp.arange(read or cache.length)[None, :], (n_rows, read or cache.length))
    old_segments_RxC = (old_RxC < starts_R[:, None]).astype(jnp.int32)
    table = rotary_table(positions_RxP, config.head_dim, config.rope_theta)

    def step(x_RxPxD: jax.Array, xs: tuple[Params, jax.Array, jax.Array]):
        layer, old_k, old_v = xs
        q, k, v = _project(x_RxPxD, layer, config, table)
        old_k, old_v = (_rows(old, slots_R, read) for old in (old_k, old_v))
        parts = [Keys(old_k, old_v, old_segments_RxC, old_RxC), Keys(k, v, segments_RxP, positions_RxP)]
        mixed = attend(q, segments_RxP, positions_RxP, parts)
        return _finish(x_RxPxD, mixed, layer, config)[0], (k, v)

    x_RxPxD, new = jax.lax.scan(step, _embed(params, tokens_RxP), (params["layers"], cache.k, cache.v))
    # An index beyond the cache drops the write: that is how tokens past a row's count are left out.
    where_RxP = jnp.where(segments_RxP > 0, positions_RxP, cache.length)
    k, v = (_store(old, fresh, rows_R, where_RxP) for old, fresh in zip((cache.k, cache.v), new, strict=True))
    return rms_norm(x_RxPxD, params["final_norm"], config.rms_eps), Cache(k, v)


def _embed(params: Params, tokens_BxT: jax.Array) -> jax.Array:
    return params["embedding"][tokens_BxT]


def _project(
    x_BxTxD: jax.Array, layer: Params, config: ModelConfig, table: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries [B, T, H, K], keys and values [B, G, T, K]: normed per head, rotated."""
    weights = layer["attention"]
    x_BxTxD = rms_norm(x_BxTxD, layer["attention_norm"], config.rms_eps)
    q = jnp.einsum("btd,dhk->bthk", x_BxTxD, weights["query"])
    k = jnp.einsum("btd,dgk->btgk", x_BxTxD, weights["key"])
    v = jnp.einsum("btd,dgk->bgtk", x_BxTxD, weights["value"])
    q = rotate(rms_norm(q, weights["query_norm"], config.rms_eps), table)
    k = rotate(rms_norm(k, weights["key_norm"], config.rms_eps), table)
    return q, k.transpose(0, 2, 1, 3), v


def _finish(
    x_BxTxD: jax.Array,
    mixed_BxTxHxK: jax.Array,
    layer: Params,
    config: ModelConfig,
    real_BxT: jax.Array | None = None,
    replay_BxTxK: jax.Array | None = None,
) -> tuple[jax.Array, Routing | None]:
    """The rest of a block after attention: output projection, then the MLP or the experts, both residual."""
    x_BxTxD = x_BxTxD + jnp.einsum("bthk,hkd->btd", mixed_BxTxHxK, layer["attention"]["output"])
    normed_NxD = rms_norm(x_BxTxD, layer["mlp_norm"], config.rms_eps).reshape(-1, config.d_model)
    if not config.sparse:
        return x_BxTxD + gated_mlp(normed_NxD, layer["mlp"]).reshape(x_BxTxD.shape), None
    real_N = None if real_BxT is None else real_BxT.reshape(-1)
    replay_NxK = None if replay_BxTxK is None else replay_BxTxK.reshape(-1, config.experts_per_token)
    out_NxD, routing = moe(normed_NxD, layer["moe"], config, real_N, replay_NxK)
    experts_BxTxK = routing.experts_NxK.reshape(*x_BxTxD.shape[:2], -1)
    return x_BxTxD + out_NxD.reshape(x_BxTxD.shape), replace(routing, experts_NxK=experts_BxTxK)


def _rows(old_SxGxCxK: jax.Array, slots_R: jax.Array | None, read: int | None) -> jax.Array:
    kept = old_SxGxCxK if read is None else old_SxGxCxK[:, :, :read]
    return kept if slots_R is None else kept[slots_R]


def _store(old_LxSxGxCxK: jax.Array, new_LxRxGxPxK: jax.Array, rows_R: jax.Array, where_RxP: jax.Array) -> jax.Array:
    # Two advanced indices split by a slice put their axes first: the update is [R, P, L, G, K].
    update_RxPxLxGxK = new_LxRxGxPxK.transpose(1, 3, 0, 2, 4)
    return old_LxSxGxCxK.at[:, rows_R[:, None], :, where_RxP].set(update_RxPxLxGxK, mode="drop")
