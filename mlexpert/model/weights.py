"""What is declared of one weight, and the shorthand by which the layers declare theirs.

`fan_in` names the axes contracted with a layer's input: with the stacking axes ("layer", "expert") removed, the others
are its output, which is all that an initialiser or a matrix optimiser needs to know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlexpert.model.config import ModelConfig
from mlexpert.model.sources import Source

Params = dict[str, Any]

STACKED_AXES = ("layer", "expert")


@dataclass(frozen=True)
class Weight:
    """`init` is ("normal", deviation), ("constant", value) or ("log_uniform", bound): the log of U(0.01, bound)."""

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]  # one logical name per dimension
    init: tuple[str, float]
    fan_in: tuple[int, ...] = ()  # empty for gains and embeddings, which are not matrices acting on activations
    sources: tuple[Source, ...] = ()  # where it is stored: the first is written, any is read
    layers: tuple[int, ...] = ()  # the model's layers that axis 0 stacks; empty for a weight outside the layers

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.axes):
            raise ValueError(f"weight of shape {self.shape} names {len(self.axes)} axes: {self.axes}")


@dataclass(frozen=True)
class Stack:
    """The layers at one position of the pattern, as their weights are declared: stacked, stored one by one."""

    config: ModelConfig
    position: int

    def weight(
        self,
        shape: Sequence[int],
        axes: Sequence[str],
        init: tuple[str, float],
        *sources: Source,
        fan_in: tuple[int, ...] = (),
        dtype: str = "",
    ) -> Weight:
        """Shape, axes and source names of one layer; `fan_in` counts the stacked axis."""
        layers = tuple(range(self.position, self.config.n_layers, len(self.config.pattern)))
        sources = tuple(replace(source, name=f"model.layers.{{layer}}.{source.name}") for source in sources)
        shape, axes = (len(layers), *shape), ("layer", *axes)
        return Weight(shape, dtype or self.config.dtype, axes, init, fan_in, sources, layers)

    def matrix(
        self, shape: Sequence[int], axes: Sequence[str], n_in: int, *sources: Source, residual: bool = False
    ) -> Weight:
        """A matrix whose first `n_in` unstacked axes are its input. One that writes into the residual stream starts
        smaller, so that the stream's variance does not grow with depth."""
        fan_in = tuple([i + 1 for i, axis in enumerate(axes) if axis not in STACKED_AXES][:n_in])
        std = 1.0 / math.sqrt(math.prod(shape[i - 1] for i in fan_in))
        if residual:
            std /= math.sqrt(2 * self.config.n_layers)
        return self.weight(shape, axes, ("normal", std), *sources, fan_in=fan_in)

    def linear(self, name: str, shape: tuple[int, int], axes: tuple[str, str], residual: bool = False) -> Weight:
        """A matrix [in, out], stored as [out, in]."""
        return self.matrix(shape, axes, 1, Source(name, shape[::-1], (1, 0)), residual=residual)

    def vector(self, name: str, size: int, axis: str, init: tuple[str, float], dtype: str = "") -> Weight:
        return self.weight((size,), (axis,), init, Source(name, (size,), (0,)), dtype=dtype)

    def gain(self, name: str, size: int, axis: str, value: float = 1.0) -> Weight:
        """What a norm multiplies by; with "one_plus" the weight is what is added to 1."""
        return self.vector(name, size, axis, ("constant", value - (self.config.norm == "one_plus")))
