"""Predictions that say how sure they are, and distributions as answers.

pinball        mean over quantiles and rows of max(q e, (q - 1) e), e = answer - prediction; one column a quantile
crps           mean over rows and grid points of (P(value <= point) - [answer <= point])^2; one column a point
laplace        mean of -sqrt(2) min(|error|, cap) / s - ln(sqrt(2) s), s = max(confidence, floor); two columns
kl_divergence  of predicted shares from the answers' shares, which are scaled to sum to 1; shares clipped to
               [1e-15, 1 - 1e-15]; an answer of 0 contributes nothing
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import metrics as reference

from mlexpert.tasks.metrics.probability import CLIP
from mlexpert.tasks.metrics.record import (
    InvalidPrediction,
    Metric,
    Needs,
    Setting,
    UndefinedMetric,
    positive,
    rising,
    shares,
)
from mlexpert.tasks.metrics.regression import check_numbers


# ---------------------------------------------------------------- values
def _pinball(truth_R: np.ndarray, values: np.ndarray, n_labels: int, *, quantiles: Sequence[float]) -> float:
    values_RxQ = values.reshape(len(truth_R), -1)
    losses_Q = [
        reference.mean_pinball_loss(truth_R, values_RxQ[:, at], alpha=quantile) for at, quantile in enumerate(quantiles)
    ]
    return float(np.mean(losses_Q))


def _crps(truth_R: np.ndarray, shares_RxG: np.ndarray, n_labels: int, *, grid: Sequence[float]) -> float:
    bad = (shares_RxG < 0.0) | (shares_RxG > 1.0)
    if bad.any():
        row, point = (int(at) for at in np.argwhere(bad)[0])
        raise InvalidPrediction(f"{shares_RxG[row, point]:.6g} is not a probability", row)
    if (falling := np.diff(shares_RxG, axis=1) < 0.0).any():
        raise InvalidPrediction("cumulative probabilities fall", int(np.argwhere(falling)[0][0]))
    return float(np.mean((shares_RxG - _steps(truth_R, grid)) ** 2))


def _steps(truth_R: np.ndarray, grid: Sequence[float]) -> np.ndarray:
    return (truth_R[:, None] <= np.asarray(grid)[None, :]).astype(np.float64)


def _laplace(truth_R: np.ndarray, values_Rx2: np.ndarray, n_labels: int, *, floor: float, cap: float) -> float:
    errors_R = np.minimum(np.abs(truth_R - values_Rx2[:, 0]), cap)
    spreads_R = math.sqrt(2.0) * np.maximum(values_Rx2[:, 1], floor)
    return float(np.mean(-2.0 * errors_R / spreads_R - np.log(spreads_R)))


def _kl_divergence(truth_RxC: np.ndarray, shares_RxC: np.ndarray, n_labels: int) -> float:
    true_RxC = truth_RxC / truth_RxC.sum(axis=1, keepdims=True)
    rows_RxC = shares_RxC / shares_RxC.sum(axis=1, keepdims=True)
    clipped_RxC = np.clip(rows_RxC, CLIP, 1.0 - CLIP)
    logs_RxC = np.log(np.where(true_RxC > 0, true_RxC, 1.0) / clipped_RxC)
    return float((true_RxC * logs_RxC).sum(axis=1).mean())


# ---------------------------------------------------------------- when a value exists
def _check_shares(truth_RxC: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    if not len(truth_RxC) or (truth_RxC < 0).any():
        raise UndefinedMetric("the answers are empty or negative; shares are needed")
    if len(bad := np.flatnonzero(truth_RxC.sum(axis=1) == 0)):
        raise UndefinedMetric(f"the shares in row {bad[0] + 1} are all 0")


# ---------------------------------------------------------------- the best predictions
def _ideal_quantiles(truth_R: np.ndarray, n_labels: int, *, quantiles: Sequence[float]) -> np.ndarray:
    return truth_R if len(quantiles) == 1 else np.repeat(truth_R[:, None], len(quantiles), axis=1)


def _ideal_steps(truth_R: np.ndarray, n_labels: int, *, grid: Sequence[float]) -> np.ndarray:
    return _steps(truth_R, grid)


def _ideal_laplace(truth_R: np.ndarray, n_labels: int, *, floor: float, cap: float) -> np.ndarray:
    return np.stack([truth_R, np.full(len(truth_R), floor)], axis=1)


def _ideal_shares(truth_RxC: np.ndarray, n_labels: int) -> np.ndarray:
    return truth_RxC / truth_RxC.sum(axis=1, keepdims=True)


_QUANTILES = Setting("quantiles", "a rising list of shares between 0 and 1", shares)
_GRID = Setting("grid", "a rising list of points", lambda value: rising(value) and len(value) > 1)
_LAPLACE = (
    Setting("floor", "a positive number: smaller confidences count as this", positive, 70.0),
    Setting("cap", "a positive number: larger errors count as this", positive, 1000.0),
)

METRICS = (
    Metric(
        "pinball", True, Needs.NUMBER, _pinball, check_numbers, settings=(_QUANTILES,), ideal=_ideal_quantiles,
        columns=lambda n_targets, n_labels, quantiles: len(quantiles),
    ),
    Metric(
        "crps", True, Needs.CUMULATIVE, _crps, check_numbers, settings=(_GRID,), ideal=_ideal_steps,
        columns=lambda n_targets, n_labels, grid: len(grid),
    ),
    Metric(
        "laplace", False, Needs.NUMBER, _laplace, check_numbers, settings=_LAPLACE, ideal=_ideal_laplace,
        columns=lambda n_targets, n_labels, **settings: 2,
    ),
    Metric(
        "kl_divergence", True, Needs.PROBABILITY, _kl_divergence, _check_shares, truth=Needs.NUMBER,
        targets=(2, None), ideal=_ideal_shares,
    ),
)  # fmt: skip
