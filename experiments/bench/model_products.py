"""The float32 products of the dense model's MLP by either side: a step of its can be no faster than these allow.

    training   2,048 rows through one matrix: bound by arithmetic
    decoding   16 rows through 32 matrices of 3 MiB, one after the other: reading them counts as well

Matrices lie as each side keeps its weights.
"""

from __future__ import annotations

from statistics import median

import jax
import numpy as np

from experiments.bench.model_torch import TorchSide
from experiments.bench.turns import Line, Way, in_turns

D_IN, D_OUT = 512, 1536
WORK = {"2,048 rows, one matrix": (2048, 1), "16 rows, 32 matrices": (16, 32)}
REPEATS = 8  # of a turn


async def lines(rounds: int, torch: TorchSide | None) -> list[Line]:
    """GFLOP/s of our side, and how many times the other's."""
    found = []
    for what, (rows, matrices) in WORK.items():
        ways = {"ours": _ours(rows, matrices)}
        if torch is not None:
            torch("matrices", rows=rows, count=matrices, d_in=D_IN, d_out=D_OUT)
            ways["theirs"] = _theirs(torch)
        seconds = {side: median(each) for side, each in (await in_turns(ways, rounds)).items()}
        work = 2e-9 * REPEATS * matrices * rows * D_IN * D_OUT
        note = ", ".join(f"{side} {work / value:,.0f} GFLOP/s" for side, value in seconds.items())
        ratio = seconds["theirs"] / seconds["ours"] if torch else None
        found.append(Line(f"products, {what}: ours / theirs", ratio, "x", note=note))
    return found


def _ours(rows: int, matrices: int) -> Way:
    rng = np.random.default_rng(0)
    x_RxD = jax.device_put(rng.standard_normal((rows, D_IN), np.float32))
    w_MxDxF = [jax.device_put(rng.standard_normal((D_IN, D_OUT), np.float32)) for _ in range(matrices)]
    products = jax.jit(lambda x_RxD, w_MxDxF: [x_RxD @ w_DxF for w_DxF in w_MxDxF])

    async def turn() -> None:
        for _ in range(REPEATS):
            jax.block_until_ready(products(x_RxD, w_MxDxF))

    return turn


def _theirs(torch: TorchSide) -> Way:
    async def turn() -> None:
        torch("multiply", repeats=REPEATS)

    return turn
