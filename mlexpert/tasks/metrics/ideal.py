"""Predictions that answer perfectly, by what a prediction is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlexpert.tasks.metrics.record import Needs


def by_kind(needs: Needs, truth: Any, columns: Callable[..., int], n_labels: int) -> Any:
    """The answers themselves in the shape of predictions: classes become scores 0 and 1, one column per label."""
    if needs not in (Needs.SCORE, Needs.PROBABILITY):
        return truth
    n_columns = columns(1 if truth.ndim == 1 else truth.shape[1], n_labels)
    if truth.ndim == 1 and n_columns > 1:
        return np.eye(n_labels)[truth]
    return truth.astype(np.float64)
