"""The same pieces on a GPU: grouped products as a share of the card's own peak, a real half-billion model at work.

The peak is measured, not quoted: the best rate of a square bfloat16 product on this card. Without a GPU every line says
so. `grouped` and `real_model` take sizes, so that a CPU can run them small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench import model_grouped, model_ours
from experiments.bench.turns import Line, Way, in_turns
from mlexpert.loops import recipes
from mlexpert.loops.pretrained import open_model
from mlexpert.model.config import ModelConfig
from mlexpert.model.grouped import default_backend
from mlexpert.model.params import Params
from mlexpert.rollout.embedded import EmbeddedEngine

RECIPE = Path(__file__).resolve().parents[2] / "third_party" / "models" / "qwen2_5_coder.toml"
SQUARE, REPEATS = 8192, 20
BATCHES, UPDATES = 3, 5  # what is timed of the real model


@dataclass(frozen=True)
class Experts:
    """Sizes of a grouped product, of the kind that the large models have."""

    n_groups: int
    d_out: int
    d_in: int = 2048
    tokens: int = 16_384
    chosen: int = 8

    @property
    def name(self) -> str:
        return f"grouped matmul, {self.n_groups} experts of width {self.d_out}"

    @property
    def flops(self) -> float:
        return 2.0 * self.tokens * self.chosen * self.d_in * self.d_out


@dataclass(frozen=True)
class Load:
    """What the real model is given: decoding `slots` turns at once, updates of `rows` x `length` tokens."""

    slots: int = 64
    prompt: int = 128
    new: int = 128
    rows: int = 8
    length: int = 1024


EXPERTS = (Experts(256, 512), Experts(128, 768))
REAL = "Qwen2.5-Coder-0.5B"


async def lines() -> list[Line]:
    if jax.default_backend() != "gpu":
        shares = [f"{experts.name}, {way}" for experts in EXPERTS for way in ("forward", "forward and backward")]
        note = "skipped: JAX sees no GPU here"
        missing = [Line(f"{share}, share of the measured peak", None, "", note=note) for share in shares]
        return [*missing, *(Line(f"{REAL}, {what}", None, "", note=note) for what in ("decoding", "training step"))]
    peak = await measured_peak(SQUARE)
    found = [Line(f"{jax.devices()[0].device_kind}, {SQUARE}^3 bfloat16", peak / 1e12, "TFLOP/s")]
    for experts in EXPERTS:
        found += await grouped(experts, peak, default_backend())
    try:
        folder = recipes.ready(recipes.read(RECIPE), recipes.CACHE)
    except recipes.RecipeError as error:
        return [*found, Line(REAL, None, "", note=str(error))]
    model = open_model(folder, "bfloat16")
    return found + await real_model(REAL, model.config, model.params(), Load())


async def measured_peak(size: int) -> float:
    """FLOP/s of a square bfloat16 product."""
    square = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)
    return 2.0 * size**3 / await seconds(model_grouped.way(jax.jit(jnp.matmul), (square, square)), REPEATS)


async def grouped(experts: Experts, peak: float, backend: str) -> list[Line]:
    """Useful FLOP/s over the peak: padding and routing count as time, not as work."""
    sizes = (experts.tokens, experts.chosen, experts.n_groups, experts.d_in, experts.d_out)
    given = model_grouped.problem(*sizes, dtype="bfloat16")
    arguments = given.rows_RxD, given.weights_GxDxF, given.blocks.sizes_G
    found = []
    for what, make, products in (
        ("forward", model_grouped.forward, 1),
        ("forward and backward", model_grouped.forward_and_backward, 3),
    ):
        spent = await seconds(model_grouped.way(make(backend, given.blocks.block), arguments), REPEATS)
        share = products * experts.flops / spent / peak
        note = f"{backend}, {experts.tokens} tokens x {experts.chosen}, {1000 * spent:.2f} ms"
        found.append(Line(f"{experts.name}, {what}, share of the measured peak", 100 * share, "%", note=note))
    return found


async def real_model(name: str, config: ModelConfig, params: Params, load: Load) -> list[Line]:
    """Decoding in the model's own precision; updates on float32 weights."""
    rng = np.random.default_rng(0)
    ids_SxP = rng.integers(config.vocab_size, size=(load.slots, load.prompt), dtype=np.int32)
    ids_BxT = rng.integers(config.vocab_size, size=(load.rows, load.length), dtype=np.int32)
    async with EmbeddedEngine(config, params, load.slots, load.prompt + load.new, chunk=16) as engine:

        async def batch() -> None:
            await model_ours.turns(engine, ids_SxP, load.new, model_ours.DRAWN, seed=0)

        drawn = load.slots * load.new / await seconds(batch, BATCHES)
    trained = jax.tree.map(lambda weight: weight.astype(jnp.float32), params)
    config = replace(config, remat="matrices")
    update = model_ours.updates(config, trained, ids_BxT, model_ours.Adam(lr=1e-6))
    spent = await seconds(update, UPDATES)
    return [
        Line(f"{name}, decoding, {load.slots} at once", drawn, "tokens/s", note=config.dtype),
        Line(
            f"{name}, training step of {load.rows} x {load.length} tokens",
            1000 * spent,
            "ms",
            note=f"{ids_BxT.size / spent:,.0f} tokens/s",
        ),
    ]


async def seconds(way: Way, rounds: int) -> float:
    """Median of some calls, after one that compiles."""
    return median((await in_turns({"": way}, rounds))[""])
