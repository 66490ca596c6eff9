"""Sparse mixture of experts without dropped tokens.

1. The router scores all experts in float32; the k best of the softmax are chosen and, if the model says so, their
   weights renormalised. Recorded choices may be given instead ("replay"): then the weights are still the current
   router's, so that gradients reach it, but the ids are the sampler's.
2. Every (token, choice) gets a row; rows of one expert lie together, padded to whole blocks, and a scan runs one
   block at a time through its expert's MLP. No weight is copied and no row is multiplied by an expert it did not
   choose, whatever the number of experts. Both backward passes are written by hand: the weight gradient is added in
   place (autodiff would carry a zero-padded copy of all experts through every block), and the transpose of a row
   gather, a scatter to autodiff, is here known to be a gather as well.
3. A handful of tokens (decoding) runs through all experts densely: reading the weights is the cost, not arithmetic.

Shape letters: N tokens, E experts, K choices of a token, R rows, A = N * K assignments, F expert width.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from mlexpert.model.config import ModelConfig
from mlexpert.model.params import Params

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
) -> tuple[jax.Array, Routing]:
    """Output [N, D] and what the router did. `real_N` keeps padding out of the load statistics only."""
    share_NxK, routing = route(x_NxD, weights["router"], config, real_N, replay_NxK)
    apply = _all_experts if x_NxD.shape[0] <= DENSE_TOKENS else _grouped_experts
    return apply(x_NxD, weights, share_NxK, routing.experts_NxK), routing


def route(
    x_NxD: jax.Array,
    router_DxE: jax.Array,
    config: ModelConfig,
    real_N: jax.Array | None = None,
    replay_NxK: jax.Array | None = None,
) -> tuple[jax.Array, Routing]:
    """Weight of each chosen expert [N, K] (float32) and the routing."""
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
    n_real = jnp.maximum(real_Nx1.sum(), 1.0)
    load_E = (chosen_NxKxE.sum(axis=1) * real_Nx1).sum(axis=0) / (n_real * config.experts_per_token)
    balance = config.n_experts * jnp.sum(load_E * (probs_NxE * real_Nx1).sum(axis=0) / n_real)
    return share_NxK, Routing(experts_NxK.astype(jnp.int32), jax.lax.stop_gradient(load_E), balance)


def _all_experts(x_NxD: jax.Array, weights: Params, share_NxK: jax.Array, experts_NxK: jax.Array) -> jax.Array:
    n_experts = weights["gate"].shape[0]
    share_NxE = jnp.einsum("nke,nk->ne", jax.nn.one_hot(experts_NxK, n_experts, dtype=share_NxK.dtype), share_NxK)
    # The input is repeated per expert so that each product is a plain batched matrix product, with no output transpose.
    x_ExNxD = jnp.broadcast_to(x_NxD, (n_experts, *x_NxD.shape))
    gate = jnp.einsum("end,edf->enf", x_ExNxD, weights["gate"])
    up = jnp.einsum("end,edf->enf", x_ExNxD, weights["up"])
    hidden_ExNxF = jax.nn.silu(gate) * up * share_NxE.T[:, :, None].astype(x_NxD.dtype)
    return jnp.einsum("enf,efd->nd", hidden_ExNxF, weights["down"])


def _grouped_experts(x_NxD: jax.Array, weights: Params, share_NxK: jax.Array, experts_NxK: jax.Array) -> jax.Array:
    n, k = experts_NxK.shape
    n_experts = weights["gate"].shape[0]
    row_NxK, token_R, assignment_R, expert_B = layout(experts_NxK, n_experts, block_size(n * k, n_experts))
    x_RxD = take(x_NxD, token_R, row_NxK)
    y_RxD = grouped_mlp(x_RxD, weights["gate"], weights["up"], weights["down"], expert_B)
    y_NxKxD = take(y_RxD, row_NxK.reshape(-1), assignment_R[:, None]).reshape(n, k, -1)
    return jnp.einsum("nk,nkd->nd", share_NxK.astype(x_NxD.dtype), y_NxKxD)


def block_size(n_rows: int, n_experts: int) -> int:
    """Rows of a block: half an expert's fair share, as a power of two in 16..128, so that padding stays small."""
    share = max(n_rows // n_experts // 2, 1)
    return int(np.clip(2 ** int(np.log2(share)), 16, 128))


def layout(experts_NxK: jax.Array, n_experts: int, block: int) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Where each assignment lies: row [N, K]; per row its token (N if padding) and assignment (N * K if padding);
    per block its expert. The number of rows is static: any routing fits, nothing is dropped."""
    n, k = experts_NxK.shape
    n_blocks = -(-n * k // block) + n_experts
    chosen_AxE = jax.nn.one_hot(experts_NxK.reshape(-1), n_experts, dtype=jnp.int32)
    before_AxE = jnp.cumsum(chosen_AxE, axis=0) - chosen_AxE
    blocks_E = -(-chosen_AxE.sum(axis=0) // block)
    first_E = (jnp.cumsum(blocks_E) - blocks_E) * block
    row_A = (chosen_AxE * (before_AxE + first_E[None, :])).sum(axis=1)
    assignment_R = jnp.full((n_blocks * block,), n * k, jnp.int32).at[row_A].set(jnp.arange(n * k, dtype=jnp.int32))
    ends_E = jnp.cumsum(blocks_E)
    expert_B = jnp.searchsorted(ends_E, jnp.arange(n_blocks), side="right").clip(0, n_experts - 1)
    return row_A.reshape(n, k), assignment_R // k, assignment_R, expert_B


@jax.custom_vjp
def grouped_mlp(
    x_RxD: jax.Array, gate_ExDxF: jax.Array, up_ExDxF: jax.Array, down_ExFxD: jax.Array, expert_B: jax.Array
) -> jax.Array:
    """down(silu(gate x) * up x) of each row by the expert of its block; R is B blocks of equal length."""
    return _grouped_forward(x_RxD, gate_ExDxF, up_ExDxF, down_ExFxD, expert_B)[0]


def _grouped_forward(
    x_RxD: jax.Array, gate_ExDxF: jax.Array, up_ExDxF: jax.Array, down_ExFxD: jax.Array, expert_B: jax.Array
):
    def step(_, block):
        x_SxD, expert = block
        gated, up = x_SxD @ gate_ExDxF[expert], x_SxD @ up_ExDxF[expert]
        return None, ((jax.nn.silu(gated) * up) @ down_ExFxD[expert], gated, up)

    blocks = (x_RxD.reshape(expert_B.shape[0], -1, x_RxD.shape[-1]), expert_B)
    y, gated, up = jax.lax.scan(step, None, blocks)[1]
    return y.reshape(x_RxD.shape), (x_RxD, gate_ExDxF, up_ExDxF, down_ExFxD, expert_B, gated, up)


def _grouped_backward(saved, dy_RxD: jax.Array):
    x_RxD, gate_ExDxF, up_ExDxF, down_ExFxD, expert_B, gated_BxSxF, up_BxSxF = saved

    def step(gradients, block):
        x_SxD, gated, up, dy_SxD, expert = block
        activated, pull = jax.vjp(lambda a, b: jax.nn.silu(a) * b, gated, up)
        d_gated, d_up = pull(dy_SxD @ down_ExFxD[expert].T)
        pairs = ((x_SxD, d_gated), (x_SxD, d_up), (activated, dy_SxD))
        gradients = tuple(
            total.at[expert].add(jnp.matmul(left.T, right, preferred_element_type=jnp.float32))
            for total, (left, right) in zip(gradients, pairs, strict=True)
        )
        return gradients, d_gated @ gate_ExDxF[expert].T + d_up @ up_ExDxF[expert].T

    weights = (gate_ExDxF, up_ExDxF, down_ExFxD)
    zeros = tuple(jnp.zeros(weight.shape, jnp.float32) for weight in weights)
    x, dy = (array.reshape(expert_B.shape[0], -1, x_RxD.shape[-1]) for array in (x_RxD, dy_RxD))
    gradients, dx = jax.lax.scan(step, zeros, (x, gated_BxSxF, up_BxSxF, dy, expert_B))
    d_weights = (total.astype(weight.dtype) for total, weight in zip(gradients, weights, strict=True))
    return dx.reshape(x_RxD.shape), *d_weights, None


grouped_mlp.defvjp(_grouped_forward, _grouped_backward)


@jax.custom_vjp
def take(x_MxD: jax.Array, source_R: jax.Array, back_MxK: jax.Array) -> jax.Array:
    """out[r] = x[source[r]], zero where source[r] is M. `back_MxK` lists, for every m, all rows r with source[r] == m
    (an index R meaning none), which makes the gradient a gather too."""
    del back_MxK
    return x_MxD.at[source_R].get(mode="fill", fill_value=0)


def _take_forward(x_MxD: jax.Array, source_R: jax.Array, back_MxK: jax.Array):
    return take(x_MxD, source_R, back_MxK), back_MxK


def _take_backward(back_MxK: jax.Array, grad_RxD: jax.Array):
    return grad_RxD.at[back_MxK].get(mode="fill", fill_value=0).sum(axis=1), None, None


take.defvjp(_take_forward, _take_backward)
