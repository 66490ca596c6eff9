"""Optimizers: AdamW for RL, Muon for pre-training and SFT, both behind one clip of the global gradient norm.

Muon (Jordan et al. 2024) replaces the update of a weight MATRIX by its nearest orthogonal matrix. Weights are stacked
([layers, in, out], experts [layers, experts, in, out], heads [layers, in, heads, width]), so "matrix" has to be said:
the axes that a weight declares as contracted with its input against the others, each layer and each expert alone.
Left to itself `optax.contrib.muon` takes every 2-D leaf for a matrix and sends the rest to AdamW - with stacked layers
exactly the wrong way round: norms [layers, width] would be orthogonalised across layers, and no weight matrix would.
Embeddings and gains declare no input and go to AdamW; so does the router, whose columns are scores, not features.
"""

from __future__ import annotations

from typing import Any

import jax
import optax
from optax.contrib import MuonDimensionNumbers, muon

from mlexpert.model import lora
from mlexpert.model.config import ModelConfig
from mlexpert.model.params import declare
from mlexpert.model.weights import STACKED_AXES, Weight


def rl_adamw(
    learning_rate: float, warmup: int = 5, b2: float = 0.98, weight_decay: float = 0.0, clip: float = 1.0
) -> optax.GradientTransformation:
    """AdamW rising linearly over `warmup` updates, then constant: an RL run has no known end."""
    schedule = optax.linear_schedule(learning_rate / max(1, warmup), learning_rate, max(1, warmup - 1))
    return optax.chain(optax.clip_by_global_norm(clip), optax.adamw(schedule, b1=0.9, b2=b2, weight_decay=weight_decay))


def sft_muon(
    config: ModelConfig,
    learning_rate: float,
    n_steps: int,
    warmup: int = 10,
    weight_decay: float = 0.01,
    clip: float = 1.0,
) -> optax.GradientTransformation:
    """Muon on matrices, AdamW on the rest, both at the rate of `cosine`."""
    return optax.chain(
        optax.clip_by_global_norm(clip),
        muon(
            cosine(learning_rate, n_steps, warmup),
            weight_decay=weight_decay,
            adam_b2=0.95,
            adam_learning_rate=cosine(learning_rate, n_steps, warmup),
            muon_weight_dimension_numbers=matrix_axes(config),
        ),
    )


def cosine(peak: float, n_steps: int, warmup: int) -> optax.Schedule:
    """Linear from peak / warmup to peak, then half a cosine to 5 % of it at step `n_steps`."""
    if n_steps <= warmup:
        raise ValueError(f"{n_steps} steps leave nothing after {warmup} of warm-up")
    return optax.warmup_cosine_decay_schedule(peak / max(1, warmup), peak, warmup, n_steps, 0.05 * peak)


def matrix_axes(config: ModelConfig) -> Any:
    """Tree like the parameters: input and output axes of every weight that Muon takes, None for those of AdamW."""
    return jax.tree.map(_axes, lora.split(declare(config))[0])


def _axes(weight: Weight) -> MuonDimensionNumbers | None:
    if not weight.fan_in or "router" in weight.axes:
        return None
    outputs = (i for i, axis in enumerate(weight.axes) if axis not in STACKED_AXES and i not in weight.fan_in)
    return MuonDimensionNumbers(weight.fan_in, tuple(outputs))
