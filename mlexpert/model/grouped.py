"""One matrix product per group of rows, each group with a matrix of its own: y[r] = x[r] @ w[group of r].

Rows of one group lie together and fill whole blocks of `block` rows (`arrange` sees to it, padding with zero rows), so
any division of the rows over the groups fits a shape that is known beforehand: nothing is ever dropped. Backends:

    blocked     a loop, one block at a time through its own matrix (grouped_blocked.py). For CPUs, and what the others
                are tested against
    ragged_dot  `jax.lax.ragged_dot`: one kernel on a TPU, but elsewhere XLA multiplies every row by every matrix
    triton      a Pallas kernel for NVIDIA GPUs (grouped_triton.py)

Shape letters: R rows, G groups, D in, F out (or an MLP's hidden width), B blocks, A things to arrange.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mlexpert.model import grouped_blocked, grouped_triton

BACKENDS = ("blocked", "ragged_dot", "triton")


class Groups(NamedTuple):
    """How rows divide over groups: `sizes_G` rows each, one group after the other, padding included: whole blocks.
    Rows behind the last group must be zero; what comes out for them is zero or unspecified."""

    sizes_G: jax.Array
    block: int


class Arrangement(NamedTuple):
    """Where each of A things lies among R rows."""

    row_A: jax.Array  # R for a thing of no group
    thing_R: jax.Array  # A for a row of padding
    groups: Groups


def default_backend() -> str:
    """What suits the devices of this process."""
    return {"tpu": "ragged_dot", "gpu": "triton"}.get(jax.default_backend(), "blocked")


def block_size(n_rows: int, n_groups: int) -> int:
    """Half a group's fair share, as a power of two in 16..128, so that padding stays small."""
    share = max(n_rows // n_groups // 2, 1)
    return int(np.clip(2 ** int(np.log2(share)), 16, 128))


def arrange(group_A: jax.Array, n_groups: int, block: int) -> Arrangement:
    """Rows for things of the given groups, in their order within a group. A group outside 0..G-1 means none: no row.
    The number of rows is static and fits any division."""
    n = len(group_A)
    n_rows = (-(-n // block) + n_groups) * block
    group_A = jnp.where((group_A >= 0) & (group_A < n_groups), group_A, n_groups)
    order_A = jnp.argsort(group_A, stable=True)
    count_G = jnp.zeros(n_groups + 1, jnp.int32).at[group_A].add(1)
    sizes_G = -(-count_G // block) * block
    shift_G = (jnp.cumsum(sizes_G) - sizes_G) - (jnp.cumsum(count_G) - count_G)
    row_A = jnp.zeros(n, jnp.int32).at[order_A].set(jnp.arange(n, dtype=jnp.int32)) + shift_G[group_A]
    row_A = jnp.where(group_A < n_groups, row_A, n_rows).astype(jnp.int32)
    thing_R = jnp.full(n_rows, n, jnp.int32).at[row_A].set(jnp.arange(n, dtype=jnp.int32), mode="drop")
    return Arrangement(row_A, thing_R, Groups(sizes_G[:-1], block))


def grouped_matmul(x_RxD: jax.Array, w_GxDxF: jax.Array, groups: Groups, backend: str) -> jax.Array:
    """[R, F]. Raises ValueError for an unknown backend, or rows that are not whole blocks."""
    _check(x_RxD, groups, backend)
    if backend == "ragged_dot":
        return jax.lax.ragged_dot(x_RxD, w_GxDxF, groups.sizes_G, preferred_element_type=x_RxD.dtype)
    if backend == "triton":
        return grouped_triton.matmul(x_RxD, w_GxDxF, groups_of_blocks(groups, x_RxD.shape[0]), groups.sizes_G)
    return grouped_blocked.matmul(x_RxD, w_GxDxF, _filled(groups, x_RxD.shape[0]))


def grouped_mlp(
    x_RxD: jax.Array,
    gate_GxDxF: jax.Array,
    up_GxDxF: jax.Array,
    down_GxFxD: jax.Array,
    groups: Groups,
    backend: str,
) -> jax.Array:
    """down(silu(gate x) * up x) of every row, by its own group's matrices; errors as `grouped_matmul`."""
    _check(x_RxD, groups, backend)
    if backend == "blocked":
        return grouped_blocked.mlp(x_RxD, gate_GxDxF, up_GxDxF, down_GxFxD, _filled(groups, x_RxD.shape[0]))
    gated_RxF = grouped_matmul(x_RxD, gate_GxDxF, groups, backend)
    up_RxF = grouped_matmul(x_RxD, up_GxDxF, groups, backend)
    return grouped_matmul(jax.nn.silu(gated_RxF) * up_RxF, down_GxFxD, groups, backend)


def groups_of_blocks(groups: Groups, n_rows: int) -> jax.Array:
    """The group of every block; blocks behind the last group, which hold no rows, are told to be of it."""
    ends_G = jnp.cumsum(groups.sizes_G) // groups.block
    group_B = jnp.searchsorted(ends_G, jnp.arange(n_rows // groups.block), side="right")
    return jnp.minimum(group_B, len(ends_G) - 1).astype(jnp.int32)


def _filled(groups: Groups, n_rows: int) -> grouped_blocked.Blocks:
    return grouped_blocked.Blocks(groups_of_blocks(groups, n_rows), groups.sizes_G.sum() // groups.block)


def _check(x_RxD: jax.Array, groups: Groups, backend: str) -> None:
    if backend not in BACKENDS:
        raise ValueError(f"grouped matmul backend {backend!r}: one of {', '.join(BACKENDS)}")
    if x_RxD.shape[0] % groups.block:
        raise ValueError(f"{x_RxD.shape[0]} rows are not whole blocks of {groups.block}")


@jax.custom_vjp
def take(x_MxD: jax.Array, source_R: jax.Array, back_MxK: jax.Array) -> jax.Array:
    """out[r] = x[source[r]], zero where source[r] is M. `back_MxK` lists, for every m, all rows r with source[r] == m
    (an index R meaning none), which makes the gradient, to autodiff a scatter, a gather too."""
    del back_MxK
    return x_MxD.at[source_R].get(mode="fill", fill_value=0)


def _take_forward(x_MxD: jax.Array, source_R: jax.Array, back_MxK: jax.Array):
    return take(x_MxD, source_R, back_MxK), back_MxK


def _take_backward(back_MxK: jax.Array, grad_RxD: jax.Array):
    return grad_RxD.at[back_MxK].get(mode="fill", fill_value=0).sum(axis=1), None, None


take.defvjp(_take_forward, _take_backward)
