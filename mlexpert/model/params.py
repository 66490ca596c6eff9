"""One declaration per weight; the abstract tree, the initial values and the parameter count all follow from it.

Parameters are nested dicts of arrays. All layers of a model are stacked on axis 0 ("layer"), so that one scan runs
them. `fan_in` names the axes contracted with a layer's input: with the stacking axes ("layer", "expert") removed, the
others are its output, which is all that an initialiser or a matrix optimiser needs to know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from mlexpert.model.config import ModelConfig, require_built

Params = dict[str, Any]

STACKED_AXES = ("layer", "expert")


@dataclass(frozen=True)
class Weight:
    """`init` is ("normal", standard deviation) or ("constant", value)."""

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]  # one logical name per dimension
    init: tuple[str, float]
    fan_in: tuple[int, ...] = ()  # empty for gains and embeddings, which are not matrices acting on activations

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.axes):
            raise ValueError(f"weight of shape {self.shape} names {len(self.axes)} axes: {self.axes}")


def declare(config: ModelConfig) -> Params:
    """The tree of `Weight`. Raises NotImplementedError for a mixer that is not built."""
    require_built(config)
    layers = {
        "attention_norm": _gain(config, "model"),
        "attention": _attention(config),
        "mlp_norm": _gain(config, "model"),
    }
    layers |= {"moe": _moe(config)} if config.sparse else {"mlp": _mlp(config)}
    table = ((config.vocab_size, config.d_model), ("vocab", "model"))
    tree: Params = {
        "embedding": Weight(table[0], config.dtype, table[1], ("normal", config.d_model**-0.5)),
        "layers": layers,
        "final_norm": Weight((config.d_model,), config.dtype, ("model",), ("constant", 1.0)),
    }
    if not config.tied_embedding:
        tree["unembedding"] = Weight(table[0][::-1], config.dtype, table[1][::-1], ("normal", 0.02))
    return tree


def abstract(config: ModelConfig) -> Params:
    """The parameter tree as shapes and dtypes; allocates nothing."""
    return jax.tree.map(lambda weight: jax.ShapeDtypeStruct(weight.shape, jnp.dtype(weight.dtype)), declare(config))


def init(config: ModelConfig, key: jax.Array) -> Params:
    """Initial values; each weight draws from its own key, so adding a weight changes no other."""

    def draw(path: tuple[Any, ...], weight: Weight) -> jax.Array:
        kind, value = weight.init
        if kind == "constant":
            return jnp.full(weight.shape, value, weight.dtype)
        own_key = jax.random.fold_in(key, _stable_hash(jax.tree_util.keystr(path)))
        return (value * jax.random.normal(own_key, weight.shape)).astype(weight.dtype)

    return jax.tree_util.tree_map_with_path(draw, declare(config))


def count(config: ModelConfig) -> int:
    """Number of parameters."""
    return sum(math.prod(weight.shape) for weight in jax.tree.leaves(declare(config)))


def _attention(config: ModelConfig) -> Params:
    d, h, kv, k = config.d_model, config.n_heads, config.n_kv_heads, config.head_dim
    return {
        "query": _matrix(config, (d, h, k), ("model", "head", "head_dim"), n_in=1),
        "key": _matrix(config, (d, kv, k), ("model", "kv_head", "head_dim"), n_in=1),
        "value": _matrix(config, (d, kv, k), ("model", "kv_head", "head_dim"), n_in=1),
        "output": _matrix(config, (h, k, d), ("head", "head_dim", "model"), n_in=2, residual=True),
        "query_norm": _gain(config, "head_dim", config.qk_norm_gain),
        "key_norm": _gain(config, "head_dim"),
    }


def _mlp(config: ModelConfig) -> Params:
    d, f = config.d_model, config.d_ff
    return {
        "gate": _matrix(config, (d, f), ("model", "ff"), n_in=1),
        "up": _matrix(config, (d, f), ("model", "ff"), n_in=1),
        "down": _matrix(config, (f, d), ("ff", "model"), n_in=1, residual=True),
    }


def _moe(config: ModelConfig) -> Params:
    e, d, f = config.n_experts, config.d_model, config.d_expert
    return {
        "router": _matrix(config, (d, e), ("model", "router"), n_in=1),
        "gate": _matrix(config, (e, d, f), ("expert", "model", "ff"), n_in=1),
        "up": _matrix(config, (e, d, f), ("expert", "model", "ff"), n_in=1),
        "down": _matrix(config, (e, f, d), ("expert", "ff", "model"), n_in=1, residual=True),
    }


def _matrix(
    config: ModelConfig, shape: tuple[int, ...], axes: tuple[str, ...], n_in: int, residual: bool = False
) -> Weight:
    """A matrix in every layer, its first `n_in` unstacked axes being the input. One that writes into the residual
    stream starts smaller, so that the stream's variance does not grow with depth."""
    shape, axes = (config.n_layers, *shape), ("layer", *axes)
    unstacked = [i for i, axis in enumerate(axes) if axis not in STACKED_AXES]
    fan_in = tuple(unstacked[:n_in])
    std = 1.0 / math.sqrt(math.prod(shape[i] for i in fan_in))
    if residual:
        std /= math.sqrt(2 * config.n_layers)
    return Weight(shape, config.dtype, axes, ("normal", std), fan_in)


def _gain(config: ModelConfig, axis: str, value: float = 1.0) -> Weight:
    size = {"model": config.d_model, "head_dim": config.head_dim}[axis]
    return Weight((config.n_layers, size), config.dtype, ("layer", axis), ("constant", value))


def _stable_hash(text: str) -> int:
    """FNV-1a, 32 bits: Python's own hash of a string differs from process to process."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value
