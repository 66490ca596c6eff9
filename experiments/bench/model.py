"""The model in numbers: a training step and batched decoding beside PyTorch + transformers, grouped products, a GPU.

    python -m experiments.bench.model [--torch_python=PYTHON] [--rounds=7] [--threads=N] [--json=FILE]

Prints a table. Both sides have the same weights (ours, saved as a folder that transformers opens), the same ids, the
same optimizer, float32 and the same processors, and take turns; before anything is timed they must give the same loss
and, decoding greedily, the same tokens. PYTHON is one with torch (third_party/transformers_bench); without it, as
without a GPU, the lines that need it say so. Under six minutes on two cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np
from absl import app, flags

from experiments import heap
from experiments.bench import model_gpu, model_grouped, model_ours, model_products
from experiments.bench.model_torch import TorchError, TorchSide
from experiments.bench.turns import Line, in_turns, machine, print_table
from mlexpert.model import hf
from mlexpert.model.config import ModelConfig, preset
from mlexpert.model.params import Params, count, init
from mlexpert.rollout.embedded import EmbeddedEngine

TORCH = flags.DEFINE_string("torch_python", "", "A Python with torch and transformers; empty: our side alone.")
COMPILE = flags.DEFINE_bool("torch_compile", False, "The other side's forward pass through torch.compile (minutes).")
ROUNDS = flags.DEFINE_integer("rounds", 7, "Turns of every side.", lower_bound=1)
THREADS = flags.DEFINE_integer("threads", 0, "Processors of either side; 0: all that this process may use.")
JSON = flags.DEFINE_string("json", "", "File for the numbers.")

ROWS, LENGTH = 8, 256  # of an update
SLOTS, PROMPT, NEW = 16, 64, 64  # of decoding
CHUNK = 8  # tokens between two visits of the engine's host, as in configs/wirl.py
SAME_LOSS = 1e-3  # relative difference at most
SAME_TOKENS = 0.9  # share of the greedy tokens at least: a tie breaks either way, and all behind it differs

MODELS = {
    "MoE": preset("tiny", name="MoE", n_experts=32, experts_per_token=4, d_expert=128, qk_norm_gain=1.0),
    "dense": preset(
        "tiny_dense",
        name="dense",
        vocab_size=2048,
        d_model=512,
        n_layers=8,
        n_heads=8,
        head_dim=64,
        d_ff=1536,
        qk_norm_gain=1.0,
    ),
}


class Disagreement(RuntimeError):
    """The sides do not compute the same thing, so there is nothing to time."""


async def training(name: str, params: Params, adam: model_ours.Adam, torch: TorchSide | None) -> list[Line]:
    """Tokens a second of updates, and how many times the other side's."""
    ids_BxT = np.random.default_rng(1).integers(MODELS[name].vocab_size, size=(ROWS, LENGTH), dtype=np.int32)
    ours = model_ours.updates(MODELS[name], params, ids_BxT, adam)
    what, ways, chosen = f"{name}: training step", {"ours": ours}, ""
    if torch is not None:

        async def theirs() -> float:
            return torch("step")["loss"]

        torch("give", ids=ids_BxT.tolist())
        chosen = torch("choose", work="step")["best"]
        require_same_loss(what, await ours(), await theirs())
        ways["theirs"] = theirs
    seconds = await in_turns(ways, ROUNDS.value)
    if torch is not None:  # after as many updates on either side: the updates are the same too
        require_same_loss(f"{what}, after the last update", await ours(), await ways["theirs"]())
    return _lines(what, seconds, ROWS * LENGTH, 1.5, chosen)


async def decoding(name: str, params: Params, torch: TorchSide | None) -> list[Line]:
    """Sampled tokens a second, prompts included in the time, and how many times those of `generate`."""
    config, what, chosen = MODELS[name], f"{name}: decoding, {SLOTS} at once", ""
    ids_SxP = np.random.default_rng(2).integers(config.vocab_size, size=(SLOTS, PROMPT), dtype=np.int32)
    async with EmbeddedEngine(config, params, SLOTS, PROMPT + NEW, CHUNK) as engine:

        async def ours() -> None:
            await model_ours.turns(engine, ids_SxP, NEW, model_ours.DRAWN, seed=0)

        ways = {"ours": ours}
        if torch is not None:

            async def theirs() -> None:
                torch("generate", new=NEW, greedy=False)

            torch("give", ids=ids_SxP.tolist())
            chosen = torch("choose", work="generate", new=NEW)["best"]
            greedy_SxN = await model_ours.turns(engine, ids_SxP, NEW, model_ours.GREEDY, seed=0)
            require_same_tokens(what, greedy_SxN, np.array(torch("generate", new=NEW, greedy=True)["ids"]))
            ways["theirs"] = theirs
        return _lines(what, await in_turns(ways, ROUNDS.value), SLOTS * NEW, 3.0, chosen)


def _lines(what: str, seconds: dict[str, list[float]], tokens: int, at_least: float, chosen: str) -> list[Line]:
    rate = {side: tokens / median(found) for side, found in seconds.items()}
    spread = {side: f"{tokens / max(found):,.0f} to {tokens / min(found):,.0f}" for side, found in seconds.items()}
    lines = [Line(f"{what}, ours", rate["ours"], "tokens/s", note=spread["ours"])]
    if "theirs" not in rate:
        return [*lines, Line(f"{what}, ours / theirs", None, "x", at_least, note="needs --torch_python")]
    return [
        *lines,
        Line(f"{what}, theirs", rate["theirs"], "tokens/s", note=f"{spread['theirs']}; {chosen}"),
        Line(f"{what}, ours / theirs", rate["ours"] / rate["theirs"], "x", at_least),
    ]


def require_same_loss(what: str, ours: float, theirs: float) -> None:
    if not abs(ours - theirs) <= SAME_LOSS * abs(theirs):
        raise Disagreement(f"{what}: loss {ours:.6f} here, {theirs:.6f} there; the limit is {SAME_LOSS:g} of it")
    print(f"{what}: loss {ours:.6f} here, {theirs:.6f} there", flush=True)


def require_same_tokens(what: str, ours_SxN: np.ndarray, theirs_SxN: np.ndarray) -> None:
    same = float((ours_SxN == theirs_SxN).mean())
    if not same >= SAME_TOKENS:
        raise Disagreement(f"{what}: {same:.1%} of the greedy tokens are the same, at least {SAME_TOKENS:.0%} must be")
    print(f"{what}: {same:.1%} of {ours_SxN.size} greedy tokens are the same", flush=True)


async def both_sides(torch: TorchSide | None) -> list[Line]:
    adam, lines = model_ours.Adam(), []
    for name, config in MODELS.items():
        params = init(config, jax.random.key(0))
        with tempfile.TemporaryDirectory() as folder:
            if torch is not None:
                _open(torch, Path(folder) / name, config, params, adam)
            lines += await decoding(name, params, torch)
            lines += await training(name, params, adam, torch)
    return lines


def _open(torch: TorchSide, folder: Path, config: ModelConfig, params: Params, adam: model_ours.Adam) -> None:
    hf.save(folder, config, params)
    threads = len(os.sched_getaffinity(0))
    found = torch("open", folder=str(folder), threads=threads, **asdict(adam))
    if (found["threads"], found["parameters"]) != (threads, count(config)):
        raise Disagreement(f"{found}, here {threads} threads and {count(config)} parameters")
    if COMPILE.value:
        torch("compile")
    print(f"{config.name}: {count(config):,} parameters, {threads} threads; there {found}", flush=True)


async def measured() -> list[Line]:
    with ExitStack() as stack:
        torch = stack.enter_context(TorchSide(TORCH.value)) if TORCH.value else None
        lines = await both_sides(torch) + await model_products.lines(ROUNDS.value, torch)
    return lines + await model_grouped.lines(ROUNDS.value) + await model_gpu.lines()


def main(_: list[str]) -> None:
    if THREADS.value:  # before JAX counts them; the other process inherits
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: THREADS.value])
    before = machine()
    try:
        lines = asyncio.run(measured())
    except (Disagreement, TorchError) as error:
        raise SystemExit(f"error: {error}") from error
    print(", ".join(f"{name} {value}" for name, value in before.items()), "before the run, load", _load(), "after\n")
    print_table(lines)
    if JSON.value:
        found: dict[str, Any] = {"machine": before, "jax": jax.__version__, "lines": [asdict(line) for line in lines]}
        Path(JSON.value).write_text(json.dumps(found, indent=1) + "\n")


def _load() -> object:
    return machine()["load"]


if __name__ == "__main__":
    heap.keep()
    app.run(main)
