"""Numbers against numbers. Several target columns are scored column by column and averaged (MCRMSE is rmse of several).

rmse, mae, medae, mse    unit of the target, its square for mse; wmae is mae with a weight per row
rmsle                    of log(1 + x); a negative prediction is invalid, or counts as 0 if the task says clip
mape, rmspe, smape       fractions, or percent if the task says so; mape and rmspe leave a true 0 undefined, or
                         skip such rows if the task says skip; smape counts a row of two zeros as 0
r2                       1 - squared error / squared deviation of the answers from their mean
mase                     mean of |error| / scale, the scale of each row given beside the answers
log_mae                  natural log of the mean absolute error, which is at least 1e-9 for this
poisson_deviance         predictions must be positive
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn import metrics as reference

from mlexpert.tasks.metrics.classification import check_weight
from mlexpert.tasks.metrics.record import (
    SEVERAL,
    InvalidPrediction,
    Metric,
    Needs,
    Setting,
    UndefinedMetric,
    check_columns,
    flag,
    mean_over_columns,
    one_of,
)

LEAST_ERROR = 1e-9


# ---------------------------------------------------------------- values
def _rmse(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int, *, weight: Any = None) -> float:
    return float(reference.root_mean_squared_error(truth_R, values_R, sample_weight=weight))


def _mae(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int, *, weight: Any = None) -> float:
    return float(reference.mean_absolute_error(truth_R, values_R, sample_weight=weight))


def _mse(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int) -> float:
    return float(reference.mean_squared_error(truth_R, values_R))


def _medae(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int) -> float:
    return float(reference.median_absolute_error(truth_R, values_R))


def _rmsle(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int, *, negative: str = "invalid") -> float:
    if negative == "clip":
        values_R = np.maximum(values_R, 0.0)
    elif len(bad := np.flatnonzero(values_R < 0)):
        raise InvalidPrediction(f"{values_R[bad[0]]:.6g} is negative", int(bad[0]))
    return float(reference.root_mean_squared_log_error(truth_R, values_R))


def _mape(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int, *, zeros: str, percent: bool) -> float:
    truth_R, values_R = _without_zeros(truth_R, values_R, zeros)
    return _scale(percent) * float(reference.mean_absolute_percentage_error(truth_R, values_R))


def _rmspe(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int, *, zeros: str, percent: bool) -> float:
    truth_R, values_R = _without_zeros(truth_R, values_R, zeros)
    return _scale(percent) * math.sqrt(np.mean(((truth_R - values_R) / truth_R) ** 2))


def _smape(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int, *, percent: bool) -> float:
    sizes_R = np.abs(truth_R) + np.abs(values_R)
    shares_R = 2.0 * np.abs(truth_R - values_R) / np.where(sizes_R == 0.0, 1.0, sizes_R)
    return _scale(percent) * float(shares_R.mean())


def _scale(percent: bool) -> float:
    return 100.0 if percent else 1.0


def _without_zeros(truth_R: np.ndarray, values_R: np.ndarray, zeros: str) -> tuple[np.ndarray, np.ndarray]:
    some = truth_R != 0 if zeros == "skip" else np.ones(len(truth_R), dtype=bool)
    return truth_R[some], values_R[some]


def _r2(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int) -> float:
    return float(reference.r2_score(truth_R, values_R))


def _mase(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int, *, scale: np.ndarray) -> float:
    return float(np.mean(np.abs(truth_R - values_R) / scale))


def _log_mae(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int) -> float:
    return math.log(max(_mae(truth_R, values_R, n_labels), LEAST_ERROR))


def _poisson_deviance(truth_R: np.ndarray, values_R: np.ndarray, n_labels: int) -> float:
    if len(bad := np.flatnonzero(values_R <= 0)):
        raise InvalidPrediction(f"{values_R[bad[0]]:.6g} is not positive", int(bad[0]))
    return float(reference.mean_poisson_deviance(truth_R, values_R))


# ---------------------------------------------------------------- when a value exists
def check_numbers(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    if labels:
        raise UndefinedMetric("a regression metric with labels")
    if not len(truth_R) or not np.isfinite(truth_R).all():
        raise UndefinedMetric("the answers are empty or not all finite")
    check_weight(_.get("weight"))


def check_varied(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    check_numbers(truth_R, labels)
    if truth_R.min() == truth_R.max():
        raise UndefinedMetric("the answers are all equal: nothing to explain")


def _check_not_negative(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    check_numbers(truth_R, labels)
    if len(bad := np.flatnonzero(truth_R < 0)):
        raise UndefinedMetric(f"answer {truth_R[bad[0]]:.6g} in row {bad[0] + 1} is negative")


def _check_ratios(truth_R: np.ndarray, labels: Sequence[str], *, zeros: str, **_: Any) -> None:
    check_numbers(truth_R, labels)
    if zeros == "undefined" and len(bad := np.flatnonzero(truth_R == 0)):
        raise UndefinedMetric(f"the answer in row {bad[0] + 1} is 0, an error relative to it is undefined")
    if not truth_R.any():
        raise UndefinedMetric("all answers are 0")


def _check_scale(truth_R: np.ndarray, labels: Sequence[str], *, scale: np.ndarray, **_: Any) -> None:
    check_numbers(truth_R, labels)
    if len(bad := np.flatnonzero(scale <= 0)):
        raise UndefinedMetric(f"the scale in row {bad[0] + 1} is not positive")


def _positive(truth: np.ndarray, n_labels: int) -> np.ndarray:
    return np.maximum(truth, 1e-300)  # the deviance needs positive predictions; of a true 0 this is all but perfect


# ---------------------------------------------------------------- the table
_NEGATIVE = Setting("negative", "negative predictions: invalid or clip", one_of("invalid", "clip"), "invalid")
_ZEROS = Setting("zeros", "answers of 0: undefined or skip", one_of("undefined", "skip"), "undefined")


def _percent(default: bool) -> Setting:
    return Setting("percent", "true or false: percent instead of a fraction", flag, default)


def _metric(name: str, score: Any, check: Any = check_numbers, lower: bool = True, **fields: Any) -> Metric:
    fields = {"targets": SEVERAL} | fields
    return Metric(name, lower, Needs.NUMBER, mean_over_columns(score), check_columns(check), **fields)


METRICS = (
    _metric("rmse", _rmse, roles=("weight",)),
    _metric("mae", _mae, roles=("weight",)),
    _metric("wmae", _mae, roles=("weight",), required=("weight",)),
    _metric("mse", _mse),
    _metric("medae", _medae),
    _metric("rmsle", _rmsle, _check_not_negative, settings=(_NEGATIVE,)),
    _metric("mape", _mape, _check_ratios, settings=(_ZEROS, _percent(False))),
    _metric("rmspe", _rmspe, _check_ratios, settings=(_ZEROS, _percent(False))),
    _metric("smape", _smape, settings=(_percent(True),)),
    _metric("r2", _r2, check_varied, lower=False),
    _metric("mase", _mase, _check_scale, roles=("scale",), required=("scale",)),
    _metric("log_mae", _log_mae),
    _metric("poisson_deviance", _poisson_deviance, _check_not_negative, ideal=_positive),
)
