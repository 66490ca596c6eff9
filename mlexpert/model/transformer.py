"""The decoder: tokens to final-normed hidden states, never to logits (who needs logits, takes them in chunks).

`hidden` reads whole packed rows (training); `extend` appends tokens to the slots of a cache (prefill and decoding).
They run the same layers and differ only in the past that a mixer may see. One scan runs the repetitions of the layer
pattern, so compile time does not grow with depth; where a few layers keep all that the backward pass needs, they are
unrolled, as a scan would copy it together and apart again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import flax.struct
import jax
import jax.numpy as jnp

from mlexpert.model import deltanet
from mlexpert.model.attention import Keys, attend
from mlexpert.model.config import Layer, ModelConfig
from mlexpert.model.deltanet import DeltaState, empty_state
from mlexpert.model.layers import gated_mlp, norm, shared_expert
from mlexpert.model.lora import adapted
from mlexpert.model.moe import Routing, moe
from mlexpert.model.parallel import ALONE, Parallel, embed, fetch
from mlexpert.model.rotary import Table, rotary_table, rotate
from mlexpert.model.sequence import attend_rows
from mlexpert.model.weights import Params

SHALLOW = 8  # at most so many repetitions are unrolled


@flax.struct.dataclass
class KeyValues:
    """Of the attention layers at one position of the pattern, [blocks, S, G, C, K]: G key heads, C positions, K head
    width. A slot's entries at and beyond the position where it is next extended are stale and never read, so a slot
    needs no clearing and may be extended from any position that it holds."""

    k: jax.Array
    v: jax.Array


@flax.struct.dataclass
class Cache:
    """What `slots` sequences of at most `length` tokens have behind them, for each position of the pattern."""

    blocks: tuple[KeyValues | DeltaState, ...]
    slots: int = flax.struct.field(pytree_node=False)
    length: int = flax.struct.field(pytree_node=False)


def hidden(
    params: Params, config: ModelConfig, tokens_BxT: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array
) -> jax.Array:
    """Final-normed hidden states [B, T, D] of packed rows. Rows of segment 0 are padding; their output is finite and
    meaningless."""
    return hidden_and_routing(params, config, tokens_BxT, segments_BxT, positions_BxT)[0]


def hidden_and_routing(
    params: Params,
    config: ModelConfig,
    tokens_BxT: jax.Array,
    segments_BxT: jax.Array,
    positions_BxT: jax.Array,
    replay_LxBxTxK: jax.Array | None = None,
    parallel: Parallel = ALONE,
) -> tuple[jax.Array, Routing | None]:
    """As `hidden`, with the routing of every sparse layer, stacked in order of depth (None for a dense model), and, if
    given, recorded expert ids for these layers instead of the router's own choice. On a mesh, called inside
    `jax.shard_map`, all arguments are the device's own parts."""
    table = rotary_table(positions_BxT, config)
    real_BxT = segments_BxT > 0

    def run(position: int, x_BxTxD: jax.Array, weights: Params, replay_BxTxK: jax.Array | None):
        layer, weights = config.pattern[position], adapted(fetch(weights, parallel, position), config)
        normed = norm(x_BxTxD, weights["mixer_norm"], config)
        if layer.mixer == "deltanet":
            mixed = deltanet.mix_rows(normed, weights["deltanet"], config, segments_BxT, parallel)
        else:
            q, k, v = project(normed, weights["attention"], config, table)
            mixed = merge(attend_rows(q, k, v, segments_BxT, positions_BxT, parallel), normed, weights["attention"])
        return feed_forward(x_BxTxD + mixed, weights, config, layer, real_BxT, replay_BxTxK, parallel)

    runs = [_remembering(partial(run, position), config.remat) for position in range(len(config.pattern))]

    def step(x_BxTxD: jax.Array, xs: tuple[tuple[Params, ...], jax.Array | None]):
        blocks, replay_PxBxTxK = xs
        replays, routings = _per_sparse_layer(config.pattern, replay_PxBxTxK), []
        for one, weights, replay_BxTxK in zip(runs, blocks, replays, strict=True):
            x_BxTxD, routing = one(x_BxTxD, weights, replay_BxTxK)
            routings += [] if routing is None else [routing]
        return x_BxTxD, _stack(routings)

    replay = None if replay_LxBxTxK is None else replay_LxBxTxK.reshape(config.n_blocks, -1, *replay_LxBxTxK.shape[1:])
    start_BxTxD = embed(params["embedding"], tokens_BxT, parallel)
    # Layers that are computed again are not unrolled: the compiler would find both computations, and keep the first.
    unroll = config.remat == "none" and config.n_blocks <= SHALLOW
    x_BxTxD, routing = jax.lax.scan(step, start_BxTxD, (params["blocks"], replay), unroll=unroll)
    routing = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), routing)
    return norm(x_BxTxD, params["final_norm"], config), routing


def unembedding(params: Params, config: ModelConfig) -> jax.Array:
    """The matrix [D, V] that turns hidden states into logits."""
    return params["embedding"].T if config.tied_embedding else params["unembedding"]


def init_cache(config: ModelConfig, slots: int, length: int) -> Cache:
    """An empty cache of `slots` sequences of at most `length` tokens."""
    shape = (config.n_blocks, slots, config.n_kv_heads, length, config.head_dim)

    def empty(layer: Layer) -> KeyValues | DeltaState:
        if layer.mixer == "attention":
            return KeyValues(jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype))
        return jax.tree.map(lambda x: jnp.zeros((config.n_blocks, *x.shape), x.dtype), empty_state(config, slots))

    return Cache(tuple(map(empty, config.pattern)), slots, length)


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
    starts + counts <= cache.length: positions beyond it are not stored. A start is 0 or what the slot holds; a model
    without deltanet layers also takes anything between.
    """
    width = tokens_RxP.shape[1]
    positions_RxP = starts_R[:, None] + jnp.arange(width)[None, :]
    segments_RxP = (jnp.arange(width)[None, :] < counts_R[:, None]).astype(jnp.int32)
    old_RxC = jnp.broadcast_to(jnp.arange(read or cache.length)[None, :], (len(starts_R), read or cache.length))
    old_segments_RxC = (old_RxC < starts_R[:, None]).astype(jnp.int32)
    table = rotary_table(positions_RxP, config)

    def attention(normed_RxPxD: jax.Array, weights: Params, old: KeyValues) -> tuple[jax.Array, KeyValues]:
        q, k, v = project(normed_RxPxD, weights, config, table)
        old_k, old_v = (_rows(each if read is None else each[:, :, :read], slots_R) for each in (old.k, old.v))
        parts = [Keys(old_k, old_v, old_segments_RxC, old_RxC), Keys(k, v, segments_RxP, positions_RxP)]
        return merge(attend(q, segments_RxP, positions_RxP, parts), normed_RxPxD, weights), KeyValues(k, v)

    def delta(normed_RxPxD: jax.Array, weights: Params, old: DeltaState) -> tuple[jax.Array, DeltaState]:
        past = jax.tree.map(lambda x: _rows(x, slots_R), old)
        return deltanet.extend(normed_RxPxD, weights, config, past, starts_R, counts_R)

    mixers = {"attention": attention, "deltanet": delta}

    def step(x_RxPxD: jax.Array, xs: tuple[tuple[Params, ...], tuple[KeyValues | DeltaState, ...]]):
        fresh = []
        for layer, weights, old in zip(config.pattern, *xs, strict=True):
            weights = adapted(weights, config)
            normed = norm(x_RxPxD, weights["mixer_norm"], config)
            mixed, new = mixers[layer.mixer](normed, weights[layer.mixer], old)
            x_RxPxD = feed_forward(x_RxPxD + mixed, weights, config, layer)[0]
            fresh.append(new)
        return x_RxPxD, tuple(fresh)

    start_RxPxD = embed(params["embedding"], tokens_RxP, ALONE)
    x_RxPxD, new = jax.lax.scan(step, start_RxPxD, (params["blocks"], cache.blocks))
    # An index beyond the cache drops the write: that is how tokens past a row's count are left out.
    where_RxP = jnp.where(segments_RxP > 0, positions_RxP, cache.length)
    store = partial(_store, slots_R=slots_R, where_RxP=where_RxP)
    blocks = tuple(store(old, fresh) for old, fresh in zip(cache.blocks, new, strict=True))
    return norm(x_RxPxD, params["final_norm"], config), replace(cache, blocks=blocks)


def project(
    normed_BxTxD: jax.Array, weights: Params, config: ModelConfig, table: Table
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries [B, T, H, K], keys and values [B, G, T, K]: normed per head (if the model does), rotated."""
    q = jnp.einsum("btd,dhk->bthk", normed_BxTxD, weights["query"])
    k = jnp.einsum("btd,dgk->btgk", normed_BxTxD, weights["key"])
    v = jnp.einsum("btd,dgk->bgtk", normed_BxTxD, weights["value"])
    if config.qkv_bias:
        q, k = q + weights["query_bias"][None, None], k + weights["key_bias"][None, None]
        v = v + weights["value_bias"][None, :, None]
    if config.qk_norm:
        q, k = norm(q, weights["query_norm"], config), norm(k, weights["key_norm"], config)
    return rotate(q, table), rotate(k, table).transpose(0, 2, 1, 3), v


def merge(mixed_BxTxHxK: jax.Array, normed_BxTxD: jax.Array, weights: Params) -> jax.Array:
    """What attention adds to the stream: its heads, gated if the model does, through the output projection."""
    if "gate" in weights:
        gate = jnp.einsum("btd,dhk->bthk", normed_BxTxD, weights["gate"])
        if "gate_bias" in weights:
            gate = gate + weights["gate_bias"][None, None]
        mixed_BxTxHxK = mixed_BxTxHxK * jax.nn.sigmoid(gate)
    out_BxTxD = jnp.einsum("bthk,hkd->btd", mixed_BxTxHxK, weights["output"])
    return out_BxTxD + weights["output_bias"][None, None] if "output_bias" in weights else out_BxTxD


def feed_forward(
    x_BxTxD: jax.Array,
    weights: Params,
    config: ModelConfig,
    layer: Layer,
    real_BxT: jax.Array | None = None,
    replay_BxTxK: jax.Array | None = None,
    parallel: Parallel = ALONE,
) -> tuple[jax.Array, Routing | None]:
    """The second half of a layer: the MLP or the experts, added to the stream."""
    normed_NxD = norm(x_BxTxD, weights["mlp_norm"], config).reshape(-1, config.d_model)
    if layer.mlp == "dense":
        return x_BxTxD + gated_mlp(normed_NxD, weights["mlp"]).reshape(x_BxTxD.shape), None
    real_N = None if real_BxT is None else real_BxT.reshape(-1)
    replay_NxK = None if replay_BxTxK is None else replay_BxTxK.reshape(-1, config.experts_per_token)
    out_NxD, routing = moe(normed_NxD, weights["moe"], config, real_N, replay_NxK, parallel)
    if "shared" in weights:
        out_NxD = out_NxD + shared_expert(normed_NxD, weights["shared"])
    experts_BxTxK = routing.experts_NxK.reshape(*x_BxTxD.shape[:2], -1)
    return x_BxTxD + out_NxD.reshape(x_BxTxD.shape), replace(routing, experts_NxK=experts_BxTxK)


def _remembering(layer: Callable, remat: str) -> Callable:
    """The layer as the backward pass will find it: whole, or to be computed again from its input."""
    if remat == "none":
        return layer
    policies = jax.checkpoint_policies
    policy = policies.dots_with_no_batch_dims_saveable if remat == "matrices" else policies.nothing_saveable
    return jax.checkpoint(layer, policy=policy, prevent_cse=False)  # a scan keeps forward and backward apart


def _per_sparse_layer(pattern: Sequence[Layer], replay_PxBxTxK: jax.Array | None) -> list[jax.Array | None]:
    """For each layer of the pattern, its recorded ids: sparse layers are counted, dense ones have none."""
    ids = iter([] if replay_PxBxTxK is None else replay_PxBxTxK)
    return [next(ids, None) if layer.mlp == "sparse" else None for layer in pattern]


def _stack(routings: Sequence[Routing]) -> Routing | None:
    return jax.tree.map(lambda *each: jnp.stack(each), *routings) if routings else None


def _rows(old_Sx: jax.Array, slots_R: jax.Array | None) -> jax.Array:
    return old_Sx if slots_R is None else old_Sx[slots_R]


def _store(
    old: KeyValues | DeltaState, new: KeyValues | DeltaState, slots_R: jax.Array | None, where_RxP: jax.Array
) -> KeyValues | DeltaState:
    """The cache of one position of the pattern with the rows' news: new positions, or the whole state of a slot."""
    if isinstance(old, DeltaState):
        return new if slots_R is None else jax.tree.map(lambda o, n: o.at[:, slots_R].set(n), old, new)
    rows_R = jnp.arange(where_RxP.shape[0]) if slots_R is None else slots_R

    def put(old_LxSxGxCxK: jax.Array, new_LxRxGxPxK: jax.Array) -> jax.Array:
        # Two advanced indices split by a slice put their axes first: the update is [R, P, L, G, K].
        update_RxPxLxGxK = new_LxRxGxPxK.transpose(1, 3, 0, 2, 4)
        return old_LxSxGxCxK.at[:, rows_R[:, None], :, where_RxP].set(update_RxPxLxGxK, mode="drop")

    return jax.tree.map(put, old, new)
