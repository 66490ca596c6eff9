"""Sparse mixture of experts without dropped tokens.

1. The router scores all experts in float32; the k best of the softmax are chosen and, if the model says so, their
   weights renormalised. Recorded choices may be given instead ("replay"): then the weights are still the current
   router's, so that gradients reach it, but the ids are the sampler's.
2. Every (token, choice) gets a row, and grouped products run each row through its own expert alone (grouped.py); where
   experts are spread over devices, rows travel to theirs (expert_parallel.py).
3. A handful of tokens (decoding) runs through all experts densely: reading the weights is the cost, not arithmetic.

Shape letters: N tokens, E experts, K choices of a token, R rows, F expert width.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from mlexpert.model.config import ModelConfig
from mlexpert.model.expert_parallel import run_experts
from mlexpert.model.grouped import arrange, block_size, default_backend, grouped_mlp, take
from mlexpert.model.parallel import ALONE, Parallel, total
from mlexpert.model.weights import Params

DENSE_TOKENS = 64  # at most this many tokens go through all experts


@flax.struct.dataclass
class Routing:
    """What one layer's router did; stacked on a leading layer axis for a whole model."""

    experts_NxK: jax.Array  # int32
    load_E: jax.Array  # share of the assignments of real tokens, sums to 1
    balance: jax.Array  # E * sum_e load_e * mean probability_e (Switch Transformer eq. 4 with k choices); 1 is even


def moe(
    x_NxD: jax.Array,
    weights: Params,
    config: ModelConfig,
    real_N: jax.Array | None = None,
    replay_NxK: jax.Array | None = None,
    parallel: Parallel = ALONE,
) -> tuple[jax.Array, Routing]:
    """Output [N, D] and what the router did. `real_N` keeps padding out of the load statistics only."""
    share_NxK, routing = route(x_NxD, weights["router"], config, real_N, replay_NxK, parallel)
    if parallel.expert:
        return run_experts(x_NxD, weights, share_NxK, routing.experts_NxK, parallel), routing
    if x_NxD.shape[0] <= DENSE_TOKENS:
        return _all_experts(x_NxD, weights, share_NxK, routing.experts_NxK), routing
    backend = parallel.grouped or default_backend()
    return _grouped_experts(x_NxD, weights, share_NxK, routing.experts_NxK, backend), routing


def route(
    x_NxD: jax.Array,
    router_DxE: jax.Array,
    config: ModelConfig,
    real_N: jax.Array | None = None,
    replay_NxK: jax.Array | None = None,
    parallel: Parallel = ALONE,
) -> tuple[jax.Array, Routing]:
    """Weight of each chosen expert [N, K] (float32) and the routing; its statistics are of all devices' tokens."""
    logits_NxE = x_NxD.astype(jnp.float32) @ router_DxE.astype(jnp.float32)
    probs_NxE = jax.nn.softmax(logits_NxE, axis=-1)
    if replay_NxK is None:
        experts_NxK = jax.lax.top_k(jax.lax.stop_gradient(probs_NxE), config.experts_per_token)[1]
    else:
        experts_NxK = replay_NxK
    chosen_NxKxE = jax.nn.one_hot(experts_NxK, config.n_experts, dtype=jnp.float32)
    share_NxK = jnp.einsum("nke,ne->nk", chosen_NxKxE, probs_NxE)
    if config.norm_topk_prob:
        share_NxK = share_NxK / share_NxK.sum(axis=-1, keepdims=True)
    real_Nx1 = jnp.ones((x_NxD.shape[0], 1)) if real_N is None else real_N.astype(jnp.float32)[:, None]
    n_real = jnp.maximum(total(real_Nx1.sum(), parallel), 1.0)
    chosen_E = total((chosen_NxKxE.sum(axis=1) * real_Nx1).sum(axis=0), parallel)
    load_E = chosen_E / (n_real * config.experts_per_token)
    mean_prob_E = total((jax.lax.stop_gradient(probs_NxE) * real_Nx1).sum(axis=0), parallel) / n_real
    balance = config.n_experts * jnp.sum(load_E * mean_prob_E)
    return share_NxK, Routing(experts_NxK.astype(jnp.int32), load_E, balance)


def _all_experts(x_NxD: jax.Array, weights: Params, share_NxK: jax.Array, experts_NxK: jax.Array) -> jax.Array:
    n_experts = weights["gate"].shape[0]
    share_NxE = jnp.einsum("nke,nk->ne", jax.nn.one_hot(experts_NxK, n_experts, dtype=share_NxK.dtype), share_NxK)
    # The input is repeated per expert so that each product is a plain batched matrix product, with no output transpose.
    x_ExNxD = jnp.broadcast_to(x_NxD, (n_experts, *x_NxD.shape))
    gate = jnp.einsum("end,edf->enf", x_ExNxD, weights["gate"])
    up = jnp.einsum("end,edf->enf", x_ExNxD, weights["up"])
    hidden_ExNxF = jax.nn.silu(gate) * up * share_NxE.T[:, :, None].astype(x_NxD.dtype)
    return jnp.einsum("enf,efd->nd", hidden_ExNxF, weights["down"])


def _grouped_experts(
    x_NxD: jax.Array, weights: Params, share_NxK: jax.Array, experts_NxK: jax.Array, backend: str
) -> jax.Array:
    n, k = experts_NxK.shape
    n_experts = weights["gate"].shape[0]
    rows = arrange(experts_NxK.reshape(-1), n_experts, block_size(n * k, n_experts))
    x_RxD = take(x_NxD, rows.thing_R // k, rows.row_A.reshape(n, k))
    y_RxD = grouped_mlp(x_RxD, weights["gate"], weights["up"], weights["down"], rows.groups, backend)
    y_NxKxD = take(y_RxD, rows.row_A, rows.thing_R[:, None]).reshape(n, k, -1)
    return jnp.einsum("nk,nkd->nd", share_NxK.astype(x_NxD.dtype), y_NxKxD)
