"""Grouped products for NVIDIA GPUs: one Pallas program per tile of the result, which looks up its block's matrix.

    y  = x @ w[group]       one program per block of rows and tile of columns, over the contracted axis in steps
    dx = dy @ w[group]^T    the same program with the matrix read across
    dw[g] = x_g^T @ dy_g    one program per group and tile of its matrix, over the group's own rows only

Every row is multiplied by its own matrix alone, programs of blocks behind the last group end at once, sums are float32.
Sizes must be multiples of 16 (tensor cores); tiles are the largest powers of two that divide them, at most 128.

Shape letters: R rows, B blocks of S rows, G groups, D in, F out.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

INTERPRET = False  # True runs the programs as plain JAX on any device: for tests
STEP = 64  # of the contracted axis


@jax.custom_vjp
def matmul(x_RxD: jax.Array, w_GxDxF: jax.Array, group_B: jax.Array, sizes_G: jax.Array) -> jax.Array:
    """Each block of rows times the matrix of its group; zero behind the last group."""
    return _rows_times_matrix(x_RxD, w_GxDxF, group_B, sizes_G, across=False)


def _forward(x_RxD: jax.Array, w_GxDxF: jax.Array, group_B: jax.Array, sizes_G: jax.Array):
    return matmul(x_RxD, w_GxDxF, group_B, sizes_G), (x_RxD, w_GxDxF, group_B, sizes_G)


def _backward(saved, dy_RxF: jax.Array):
    x_RxD, w_GxDxF, group_B, sizes_G = saved
    dx_RxD = _rows_times_matrix(dy_RxF, w_GxDxF, group_B, sizes_G, across=True)
    return dx_RxD, _rows_times_rows(x_RxD, dy_RxF, sizes_G, w_GxDxF.dtype), None, None


matmul.defvjp(_forward, _backward)


def _rows_times_matrix(
    x_RxD: jax.Array, w_GxDxF: jax.Array, group_B: jax.Array, sizes_G: jax.Array, across: bool
) -> jax.Array:
    n_in, n_out = w_GxDxF.shape[1:][::-1] if across else w_GxDxF.shape[1:]
    block, tile, step = x_RxD.shape[0] // len(group_B), _tile(n_out), min(STEP, _tile(n_in))
    used = (sizes_G.sum() // block).astype(jnp.int32)[None]
    columns = (len(w_GxDxF), tile, n_in) if across else (len(w_GxDxF), n_in, tile)
    return pl.pallas_call(
        partial(_tile_of_rows, step=step, across=across),
        grid=(len(group_B), n_out // tile),
        in_specs=[
            pl.BlockSpec((len(group_B),), lambda b, f: (0,)),
            pl.BlockSpec((1,), lambda b, f: (0,)),
            pl.BlockSpec((block, n_in), lambda b, f: (b, 0)),
            pl.BlockSpec(columns, (lambda b, f: (0, f, 0)) if across else (lambda b, f: (0, 0, f))),
        ],
        out_specs=pl.BlockSpec((block, tile), lambda b, f: (b, f)),
        out_shape=jax.ShapeDtypeStruct((x_RxD.shape[0], n_out), x_RxD.dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=3),
        interpret=INTERPRET,
        name="grouped_matmul_across" if across else "grouped_matmul",
    )(group_B, used, x_RxD, w_GxDxF)


def _tile_of_rows(group_ref, used_ref, x_ref, w_ref, y_ref, *, step: int, across: bool):
    here = pl.program_id(0)
    group = group_ref[here]

    def add(i, total):
        inner = pl.ds(i * step, step)
        w = w_ref[group, :, inner] if across else w_ref[group, inner, :]
        return total + plgpu.dot(x_ref[:, inner], w, trans_b=across)

    n_steps = (here < used_ref[0]).astype(jnp.int32) * (x_ref.shape[1] // step)
    total = jax.lax.fori_loop(0, n_steps, add, jnp.zeros(y_ref.shape, jnp.float32))
    y_ref[...] = total.astype(y_ref.dtype)


def _rows_times_rows(x_RxD: jax.Array, dy_RxF: jax.Array, sizes_G: jax.Array, dtype: jnp.dtype) -> jax.Array:
    rows, d, f = len(x_RxD), _tile(x_RxD.shape[1]), _tile(dy_RxF.shape[1])
    n_groups, step = len(sizes_G), 16  # every block is a multiple of 16 rows
    ends_G = jnp.cumsum(sizes_G).astype(jnp.int32)
    return pl.pallas_call(
        partial(_tile_of_matrix, step=step),
        grid=(n_groups, x_RxD.shape[1] // d, dy_RxF.shape[1] // f),
        in_specs=[
            pl.BlockSpec((n_groups,), lambda g, i, j: (0,)),
            pl.BlockSpec((n_groups,), lambda g, i, j: (0,)),
            pl.BlockSpec((rows, d), lambda g, i, j: (0, i)),
            pl.BlockSpec((rows, f), lambda g, i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((None, d, f), lambda g, i, j: (g, i, j)),
        out_shape=jax.ShapeDtypeStruct((n_groups, x_RxD.shape[1], dy_RxF.shape[1]), dtype),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=3),
        interpret=INTERPRET,
        name="grouped_matmul_weights",
    )(ends_G - sizes_G, ends_G, x_RxD, dy_RxF)


def _tile_of_matrix(start_ref, end_ref, x_ref, dy_ref, dw_ref, *, step: int):
    group = pl.program_id(0)

    def add(i, total):
        rows = pl.ds(i * step, step)
        return total + plgpu.dot(x_ref[rows, :], dy_ref[rows, :], trans_a=True)

    first, last = start_ref[group] // step, end_ref[group] // step
    total = jax.lax.fori_loop(first, last, add, jnp.zeros(dw_ref.shape, jnp.float32))
    dw_ref[...] = total.astype(dw_ref.dtype)


def _tile(size: int) -> int:
    tile = next((t for t in (128, 64, 32, 16) if size % t == 0), 0)
    if not tile:
        raise ValueError(f"the triton grouped matmul needs sizes that are multiples of 16, got {size}: use blocked")
    return tile
