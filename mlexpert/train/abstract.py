"""A training step without arrays: its programs lowered for shapes alone, to compile for devices that are not here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mlexpert.model import lora, params
from mlexpert.model.config import ModelConfig
from mlexpert.train import spread
from mlexpert.train.losses import WirlLoss
from mlexpert.train.optimizer import rl_adamw
from mlexpert.train.step import Micro, StepShape, head, make_score, rl_programs


def lower_rl_step(
    config: ModelConfig, shape: StepShape, length: int, support: int = 0, float32_weights: bool = True
) -> Iterator[tuple[str, jax.stages.Lowered]]:
    """The programs of one RL step with AdamW and a KL term, in the order of a step: score, add, update; before them the
    part of `add` that makes log-probs of hidden states and differentiates them, alone: head.

    `length` is that of a row, `support` the width of the recorded sampling supports (0: none).
    """
    place, optimizer = shape.placement(config), rl_adamw(1e-6)
    weights = _weights(config, place, "float32" if float32_weights else config.dtype)
    micro, row = _micro(shape, place, length, support), _tokens((shape.rows, length), jnp.float32, place)
    programs = rl_programs(config, optimizer, WirlLoss(), 1.0, shape)
    yield "head", _lower_head(config, shape, micro)
    yield "score", make_score(config, 1.0, shape).lower(_weights(config, place, config.dtype), micro)
    trained, grads = lora.split(weights)[0], lora.split(_weights(config, place, "float32"))[0]
    yield "add", programs.add.lower(weights, grads, micro, (None, row))
    yield "update", programs.update.lower(trained, _state(optimizer, trained, place), _scalar(place), grads)


def _lower_head(config: ModelConfig, shape: StepShape, micro: Micro) -> jax.stages.Lowered:
    place = shape.placement(config)

    def loss(hidden_BxTxD: jax.Array, table: Any, micro: Micro) -> jax.Array:
        logprob_BxT, entropy_BxT = head(table, config, hidden_BxTxD, micro, 1.0, shape.chunk, place)
        return jnp.sum(micro.weight_BxT * (logprob_BxT + entropy_BxT))

    name = "embedding" if config.tied_embedding else "unembedding"
    table = {name: _weights(config, place, config.dtype)[name]}
    hidden = _tokens((*micro.tokens_BxT.shape, config.d_model), config.dtype, place)
    split = {name: place.specs[name]} if place.specs else {}
    specs = (spread.TOKENS, split, spread.TOKENS)
    program = spread.on_devices(jax.grad(loss, argnums=(0, 1)), place, specs, specs[:2])
    return program.lower(hidden, table, micro)


def _weights(config: ModelConfig, place: spread.Placement, dtype: str) -> Any:
    """As declared, in another precision; what is declared finer than the model's own stays so."""

    def one(declared: jax.ShapeDtypeStruct, sharding: NamedSharding | None) -> jax.ShapeDtypeStruct:
        finer = np.promote_types(declared.dtype, dtype) if declared.dtype != config.dtype else dtype
        return jax.ShapeDtypeStruct(declared.shape, finer, sharding=sharding)

    tree = params.abstract(config)
    return jax.tree.map(one, tree, place.shardings or jax.tree.map(lambda _: None, tree))


def _micro(shape: StepShape, place: spread.Placement, length: int, support: int) -> Micro:
    ints, floats = (_tokens((shape.rows, length), dtype, place) for dtype in (jnp.int32, jnp.float32))
    supports = _tokens((shape.rows, length, support), jnp.int32, place) if support else None
    return Micro(ints, ints, ints, floats, supports, floats, floats)


def _tokens(shape: tuple[int, ...], dtype: Any, place: spread.Placement) -> Any:
    where = None if place.mesh is None else NamedSharding(place.mesh, spread.TOKENS)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=where)


def _state(optimizer: optax.GradientTransformation, weights: Any, place: spread.Placement) -> Any:
    shapes = jax.eval_shape(optimizer.init, weights)
    wanted = spread.state_shardings(shapes, place)
    if wanted is None:
        return shapes
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, wanted)


def _scalar(place: spread.Placement) -> jax.ShapeDtypeStruct:
    where = None if place.mesh is None else NamedSharding(place.mesh, P())
    return jax.ShapeDtypeStruct((), jnp.int32, sharding=where)
