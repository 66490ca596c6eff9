"""Masked arithmetic, and metrics that can be merged exactly.

Values under a zero mask may be anything, NaN and infinity included: they are replaced before use, so neither the
result nor its gradient sees them. A metric keeps its numerator and denominator apart until it is reported, so the mean
over micro-batches, hosts or steps is the mean over everything, not a mean of means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Mean(NamedTuple):
    numerator: jax.Array
    denominator: jax.Array


class Least(NamedTuple):
    value: jax.Array


class Most(NamedTuple):
    value: jax.Array


Metric = Mean | Least | Most


def total(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Sum of `x` where `mask`; 0 where nothing is."""
    return jnp.sum(jnp.where(mask, x, 0))


def mean(x: jax.Array, weight: jax.Array) -> Mean:
    """Weighted mean as a pair; entries of zero weight (or a false mask) take no part."""
    weight = weight.astype(jnp.float32)
    return Mean(total(x * weight, weight != 0), jnp.sum(weight))


def least(x: jax.Array, mask: jax.Array) -> Least:
    """Smallest `x` where `mask`; infinity where nothing is, which any merge then replaces."""
    return Least(jnp.min(jnp.where(mask, x, jnp.inf)))


def most(x: jax.Array, mask: jax.Array) -> Most:
    """Largest `x` where `mask`; minus infinity where nothing is."""
    return Most(jnp.max(jnp.where(mask, x, -jnp.inf)))


def report(parts: Sequence[Mapping[str, Metric]]) -> dict[str, float]:
    """Merges the metrics of several micro-batches into plain numbers; all parts have the same names.

    Raises:
      ValueError: there is nothing to merge, or a metric counted nothing (its mean would be 0 / 0).
    """
    if not parts:
        raise ValueError("no micro-batch, so no metrics")
    return {name: _merge(name, [part[name] for part in parts]) for name in parts[0]}


def _merge(name: str, metrics: Sequence[Metric]) -> float:
    first = metrics[0]
    if isinstance(first, Mean):
        pairs = [m for m in metrics if isinstance(m, Mean)]
        denominator = sum(float(m.denominator) for m in pairs)
        if denominator == 0:
            raise ValueError(f"metric {name!r} counted nothing: the batch holds no token to train")
        return sum(float(m.numerator) for m in pairs) / denominator
    values = [float(m.value) for m in metrics if not isinstance(m, Mean)]
    # Not min()/max() of Python: those lose a NaN that does not come first.
    return float(np.min(values) if isinstance(first, Least) else np.max(values))
