"""Grouped products as a loop over blocks of rows, each block through its own group's matrix.

No weight is copied, no row is multiplied by a matrix that is not its own, and the loop ends with the last block that
holds rows, however the rows divide over the groups. Backward passes are written by hand: a weight gradient is added in
place, in float32, where autodiff would carry a zero-padded copy of all matrices through every block. An MLP runs whole
in one loop: its block stays in the processor's cache.

Shape letters: R rows, B blocks of S rows, G groups, D in, F out (or an MLP's hidden width).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Blocks(NamedTuple):
    """The group of every block, and how many of them, the first ones, hold rows."""

    group_B: jax.Array
    used: jax.Array


@jax.custom_vjp
def matmul(x_RxD: jax.Array, w_GxDxF: jax.Array, blocks: Blocks) -> jax.Array:
    """Each block of rows times the matrix of its group; zero behind the last block that holds rows."""

    def step(_, block):
        x_SxD, group = block
        return None, x_SxD @ w_GxDxF[group]

    y_BxSxF = _scan(step, None, (_blocks(x_RxD, blocks), blocks.group_B), blocks.used)[1]
    return y_BxSxF.reshape(x_RxD.shape[0], -1)


def _matmul_forward(x_RxD: jax.Array, w_GxDxF: jax.Array, blocks: Blocks):
    return matmul(x_RxD, w_GxDxF, blocks), (x_RxD, w_GxDxF, blocks)


def _matmul_backward(saved, dy_RxF: jax.Array):
    x_RxD, w_GxDxF, blocks = saved

    def step(dw_GxDxF, block):
        x_SxD, dy_SxF, group = block
        return _add(dw_GxDxF, group, x_SxD, dy_SxF), dy_SxF @ w_GxDxF[group].T

    xs = (_blocks(x_RxD, blocks), _blocks(dy_RxF, blocks), blocks.group_B)
    dw_GxDxF, dx = _scan(step, jnp.zeros(w_GxDxF.shape, jnp.float32), xs, blocks.used)
    return dx.reshape(x_RxD.shape), dw_GxDxF.astype(w_GxDxF.dtype), None


matmul.defvjp(_matmul_forward, _matmul_backward)


@jax.custom_vjp
def mlp(
    x_RxD: jax.Array, gate_GxDxF: jax.Array, up_GxDxF: jax.Array, down_GxFxD: jax.Array, blocks: Blocks
) -> jax.Array:
    """down(silu(gate x) * up x) of each block by the matrices of its group."""
    return _mlp_forward(x_RxD, gate_GxDxF, up_GxDxF, down_GxFxD, blocks)[0]


def _mlp_forward(x_RxD: jax.Array, gate_GxDxF: jax.Array, up_GxDxF: jax.Array, down_GxFxD: jax.Array, blocks: Blocks):
    def step(_, block):
        x_SxD, group = block
        gated, up = x_SxD @ gate_GxDxF[group], x_SxD @ up_GxDxF[group]
        return None, ((jax.nn.silu(gated) * up) @ down_GxFxD[group], gated, up)

    y, gated, up = _scan(step, None, (_blocks(x_RxD, blocks), blocks.group_B), blocks.used)[1]
    return y.reshape(x_RxD.shape), (x_RxD, gate_GxDxF, up_GxDxF, down_GxFxD, blocks, gated, up)


def _mlp_backward(saved, dy_RxD: jax.Array):
    x_RxD, gate_GxDxF, up_GxDxF, down_GxFxD, blocks, gated_BxSxF, up_BxSxF = saved

    def step(gradients, block):
        x_SxD, gated, up, dy_SxD, group = block
        activated, pull = jax.vjp(lambda a, b: jax.nn.silu(a) * b, gated, up)
        d_gated, d_up = pull(dy_SxD @ down_GxFxD[group].T)
        pairs = ((x_SxD, d_gated), (x_SxD, d_up), (activated, dy_SxD))
        gradients = tuple(_add(total, group, *pair) for total, pair in zip(gradients, pairs, strict=True))
        return gradients, d_gated @ gate_GxDxF[group].T + d_up @ up_GxDxF[group].T

    weights = (gate_GxDxF, up_GxDxF, down_GxFxD)
    zeros = tuple(jnp.zeros(weight.shape, jnp.float32) for weight in weights)
    xs = (_blocks(x_RxD, blocks), gated_BxSxF, up_BxSxF, _blocks(dy_RxD, blocks), blocks.group_B)
    gradients, dx = _scan(step, zeros, xs, blocks.used)
    d_weights = (total.astype(weight.dtype) for total, weight in zip(gradients, weights, strict=True))
    return dx.reshape(x_RxD.shape), *d_weights, None


mlp.defvjp(_mlp_forward, _mlp_backward)


def _scan(step: Callable[..., Any], carry: Any, xs: Any, used: jax.Array) -> tuple[Any, Any]:
    """`jax.lax.scan` over the first `used` entries alone; what it stacks is zero behind them."""
    first = jax.tree.map(lambda x: x[0], xs)
    like, n = jax.eval_shape(step, carry, first)[1], len(jax.tree.leaves(xs)[0])
    stacks = jax.tree.map(lambda y: jnp.zeros((n, *y.shape), y.dtype), like)

    def body(i: jax.Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, stacks = state
        carry, y = step(carry, jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, 0, False), xs))
        return carry, jax.tree.map(lambda stack, one: jax.lax.dynamic_update_index_in_dim(stack, one, i, 0), stacks, y)

    return jax.lax.fori_loop(0, used, body, (carry, stacks))


def _blocks(x_RxD: jax.Array, blocks: Blocks) -> jax.Array:
    return x_RxD.reshape(blocks.group_B.shape[0], -1, x_RxD.shape[-1])


def _add(total_GxDxF: jax.Array, group: jax.Array, left_SxD: jax.Array, right_SxF: jax.Array) -> jax.Array:
    return total_GxDxF.at[group].add(jnp.matmul(left_SxD.T, right_SxF, preferred_element_type=jnp.float32))
