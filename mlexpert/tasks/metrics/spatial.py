"""Directions and places.

angular_error       mean angle, in radians, between directions given as azimuth and zenith (two target columns)
distance_quantiles  metres on a sphere of radius 6,371,000 m between latitudes and longitudes in degrees (two target
                    columns): the mean of these quantiles of the distances, by default 0.5 and 0.95
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlexpert.tasks.metrics.record import Metric, Needs, Setting, UndefinedMetric, shares

RADIUS_M = 6_371_000.0


def _angular_error(truth_Rx2: np.ndarray, values_Rx2: np.ndarray, n_labels: int) -> float:
    one_Rx3, other_Rx3 = _directions(truth_Rx2), _directions(values_Rx2)
    # The arc cosine of the inner product would lose half of the digits of small angles.
    sines_R = np.linalg.norm(np.cross(one_Rx3, other_Rx3), axis=1)
    return float(np.arctan2(sines_R, (one_Rx3 * other_Rx3).sum(axis=1)).mean())


def _directions(angles_Rx2: np.ndarray) -> np.ndarray:
    azimuth_R, zenith_R = angles_Rx2.T
    return np.stack(
        [np.cos(azimuth_R) * np.sin(zenith_R), np.sin(azimuth_R) * np.sin(zenith_R), np.cos(zenith_R)], axis=1
    )


def _distance_quantiles(
    truth_Rx2: np.ndarray, values_Rx2: np.ndarray, n_labels: int, *, quantiles: Sequence[float]
) -> float:
    (latitude_R, longitude_R), (to_latitude_R, to_longitude_R) = np.radians(truth_Rx2).T, np.radians(values_Rx2).T
    # The haversine form stays exact for distances of millimetres.
    chords_R = (
        np.sin((to_latitude_R - latitude_R) / 2.0) ** 2
        + np.cos(latitude_R) * np.cos(to_latitude_R) * np.sin((to_longitude_R - longitude_R) / 2.0) ** 2
    )
    metres_R = 2.0 * RADIUS_M * np.arcsin(np.sqrt(np.clip(chords_R, 0.0, 1.0)))
    return float(np.quantile(metres_R, quantiles).mean())


def _check_pairs(truth_Rx2: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    if not len(truth_Rx2):
        raise UndefinedMetric("the answers are empty")


_QUANTILES = Setting("quantiles", "a rising list of shares between 0 and 1", shares, (0.5, 0.95))

METRICS = (
    Metric("angular_error", True, Needs.NUMBER, _angular_error, _check_pairs, targets=(2, 2)),
    Metric(
        "distance_quantiles", True, Needs.NUMBER, _distance_quantiles, _check_pairs, targets=(2, 2),
        settings=(_QUANTILES,),
    ),
)  # fmt: skip
