"""The compiled programs of the embedded engine: prefill, a chunk of decoding, and the probe by two ways.

Shapes are fixed by the number of slots; a row without work has no effect. Every draw uses the key (seed, position), so
a turn does not depend on its neighbours, its slot or the chunk size.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import flax.struct
import jax
import jax.numpy as jnp

from mlexpert.model import distribution, transformer
from mlexpert.model.config import ModelConfig
from mlexpert.model.transformer import Cache
from mlexpert.rollout.engine import Params
from mlexpert.types import Sampling


@flax.struct.dataclass
class Lanes:
    """What a decode chunk must know of each slot. `left_S` 0: nothing to draw."""

    token_S: jax.Array  # newest token of the context, not yet in the cache
    position_S: jax.Array  # its position
    left_S: jax.Array  # tokens that may still be drawn
    stop_S: jax.Array
    seed_Sx2: jax.Array  # uint32 halves of the 64-bit seed


@flax.struct.dataclass
class Drawn:
    """Tokens of a chunk; slot s drew the first counts_S[s] of its column. Rows beyond that are meaningless."""

    ids_NxS: jax.Array
    logprobs_NxS: jax.Array
    support_NxSxK: jax.Array | None
    counts_S: jax.Array
    steps: jax.Array


@partial(jax.jit, static_argnames=("config",), donate_argnames=("cache",))
def prefill(
    params: Params,
    config: ModelConfig,
    cache: Cache,
    tokens_RxP: jax.Array,
    starts_R: jax.Array,
    counts_R: jax.Array,
    slots_R: jax.Array,
) -> Cache:
    """Puts counts_R[r] tokens into slot slots_R[r] from position starts_R[r] on. No slot may occur twice."""
    return transformer.extend(params, config, cache, tokens_RxP, starts_R, counts_R, slots_R)[1]


@partial(jax.jit, static_argnames=("config", "sampling", "chunk", "read"), donate_argnames=("cache",))
def decode(
    params: Params, config: ModelConfig, cache: Cache, lanes: Lanes, sampling: Sampling, chunk: int, read: int
) -> tuple[Drawn, Cache]:
    """Up to `chunk` tokens for every slot with tokens left; ends early when no slot has any.

    `read` bounds the cached positions that are looked at: positions of the chunk must stay below it.
    """
    slots = lanes.token_S.shape[0]
    unembedding_DxV = transformer.unembedding(params, config)
    width = sampling.top_k or (0 if sampling.top_p == 1.0 else config.vocab_size)
    empty = Drawn(
        ids_NxS=jnp.zeros((chunk, slots), jnp.int32),
        logprobs_NxS=jnp.zeros((chunk, slots), jnp.float32),
        support_NxSxK=jnp.zeros((chunk, slots, min(width, config.vocab_size)), jnp.int32) if width else None,
        counts_S=jnp.zeros(slots, jnp.int32),
        steps=jnp.zeros((), jnp.int32),
    )

    def go_on(carry: tuple[Drawn, Lanes, Cache]) -> jax.Array:
        return (carry[0].steps < chunk) & (carry[1].left_S > 0).any()

    def step(carry: tuple[Drawn, Lanes, Cache]) -> tuple[Drawn, Lanes, Cache]:
        drawn, lanes, cache = carry
        active_S = (lanes.left_S > 0).astype(jnp.int32)
        hidden_Sx1xD, cache = transformer.extend(
            params, config, cache, lanes.token_S[:, None], lanes.position_S, active_S, read=read
        )
        ids_S, logprobs_S, support_SxK = draw(hidden_Sx1xD[:, 0] @ unembedding_DxV, lanes, sampling)
        i = drawn.steps
        drawn = Drawn(
            ids_NxS=drawn.ids_NxS.at[i].set(ids_S),
            logprobs_NxS=drawn.logprobs_NxS.at[i].set(logprobs_S),
            support_NxSxK=jax.tree.map(lambda all, new: all.at[i].set(new), drawn.support_NxSxK, support_SxK),
            counts_S=drawn.counts_S + active_S,
            steps=i + 1,
        )
        left_S = jnp.where(ids_S == lanes.stop_S, 0, lanes.left_S - 1) * active_S
        lanes = replace(lanes, token_S=ids_S, position_S=lanes.position_S + active_S, left_S=left_S)
        return drawn, lanes, cache

    drawn, _, cache = jax.lax.while_loop(go_on, step, (empty, lanes, cache))
    return drawn, cache


def draw(logits_SxV: jax.Array, lanes: Lanes, sampling: Sampling) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """One token a slot from the key (seed, position), its log-prob and the support it was drawn from."""
    keys_S = jax.random.wrap_key_data(lanes.seed_Sx2, impl="threefry2x32")
    keys_S = jax.vmap(jax.random.fold_in)(keys_S, lanes.position_S)
    support_SxK = distribution.truncate(logits_SxV, sampling.temperature, sampling.top_k, sampling.top_p)
    ids_S = distribution.draw(keys_S, logits_SxV, sampling.temperature, support_SxK)
    return ids_S, distribution.log_probs(logits_SxV, ids_S, sampling.temperature, support_SxK), support_SxK


@partial(jax.jit, static_argnames=("config",))
def served_logprobs(params: Params, config: ModelConfig, ids_P: jax.Array) -> jax.Array:
    """Log-probs of ids[1:] by the serving path: half of the ids prefilled, the others fed one by one."""
    half = len(ids_P) // 2
    cache = transformer.init_cache(config, 1, len(ids_P))
    zero = jnp.zeros(1, jnp.int32)
    head_1xPxD, cache = transformer.extend(params, config, cache, ids_P[None, :half], zero, zero + half)

    def feed(cache: Cache, xs: tuple[jax.Array, jax.Array]) -> tuple[Cache, jax.Array]:
        token, position = xs
        hidden, cache = transformer.extend(params, config, cache, token[None, None], position[None], zero + 1)
        return cache, hidden[0, 0]

    _, tail_PxD = jax.lax.scan(feed, cache, (ids_P[half:], jnp.arange(half, len(ids_P))))
    hidden_PxD = jnp.concatenate([head_1xPxD[0], tail_PxD])
    return distribution.log_probs(hidden_PxD[:-1] @ transformer.unembedding(params, config), ids_P[1:], 1.0)


@partial(jax.jit, static_argnames=("config",))
def forward_logprobs(params: Params, config: ModelConfig, ids_P: jax.Array) -> jax.Array:
    """The same numbers by one full forward, as the learner computes them."""
    ones_1xP = jnp.ones((1, len(ids_P)), jnp.int32)
    hidden_1xPxD = transformer.hidden(params, config, ids_P[None], ones_1xP, jnp.arange(len(ids_P))[None])
    return distribution.log_probs(hidden_1xPxD[0, :-1] @ transformer.unembedding(params, config), ids_P[1:], 1.0)
