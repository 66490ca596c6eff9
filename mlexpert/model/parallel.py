"""What one device of a mesh does inside `jax.shard_map`, where the model's functions see only their own rows.

A device holds its part of every weight and its part of the tokens: rows of the batch, and of each row a stretch. The
model's code is the same as on one device; where it needs what others hold, it asks here. `ALONE` asks nobody.

Gradients: every device differentiates the sum over its own tokens. A gather's transpose is a scatter of sums, so parts
of weights come back complete; weights that are whole on several devices have their gradients summed by the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from mlexpert.model.weights import Params

EXCHANGES = ("padded", "ragged")


@dataclass(frozen=True, eq=False)
class Parallel:
    """Names of mesh axes ("" or (): not split), and how attention and experts are run."""

    tokens: tuple[str, ...] = ()  # every axis over which tokens are split
    sequence: str = ""  # the one of them that cuts rows into stretches
    expert: str = ""
    gathers: Params = field(default_factory=dict)  # tree like the parameters: axes to gather over; empty: all are whole
    attention: str = ""  # backend of attention over rows; "": what suits the device and the rows' shape
    grouped: str = ""  # backend of the grouped matmul; "": what suits the device
    exchange: str = "padded"  # of rows between experts; "ragged" sends no padding, where the compiler has it
    capacity: float = 0.5  # rows of a round of the exchange, as a share of what even routing would send

    def __post_init__(self) -> None:
        if self.exchange not in EXCHANGES or self.capacity <= 0:
            raise ValueError(f"exchange {self.exchange!r} is one of {EXCHANGES}, capacity {self.capacity} above 0")


ALONE = Parallel()


def fetch(weights: Params, parallel: Parallel, position: int) -> Params:
    """The weights of one layer, at a position of the pattern, from their parts; experts stay with their device."""
    if not parallel.gathers:
        return weights
    return jax.tree.map(lambda part, spec: _gather(part, spec[1:]), weights, parallel.gathers["blocks"][position])


def _gather(part: jax.Array, axes_of: tuple[Any, ...]) -> jax.Array:
    for dimension, axes in enumerate(axes_of):
        if axes is not None:
            part = jax.lax.all_gather(part, axes, axis=dimension, tiled=True)
    return part


def embed(table_VxD: jax.Array, tokens_BxT: jax.Array, parallel: Parallel) -> jax.Array:
    """Rows of the table. Where its columns are split, each device looks its columns up for all who share them, and the
    results change places: the table is never whole anywhere."""
    axes = parallel.gathers["embedding"][1] if parallel.gathers else None
    if axes is None:
        return table_VxD[tokens_BxT]
    parts_NxE = table_VxD[jax.lax.all_gather(tokens_BxT.reshape(-1), axes, tiled=True)]
    whole_NxD = jax.lax.all_to_all(parts_NxE, axes, split_axis=0, concat_axis=1, tiled=True)
    return whole_NxD.reshape(*tokens_BxT.shape, -1)


def shift(x_BxT: jax.Array, by: int, parallel: Parallel) -> jax.Array:
    """`jnp.roll(x, by, axis=1)` of whole rows, `by` being 1 or -1, for devices that hold stretches of them."""
    rolled_BxT = jnp.roll(x_BxT, by, axis=1)
    if not parallel.sequence:
        return rolled_BxT
    n = jax.lax.axis_size(parallel.sequence)
    edge = 0 if by == 1 else -1
    ring = [(i, (i + by) % n) for i in range(n)]
    return rolled_BxT.at[:, edge].set(jax.lax.ppermute(rolled_BxT[:, edge], parallel.sequence, ring))


def starts(segments_BxT: jax.Array, parallel: Parallel) -> jax.Array:
    """Where a token has another segment before it, or nothing."""
    first = jnp.arange(segments_BxT.shape[1]) == 0
    if parallel.sequence:
        first &= jax.lax.axis_index(parallel.sequence) == 0
    return (segments_BxT != shift(segments_BxT, 1, parallel)) | first[None, :]


def total(x: jax.Array, parallel: Parallel) -> jax.Array:
    """Sum over all devices that hold other tokens."""
    return jax.lax.psum(x, parallel.tokens) if parallel.tokens else x
