"""The grouped matrix product of `mlexpert.model.grouped` beside `jax.lax.ragged_dot` on this machine's processors.

Rows of 32 experts, chosen unevenly. `ragged_dot` gets exactly the rows there are, `blocked` its own padded blocks: the
padding is our cost.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench.turns import Line, Way, in_turns
from mlexpert.model.grouped import Groups, arrange, block_size, grouped_matmul, take


class Problem(NamedTuple):
    """Rows of experts and their matrices: as they are, and in our blocks."""

    rows_AxD: jax.Array
    exact: Groups
    rows_RxD: jax.Array
    blocks: Groups
    weights_GxDxF: jax.Array


def problem(tokens: int, chosen: int, n_groups: int, d_in: int, d_out: int, dtype: str = "float32") -> Problem:
    """Each of `tokens` rows stands `chosen` times, in groups drawn with unequal chances."""
    rng, n = np.random.default_rng(0), tokens * chosen
    chances = rng.dirichlet(np.full(n_groups, 4.0))
    group_A = jnp.asarray(np.sort(rng.choice(n_groups, n, p=chances)), jnp.int32)
    keys = jax.random.split(jax.random.key(0))
    rows_AxD = jax.random.normal(keys[0], (n, d_in), dtype)
    weights_GxDxF = jax.random.normal(keys[1], (n_groups, d_in, d_out), dtype) * d_in**-0.5
    found = arrange(group_A, n_groups, block_size(n, n_groups))
    rows_RxD = take(rows_AxD, found.thing_R, found.row_A[:, None])
    exact = Groups(jnp.zeros(n_groups, jnp.int32).at[group_A].add(1), 1)
    return Problem(rows_AxD, exact, rows_RxD, found.groups, weights_GxDxF)


def forward(backend: str, block: int) -> Callable[..., jax.Array]:
    def product(rows: jax.Array, weights: jax.Array, sizes: jax.Array) -> jax.Array:
        return grouped_matmul(rows, weights, Groups(sizes, block), backend)

    return jax.jit(product)


def forward_and_backward(backend: str, block: int) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Gradients of rows and weights of a sum whose own gradient is not constant."""

    def loss(rows: jax.Array, weights: jax.Array, sizes: jax.Array) -> jax.Array:
        return jnp.square(grouped_matmul(rows, weights, Groups(sizes, block), backend).astype(jnp.float32)).sum()

    return jax.jit(jax.grad(loss, (0, 1)))


async def lines(rounds: int) -> list[Line]:
    given = problem(tokens=4096, chosen=2, n_groups=32, d_in=256, d_out=512)
    sides = {
        "blocked": (given.rows_RxD, given.blocks),
        "ragged_dot": (given.rows_AxD, given.exact),
    }
    require_same(given)
    found = []
    for what, make in (("forward", forward), ("forward and backward", forward_and_backward)):
        ways = {
            side: way(make(side, groups.block), (rows, given.weights_GxDxF, groups.sizes_G))
            for side, (rows, groups) in sides.items()
        }
        seconds = {side: median(each) for side, each in (await in_turns(ways, rounds)).items()}
        ratio = seconds["ragged_dot"] / seconds["blocked"]
        note = ", ".join(f"{side} {1000 * value:.1f} ms" for side, value in seconds.items())
        found.append(Line(f"grouped matmul, 32 experts, {what}: ragged_dot / blocked", ratio, "x", 5.0, note=note))
    return found


def require_same(given: Problem) -> None:
    """Raises AssertionError unless both give the same gradient of the weights, padding or not."""
    exact = forward_and_backward("ragged_dot", 1)(given.rows_AxD, given.weights_GxDxF, given.exact.sizes_G)[1]
    blocks = forward_and_backward("blocked", given.blocks.block)
    padded = blocks(given.rows_RxD, given.weights_GxDxF, given.blocks.sizes_G)[1]
    np.testing.assert_allclose(padded, exact, atol=1e-4 * float(jnp.abs(exact).max()))


def way(function: Callable, arguments: tuple[jax.Array, ...]) -> Way:
    """A call that is waited for."""

    async def call() -> object:
        return jax.block_until_ready(function(*arguments))

    return call
