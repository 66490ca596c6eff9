"""A step over a mesh: who holds what, and how the parts of a gradient become one.

Weights, optimizer state and gradient sums are split by one table (model/sharding.py), rows and positions of a batch
too. The forward and backward pass run inside one `jax.shard_map`: each device differentiates the sum over its own
tokens, and what it holds no part of is summed here. `jax.jit` with the same shardings does optimizer updates. Without
a mesh everything lies on one device and the same functions run as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mlexpert.model import lora, params, sharding
from mlexpert.model.config import ModelConfig
from mlexpert.model.parallel import ALONE, Parallel
from mlexpert.model.params import Params
from mlexpert.train import masked
from mlexpert.train.head import Layout

TOKENS = P(sharding.ROWS, "sequence")  # of every array [B, T, ...]; what is behind the positions is whole


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the arrays of a step lie: on one device (`mesh` None), or split. Trees are like the parameters."""

    mesh: Mesh | None
    parallel: Parallel
    specs: Params
    shardings: Params | None


def placement(config: ModelConfig, mesh: Mesh | None, **choices: Any) -> Placement:
    """`choices` are fields of `Parallel`: how experts run. Raises MeshError when the model does not fit the mesh."""
    if mesh is None:
        return Placement(None, Parallel(**choices) if choices else ALONE, {}, None)
    shape = sharding.shape_of(mesh)
    parallel = sharding.parallel(config, shape, **choices)
    return Placement(mesh, parallel, sharding.specs(config, shape), sharding.shardings(config, mesh))


def on_devices(function: Callable, place: Placement, in_specs: Any, out_specs: Any, **jit: Any) -> Callable:
    """The jitted function; on a mesh, every device runs it on its parts."""
    if place.mesh is None:
        return jax.jit(function, **jit)
    # What is whole on several devices is so by construction, not by what the type checker can follow.
    spread = jax.shard_map(function, mesh=place.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    return jax.jit(spread, **jit)


def complete(grads: Params, place: Placement) -> Params:
    """Gradients of the sum over all tokens: each summed over the axes that split tokens but not this weight."""
    if place.mesh is None:
        return grads

    def sum_over(grad: jax.Array, spec: P) -> jax.Array:
        rest = tuple(axis for axis in place.parallel.tokens if axis not in sharding.axes_of(spec))
        return jax.lax.psum(grad, rest) if rest else grad

    return jax.tree.map(sum_over, grads, lora.split(place.specs)[0])


def merge(metrics: dict[str, masked.Metric], place: Placement) -> dict[str, masked.Metric]:
    """Metrics of all devices' tokens from each one's own."""
    axes = place.parallel.tokens
    if not axes:
        return metrics
    how = {masked.Mean: jax.lax.psum, masked.Least: jax.lax.pmin, masked.Most: jax.lax.pmax}
    return {name: type(metric)(*how[type(metric)](tuple(metric), axes)) for name, metric in metrics.items()}


def head_layout(config: ModelConfig, place: Placement, chunk: int) -> Layout:
    """How the head walks over the unembedding, whose rows may be split."""
    if place.mesh is None:
        return Layout(chunk)
    weight = place.specs["embedding"][1] if config.tied_embedding else place.specs["unembedding"][0]
    return Layout(chunk, tuple(sharding.axes_of(P(weight))))


def put_tokens(arrays: tuple[np.ndarray | None, ...], place: Placement) -> tuple[Any, ...]:
    """Arrays [B, T, ...] onto the devices. Every process holds all of them and puts what its own devices need.

    Raises MeshError when rows or positions do not come out even.
    """
    if place.mesh is None:
        return jax.device_put(arrays)
    rows, length = next(array.shape for array in arrays if array is not None)[:2]
    sharding.check_rows(sharding.shape_of(place.mesh), rows, length)
    whole = NamedSharding(place.mesh, TOKENS)
    return tuple(
        None if array is None else jax.make_array_from_callback(array.shape, whole, array.__getitem__)
        for array in arrays
    )


def zeros(place: Placement) -> Callable[[Params], Params]:
    """Jitted sums of what is trained: float32 whatever that is; small terms must not vanish in bfloat16."""

    def function(like: Params) -> Params:
        return jax.tree.map(lambda w: jnp.zeros(w.shape, jnp.float32), lora.split(like)[0])

    return jax.jit(function, out_shardings=lora.split(place.shardings)[0] if place.shardings else None)


def keep(state: Any, place: Placement) -> Any:
    """Inside jit: the state, whose arrays stay where the table puts them whatever the compiler would choose."""
    if place.mesh is None:
        return state
    return jax.lax.with_sharding_constraint(state, state_shardings(state, place))


def state_shardings(opt_state: Any, place: Placement) -> Any:
    """Shardings for an optimizer's state (arrays or shapes): what it keeps of a weight lies with the weight, else it is
    whole. None without a mesh."""
    if place.mesh is None:
        return None
    whole, where = NamedSharding(place.mesh, P()), {}
    for path, each in jax.tree_util.tree_leaves_with_path(place.shardings):
        where[jax.tree_util.keystr(path)] = each

    def of(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        # A state's path to an array ends with the weight's own path.
        ends = (jax.tree_util.keystr(path[i:]) for i in range(len(path)))
        found = next((where[end] for end in ends if end in where), whole)
        return found if len(leaf.shape) == len(found.spec) else whole

    return jax.tree_util.tree_map_with_path(of, opt_state)


def init_params(config: ModelConfig, key: jax.Array, place: Placement) -> Params:
    """Initial values, each device making its own part: the same values on any mesh."""
    return jax.jit(params.init, static_argnums=0, out_shardings=place.shardings)(config, key)


def as_declared(weights: Params, config: ModelConfig) -> Params:
    """Weights in the precision that the model computes in. The trainer may hold them in float32, and must where that
    is bfloat16: an update of 1e-6 is less than half a step of a bfloat16 weight, and would be lost."""
    return jax.tree.map(lambda w, declared: w.astype(declared.dtype), weights, params.declare(config))


def init_optimizer(weights: Params, optimizer: optax.GradientTransformation, place: Placement) -> optax.OptState:
    shapes = jax.eval_shape(optimizer.init, weights)
    return jax.jit(optimizer.init, out_shardings=state_shardings(shapes, place))(weights)
