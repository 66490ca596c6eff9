"""One declaration per weight; the abstract tree, the initial values and the parameter count all follow from it.

Parameters are nested dicts of arrays. `params["blocks"]` is a tuple with one tree for each position of the layer
pattern; its arrays are stacked on axis 0 ("layer") over the repetitions of the pattern, so that one scan runs them.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from mlexpert.model import lora
from mlexpert.model.blocks import block
from mlexpert.model.config import ModelConfig
from mlexpert.model.sources import Source
from mlexpert.model.weights import Params, Weight


def declare(config: ModelConfig) -> Params:
    """The tree of `Weight`. Raises ValueError for a target of adapters that no layer has."""
    blocks = tuple(block(config, position) for position in range(len(config.pattern)))
    if config.lora:
        lora.check(blocks, config.lora)
    table, axes = (config.vocab_size, config.d_model), ("vocab", "model")
    gain = ("constant", 0.0 if config.norm == "one_plus" else 1.0)
    rows = Source("model.embed_tokens.weight", table, (0, 1))
    tree: Params = {
        "embedding": Weight(table, config.dtype, axes, ("normal", config.d_model**-0.5), sources=(rows,)),
        "blocks": blocks,
        "final_norm": Weight(
            table[1:], config.dtype, axes[1:], gain, sources=(Source("model.norm.weight", table[1:], (0,)),)
        ),
    }
    if not config.tied_embedding:
        columns = Source("lm_head.weight", table, (1, 0))
        tree["unembedding"] = Weight(table[::-1], config.dtype, axes[::-1], ("normal", 0.02), sources=(columns,))
    return tree


def abstract(config: ModelConfig) -> Params:
    """The parameter tree as shapes and dtypes; allocates nothing."""
    return jax.tree.map(lambda weight: jax.ShapeDtypeStruct(weight.shape, jnp.dtype(weight.dtype)), declare(config))


def init(config: ModelConfig, key: jax.Array) -> Params:
    """Initial values; each weight draws from its own key, so adding a weight changes no other."""
    return jax.tree_util.tree_map_with_path(partial(_draw, key), declare(config))


def adapt(plain: Params, config: ModelConfig, key: jax.Array) -> Params:
    """The very arrays of a plain model with fresh adapters beside them, which change nothing yet; as they are where
    `config` has none."""
    if config.lora is None:
        return plain
    return lora.join(jax.tree_util.tree_map_with_path(partial(_draw, key), lora.split(declare(config))[0]), plain)


def count(config: ModelConfig) -> int:
    """Number of parameters."""
    return sum(math.prod(weight.shape) for weight in jax.tree.leaves(declare(config)))


def _draw(key: jax.Array, path: tuple[Any, ...], weight: Weight) -> jax.Array:
    kind, value = weight.init
    if kind == "constant":
        return jnp.full(weight.shape, value, weight.dtype)
    own_key = jax.random.fold_in(key, _stable_hash(_draw_name(path)))
    if kind == "log_uniform":
        return jnp.log(jax.random.uniform(own_key, weight.shape, minval=0.01, maxval=value)).astype(weight.dtype)
    return (value * jax.random.normal(own_key, weight.shape)).astype(weight.dtype)


def _draw_name(path: tuple[Any, ...]) -> str:
    """The name that a weight's key is made from. Position 0 of the pattern has no number in it, so that a model of one
    kind of layer starts from the values it started from before patterns were numbered."""
    return jax.tree_util.keystr(path).replace("['blocks'][0]", "['layers']")


def _stable_hash(text: str) -> int:
    """FNV-1a, 32 bits: Python's own hash of a string differs from process to process."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value
