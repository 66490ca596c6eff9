"""Masks as run-length encodings, one per row, compared by areas of runs: no image is ever unpacked.

    dice, iou        2 |A and B| / (|A| + |B|), |A and B| / |A or B|; the mean over rows (rows), or once over the pixels
                     of all rows (pixels). A row that is empty in truth and prediction counts 1, or is left out (skip)
    mask_f           F beta of the pixels, in the same way
    mask_precision   mean over rows and thresholds of [iou > threshold]; a row empty in both counts 1
    volume_overlap   dice of rows (those empty in both are left out) and 1 - Hausdorff distance of volumes, weighted.
                     Rows of one layer of a volume are joined, layers stacked, axes scaled to [0, 1] and distances
                     divided by sqrt(3). A volume empty in both is left out; empty in one, or predicted more than
                     ten times too large, has distance 1

An empty mask against one that is not counts 0. Runs count pixels down the columns first (as Kaggle does) or along the
rows; areas do not depend on it. A run past the end of its image is an invalid prediction: the size is a setting, or
given by row beside the answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import directed_hausdorff

from mlexpert.tasks.metrics.record import (
    InvalidPrediction,
    Metric,
    Needs,
    Setting,
    UndefinedMetric,
    at_least_one,
    one_of,
    positive,
    shares,
)

TOO_LARGE = 10


class Areas(NamedTuple):
    """Pixels in truth, in the prediction and in both, per row."""

    truth_R: np.ndarray
    predicted_R: np.ndarray
    both_R: np.ndarray


# ---------------------------------------------------------------- areas
def _areas(truth_R: np.ndarray, runs_R: np.ndarray, sizes_R: np.ndarray) -> Areas:
    for row, (runs_Nx2, size) in enumerate(zip(runs_R, sizes_R, strict=True)):
        if len(runs_Nx2) and runs_Nx2[-1].sum() - 1 > size:
            raise InvalidPrediction("a run ends beyond the image", row)
    both_R = [_shared(truth, runs) for truth, runs in zip(truth_R, runs_R, strict=True)]
    area = [[int(runs_Nx2[:, 1].sum()) for runs_Nx2 in column] for column in (truth_R, runs_R)]
    return Areas(np.array(area[0], dtype=float), np.array(area[1], dtype=float), np.array(both_R, dtype=float))


def _shared(one_Nx2: np.ndarray, other_Mx2: np.ndarray) -> int:
    """Pixels in both: what the other covers up to each run's end, less what it covers up to its start."""
    if not len(one_Nx2) or not len(other_Mx2):
        return 0
    return int((_covered(other_Mx2, one_Nx2.sum(axis=1)) - _covered(other_Mx2, one_Nx2[:, 0])).sum())


def _covered(runs_Mx2: np.ndarray, before_N: np.ndarray) -> np.ndarray:
    """How many of the runs' pixels have a number below each of these."""
    whole_M = np.concatenate([[0], np.cumsum(runs_Mx2[:, 1])])
    begun_N = np.searchsorted(runs_Mx2[:, 0], before_N)
    last_N = np.maximum(begun_N - 1, 0)
    beyond_N = np.maximum(runs_Mx2[last_N].sum(axis=1) - before_N, 0)
    return np.where(begun_N > 0, whole_M[begun_N] - beyond_N, 0)


def _sizes(n_rows: int, shape: Sequence[int] | None, height: Any, width: Any) -> np.ndarray:
    if height is not None and width is not None:
        return height * width
    return np.full(n_rows, float(math.prod(shape or ())))


# ---------------------------------------------------------------- values
def _f(areas: Areas, beta: float, average: str, empty: str) -> float:
    """F beta; 1 is dice."""
    got_R = (1.0 + beta**2) * areas.both_R
    of_R = beta**2 * areas.truth_R + areas.predicted_R
    return _mean(got_R, of_R, average, empty)


def _mean(got_R: np.ndarray, of_R: np.ndarray, average: str, empty: str) -> float:
    if average == "pixels":
        return float(got_R.sum() / of_R.sum())
    some = of_R > 0
    values_R = np.where(some, got_R / np.where(some, of_R, 1.0), 1.0)
    return float(values_R[some].mean() if empty == "skip" else values_R.mean())


def _mask_f(
    truth_R: Any, runs_R: Any, n_labels: int, *, beta: float, average: str, empty: str, shape: Any,
    height: Any = None, width: Any = None,
) -> float:  # fmt: skip
    return _f(_areas(truth_R, runs_R, _sizes(len(truth_R), shape, height, width)), beta, average, empty)


def _dice(truth_R: Any, runs_R: Any, n_labels: int, **keywords: Any) -> float:
    return _mask_f(truth_R, runs_R, n_labels, beta=1.0, **keywords)


def _iou(
    truth_R: Any, runs_R: Any, n_labels: int, *, average: str, empty: str, shape: Any,
    height: Any = None, width: Any = None,
) -> float:  # fmt: skip
    areas = _areas(truth_R, runs_R, _sizes(len(truth_R), shape, height, width))
    return _mean(areas.both_R, areas.truth_R + areas.predicted_R - areas.both_R, average, empty)


def _mask_precision(
    truth_R: Any, runs_R: Any, n_labels: int, *, thresholds: Sequence[float], shape: Any,
    height: Any = None, width: Any = None,
) -> float:  # fmt: skip
    areas = _areas(truth_R, runs_R, _sizes(len(truth_R), shape, height, width))
    union_R = areas.truth_R + areas.predicted_R - areas.both_R
    iou_R = np.where(union_R > 0, areas.both_R / np.maximum(union_R, 1.0), 1.0)
    return float((iou_R[:, None] > np.asarray(thresholds)[None, :]).mean())


# ---------------------------------------------------------------- volumes
def _volume_overlap(
    truth_R: Any, runs_R: Any, n_labels: int, *, dice_weight: float, order: str,
    height: np.ndarray, width: np.ndarray, volume: np.ndarray, layer: np.ndarray,
) -> float:  # fmt: skip
    dice = _f(_areas(truth_R, runs_R, height * width), 1.0, "rows", "skip")
    distances = []
    for code in np.unique(volume):
        rows_G = np.flatnonzero(volume == code)
        layers, at_G = np.unique(layer[rows_G], return_inverse=True)
        shape = (len(layers), int(height[rows_G[0]]), int(width[rows_G[0]]))
        true_Nx3, found_Mx3 = (_points(masks[rows_G], at_G, shape, order) for masks in (truth_R, runs_R))
        if len(true_Nx3) or len(found_Mx3):
            distances.append(_hausdorff(true_Nx3, found_Mx3, shape))
    return dice_weight * dice + (1.0 - dice_weight) * (1.0 - float(np.mean(distances)))


def _points(runs_G: np.ndarray, at_G: np.ndarray, shape: tuple[int, int, int], order: str) -> np.ndarray:
    """Distinct (layer, row, column) of all pixels."""
    found = [np.zeros((0, 3), dtype=np.int64)]
    for runs_Nx2, at in zip(runs_G, at_G, strict=True):
        pixels = [np.arange(start - 1, start - 1 + length) for start, length in runs_Nx2]
        flat_P = np.concatenate(pixels) if pixels else np.zeros(0, dtype=np.int64)
        rows_P, columns_P = (flat_P % shape[1], flat_P // shape[1]) if order == "down" else divmod(flat_P, shape[2])
        found.append(np.stack([np.full(len(flat_P), at), rows_P, columns_P], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def _hausdorff(truth_Nx3: np.ndarray, points_Mx3: np.ndarray, shape: tuple[int, int, int]) -> float:
    if not len(truth_Nx3) or not len(points_Mx3) or len(points_Mx3) > TOO_LARGE * len(truth_Nx3):
        return 1.0
    one, other = truth_Nx3 / shape, points_Mx3 / shape
    return max(directed_hausdorff(one, other)[0], directed_hausdorff(other, one)[0]) / math.sqrt(3.0)


# ---------------------------------------------------------------- when a value exists
def _check_masks(
    truth_R: np.ndarray, labels: Sequence[str], *, shape: Any = None, height: Any = None, width: Any = None,
    average: str = "rows", empty: str = "one", **_: Any,
) -> None:  # fmt: skip
    if not len(truth_R):
        raise UndefinedMetric("the answers are empty")
    if shape is None and (height is None or width is None):
        raise UndefinedMetric("the size of the images is needed: as the setting shape, or beside the answers")
    try:
        _areas(truth_R, truth_R, _sizes(len(truth_R), shape, height, width))
    except InvalidPrediction as error:
        raise UndefinedMetric(f"answer in {error}") from error
    if (average == "pixels" or empty == "skip") and not any(len(runs_Nx2) for runs_Nx2 in truth_R):
        raise UndefinedMetric("no answer holds a pixel")


def _check_volumes(truth_R: np.ndarray, labels: Sequence[str], *, volume: np.ndarray, **beside: Any) -> None:
    _check_masks(truth_R, labels, empty="skip", height=beside["height"], width=beside["width"])
    for code in np.unique(volume):
        sizes = {(beside["height"][row], beside["width"][row]) for row in np.flatnonzero(volume == code)}
        if len(sizes) > 1:
            raise UndefinedMetric("the images of a volume differ in size")


# ---------------------------------------------------------------- the table
def _size(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple) and len(value) == 2 and all(map(at_least_one, value)))


_SHAPE = Setting("shape", "[height, width] of every image, or null if the answers tell it", _size, None)
_AVERAGE = Setting("average", "rows or pixels", one_of("rows", "pixels"), "rows")
_EMPTY = Setting("empty", "rows empty in both: one or skip", one_of("one", "skip"), "one")
_BETA = Setting("beta", "a positive weight of recall", positive, 1.0)
_STEPS = Setting("thresholds", "a rising list of shares between 0 and 1", shares,
                 (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95))  # fmt: skip
_VOLUMES = (
    Setting("dice_weight", "a share between 0 and 1", lambda value: positive(value) and value < 1, 0.4),
    Setting("order", "down (the columns first) or along (the rows first)", one_of("down", "along"), "down"),
)
_SIZE = ("height", "width")

METRICS = (
    Metric("dice", False, Needs.RUNS, _dice, _check_masks, settings=(_AVERAGE, _EMPTY, _SHAPE), roles=_SIZE),
    Metric("iou", False, Needs.RUNS, _iou, _check_masks, settings=(_AVERAGE, _EMPTY, _SHAPE), roles=_SIZE),
    Metric("mask_f", False, Needs.RUNS, _mask_f, _check_masks, settings=(_BETA, _AVERAGE, _EMPTY, _SHAPE), roles=_SIZE),
    Metric("mask_precision", False, Needs.RUNS, _mask_precision, _check_masks, settings=(_STEPS, _SHAPE), roles=_SIZE),
    Metric(
        "volume_overlap", False, Needs.RUNS, _volume_overlap, _check_volumes, settings=_VOLUMES,
        roles=(*_SIZE, "volume", "layer"), required=(*_SIZE, "volume", "layer"),
    ),
)  # fmt: skip
