"""Low-rank adapters: beside a frozen matrix W lie two small ones, and the layer uses W + scale * A B.

1. Adapters are declared with the weights they adapt, in the layer's tree under "lora": `into` has W's input axes and
   the rank, `out_of` the rank and W's output axes, each with W's layers and experts. `out_of` starts at zero.
2. A layer adds the product to its weights when its turn comes, in W's own dtype: the model that is trained is, to the
   bit, the model that is merged and served. Only one layer's sums exist at a time.
3. `split` parts what is trained from what stays: gradients and optimizer state are of the adapters alone. The policy
   without them, a KL's reference, is the same frozen weights with adapters of zeros.
"""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp

from mlexpert.model.config import Lora, ModelConfig
from mlexpert.model.weights import STACKED_AXES, Params, Weight

KINDS = ("attention", "deltanet", "mlp", "moe", "shared")


# ---------------------------------------------------------------- declaration
def declare(block: Params, lora: Lora) -> Params:
    """The adapters of a layer's declared weights: kind -> name -> {into, out_of}."""
    return {
        kind: {name: _pair(block[kind][name], lora.rank) for name in names}
        for kind in KINDS
        if kind in block and (names := [name for name in _matrices(block[kind]) if _targeted(kind, name, lora)])
    }


def check(blocks: tuple[Params, ...], lora: Lora) -> None:
    """Raises ValueError for a target that names nothing, or if no layer is adapted at all."""
    there = {f"{kind}.{name}" for block in blocks for kind in KINDS if kind in block for name in _matrices(block[kind])}
    unknown = [target for target in lora.targets if target not in there and target not in KINDS]
    if unknown or not any(block["lora"] for block in blocks):
        wrong = ", ".join(unknown or lora.targets)
        raise ValueError(f"adapters target {wrong}, which the model does not have; it has {', '.join(sorted(there))}")


def _matrices(weights: Params) -> list[str]:
    return [name for name, weight in weights.items() if weight.fan_in]


def _targeted(kind: str, name: str, lora: Lora) -> bool:
    """A router is adapted only by its full name: routing that shifts is not what a whole kind is asked for."""
    return f"{kind}.{name}" in lora.targets or (kind in lora.targets and name != "router")


def _pair(weight: Weight, rank: int) -> Params:
    stacked = [i for i, axis in enumerate(weight.axes) if axis in STACKED_AXES]
    outputs = [i for i in range(len(weight.axes)) if i not in stacked and i not in weight.fan_in]

    def part(before: list[int], after: list[int], init: tuple[str, float]) -> Weight:
        shape = (*(weight.shape[i] for i in before), rank, *(weight.shape[i] for i in after))
        axes = (*(weight.axes[i] for i in before), "rank", *(weight.axes[i] for i in after))
        return Weight(shape, "float32", axes, init, layers=weight.layers)

    spread = 1.0 / math.sqrt(math.prod(weight.shape[i] for i in weight.fan_in))
    return {
        "into": part([*stacked, *weight.fan_in], [], ("normal", spread)),
        "out_of": part(stacked, outputs, ("constant", 0.0)),
    }


# ---------------------------------------------------------------- use
def adapted(block: Params, config: ModelConfig) -> Params:
    """A layer's weights (of one layer, or stacked) with its adapters added, and no more "lora" among them."""
    if config.lora is None:
        return block
    kept = {kind: weights for kind, weights in block.items() if kind != "lora"}
    for kind, pairs in block["lora"].items():
        sums = {name: _sum(block[kind][name], pair, config.lora) for name, pair in pairs.items()}
        kept[kind] = {**block[kind], **sums}
    return kept


def _sum(weight: jax.Array, pair: Params, lora: Lora) -> jax.Array:
    into, out_of = pair["into"], pair["out_of"]
    stacked = into.ndim + out_of.ndim - 2 - weight.ndim  # axes that all three have
    left = into.reshape(*into.shape[:stacked], -1, lora.rank)
    right = out_of.reshape(*out_of.shape[:stacked], lora.rank, -1)
    change = jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST).reshape(weight.shape)
    return (weight.astype(jnp.float32) + lora.alpha / lora.rank * change).astype(weight.dtype)


def merged(params: Params, config: ModelConfig) -> tuple[Params, ModelConfig]:
    """The plain model that the adapted one is: its weights and its config, for serving and export."""
    if config.lora is None:
        return params, config
    blocks = tuple(adapted(block, config) for block in params["blocks"])
    return {**params, "blocks": blocks}, replace(config, lora=None)


def split(tree: Params) -> tuple[Params, Params]:
    """(what is trained, what stays) of any tree like the parameters; without adapters everything is trained."""
    if not any("lora" in block for block in tree["blocks"]):
        return tree, {}
    stays = tuple({name: part for name, part in block.items() if name != "lora"} for block in tree["blocks"])
    return {"blocks": tuple({"lora": block["lora"]} for block in tree["blocks"])}, {**tree, "blocks": stays}


def join(trained: Params, stays: Params) -> Params:
    """The way back from `split`."""
    if not stays:
        return trained
    pairs = zip(stays["blocks"], trained["blocks"], strict=True)
    return {**stays, "blocks": tuple({**block, **adapters} for block, adapters in pairs)}
