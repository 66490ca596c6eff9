"""Objects in images: points, boxes and cuboids with labels, matched greedily within their row and label.

    point_f1      a point is right if it lies inside a true box of its label that no earlier point took; F1 of all rows
    box_map       mean over labels that occur in the answers, and over thresholds of the overlap (iou >= threshold), of
                  the average precision: a row's detections, by falling confidence, take the free box they overlap most.
                  coco: precision, made monotone, at 101 recalls; voc: at every recall gained
    cuboid_map    the same in space with iou > threshold and the voc rule, but per row, then averaged over rows; a
                  detection that overlaps a taken cuboid most is wrong. The yaw turns in the ground plane

Labels that a row's answers do not hold are ignored by cuboid_map and, if no answer holds them, by box_map, as by the
programs that define these metrics. A label without any detection has precision 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlexpert.tasks.metrics.cells import Shapes, objects
from mlexpert.tasks.metrics.record import Metric, Needs, Setting, UndefinedMetric, one_of, shares

RECALLS = np.linspace(0.0, 1.0, 101)
LARGEST = 100  # detections of a row and label that count, the most confident first


# ---------------------------------------------------------------- points
def _point_f1(truth_R: np.ndarray, points_R: np.ndarray, n_labels: int) -> float:
    hits = sum(_hits(boxes, points) for boxes, points in zip(truth_R, points_R, strict=True))
    found = sum(len(points.labels) for points in points_R)
    there = sum(len(boxes.labels) for boxes in truth_R)
    return 2.0 * hits / (found + there)


def _hits(boxes: Shapes, points: Shapes) -> int:
    free_N = np.ones(len(points.labels), dtype=bool)
    labels_N = np.array(points.labels, dtype=object)
    for label, (_, left, top, right, bottom) in zip(boxes.labels, boxes.values, strict=True):
        x_N, y_N = points.values.T
        inside_N = free_N & (labels_N == label) & (left < x_N) & (x_N < right) & (top < y_N) & (y_N < bottom)
        if inside_N.any():
            free_N[np.argmax(inside_N)] = False
    return int((~free_N).sum())


# ---------------------------------------------------------------- average precision
def _box_map(
    truth_R: np.ndarray, boxes_R: np.ndarray, n_labels: int, *, thresholds: Sequence[float], curve: str
) -> float:
    labels = sorted({label for boxes in truth_R for label in boxes.labels})
    means = [_label_ap(truth_R, boxes_R, label, least, curve) for label in labels for least in thresholds]
    return float(np.mean(means))


def _label_ap(truth_R: np.ndarray, boxes_R: np.ndarray, label: str, least: float, curve: str) -> float:
    confidences, hits, there = [], [], 0
    for truth, boxes in zip(truth_R, boxes_R, strict=True):
        true_N, found_M = _of(truth, label), _by_confidence(_of(boxes, label))[:LARGEST]
        there += len(true_N)
        confidences.append(found_M[:, 0])
        hits.append(_match_free(_box_overlaps(found_M, true_N), least))
    order = np.argsort(-np.concatenate(confidences), kind="stable")
    return _average_precision(np.concatenate(hits)[order], there, curve)


def _of(shapes: Shapes, label: str) -> np.ndarray:
    return shapes.values[[at for at, name in enumerate(shapes.labels) if name == label]]


def _by_confidence(values_MxF: np.ndarray) -> np.ndarray:
    return values_MxF[np.argsort(-values_MxF[:, 0], kind="stable")]


def _average_precision(hits_M: np.ndarray, there: int, curve: str) -> float:
    recalls_M = np.cumsum(hits_M) / there
    precisions_M = np.cumsum(hits_M) / np.arange(1, len(hits_M) + 1)
    best_M = np.maximum.accumulate(precisions_M[::-1])[::-1]
    if curve == "voc":
        return float((np.diff(recalls_M, prepend=0.0) * best_M).sum())
    at_G = np.searchsorted(recalls_M, RECALLS, side="left")
    return float(np.mean(np.append(best_M, 0.0)[at_G]))


def _match_free(overlaps_MxN: np.ndarray, least: float) -> np.ndarray:
    """Which detections, the most confident first, take a free box that overlaps enough."""
    free_N = np.ones(overlaps_MxN.shape[1], dtype=bool)
    hits_M = np.zeros(len(overlaps_MxN), dtype=bool)
    for at, overlaps_N in enumerate(overlaps_MxN):
        open_N = np.where(free_N, overlaps_N, -1.0)
        if len(open_N) and open_N.max() >= least:
            # Of equal overlaps the last one, as in the COCO program.
            free_N[len(open_N) - 1 - int(np.argmax(open_N[::-1]))] = False
            hits_M[at] = True
    return hits_M


def _box_overlaps(found_Mx5: np.ndarray, true_Nx5: np.ndarray) -> np.ndarray:
    found_Mx1x4, true_1xNx4 = found_Mx5[:, None, 1:], true_Nx5[None, :, 1:]
    sides = np.minimum(found_Mx1x4[..., 2:], true_1xNx4[..., 2:]) - np.maximum(
        found_Mx1x4[..., :2], true_1xNx4[..., :2]
    )
    both = np.maximum(sides, 0.0).prod(axis=-1)
    area = [(boxes[..., 2:] - boxes[..., :2]).prod(axis=-1) for boxes in (found_Mx1x4, true_1xNx4)]
    union = area[0] + area[1] - both
    return np.where(union > 0.0, both / np.where(union > 0.0, union, 1.0), 0.0)


# ---------------------------------------------------------------- cuboids
def _cuboid_map(truth_R: np.ndarray, cuboids_R: np.ndarray, n_labels: int, *, thresholds: Sequence[float]) -> float:
    rows = [_row_ap(truth, found, thresholds) for truth, found in zip(truth_R, cuboids_R, strict=True)]
    return float(np.mean(rows))


def _row_ap(truth: Shapes, cuboids: Shapes, thresholds: Sequence[float]) -> float:
    scores = []
    for label in sorted(set(truth.labels)):
        true_Nx8, found_Mx8 = _of(truth, label), _by_confidence(_of(cuboids, label))
        overlaps_MxN = np.array([[_cuboid_overlap(one, other) for other in true_Nx8] for one in found_Mx8])
        for least in thresholds:
            hits_M = _match_first(overlaps_MxN.reshape(-1, len(true_Nx8)), least)
            scores.append(_average_precision(hits_M, len(true_Nx8), "voc"))
    return float(np.mean(scores))


def _match_first(overlaps_MxN: np.ndarray, least: float) -> np.ndarray:
    """Which detections overlap their best cuboid enough, and are the first to do so."""
    best_M = overlaps_MxN.argmax(axis=1)
    enough_M = overlaps_MxN.max(axis=1) > least if len(overlaps_MxN) else np.zeros(0, dtype=bool)
    hits_M, taken = np.zeros(len(best_M), dtype=bool), set()
    for at in np.flatnonzero(enough_M):
        hits_M[at] = best_M[at] not in taken
        taken.add(int(best_M[at]))
    return hits_M


def _cuboid_overlap(one_8: np.ndarray, other_8: np.ndarray) -> float:
    height = min(one_8[3] + one_8[6] / 2, other_8[3] + other_8[6] / 2) - max(
        one_8[3] - one_8[6] / 2, other_8[3] - other_8[6] / 2
    )
    if height <= 0.0:
        return 0.0
    both = height * _area(_clip(_ground(one_8), _ground(other_8)))
    return both / (one_8[4:7].prod() + other_8[4:7].prod() - both)


def _ground(cuboid_8: np.ndarray) -> np.ndarray:
    """Corners of the base, counter-clockwise; the length lies along the direction of the yaw."""
    _, x, y, _, width, length, _, yaw = cuboid_8
    along, across = np.array([math.cos(yaw), math.sin(yaw)]), np.array([-math.sin(yaw), math.cos(yaw)])
    signs = ((1, -1), (1, 1), (-1, 1), (-1, -1))
    return np.array([[x, y] + a * along * length / 2 + b * across * width / 2 for a, b in signs])


def _clip(subject_Nx2: np.ndarray, window_Mx2: np.ndarray) -> np.ndarray:
    """The part of a convex polygon inside another, both counter-clockwise (Sutherland and Hodgman)."""
    for start, end in zip(window_Mx2, np.roll(window_Mx2, -1, axis=0), strict=True):
        if not len(subject_Nx2):
            break
        edge = end - start
        sides_N = edge[0] * (subject_Nx2[:, 1] - start[1]) - edge[1] * (subject_Nx2[:, 0] - start[0])
        kept = []
        for at, side in enumerate(sides_N):
            before = sides_N[at - 1]
            if (side >= 0.0) != (before >= 0.0):
                share = before / (before - side)
                kept.append(subject_Nx2[at - 1] + share * (subject_Nx2[at] - subject_Nx2[at - 1]))
            if side >= 0.0:
                kept.append(subject_Nx2[at])
        subject_Nx2 = np.array(kept).reshape(-1, 2)
    return subject_Nx2


def _area(polygon_Nx2: np.ndarray) -> float:
    x_N, y_N = polygon_Nx2.T
    return abs(float((x_N * np.roll(y_N, -1) - y_N * np.roll(x_N, -1)).sum())) / 2.0


# ---------------------------------------------------------------- when a value exists, and the best predictions
def _check_some(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    if not any(shapes.labels for shapes in truth_R):
        raise UndefinedMetric("the answers hold no object")


def _check_each(truth_R: np.ndarray, labels: Sequence[str], **_: Any) -> None:
    if bare := [row for row, shapes in enumerate(truth_R) if not shapes.labels]:
        raise UndefinedMetric(f"the answer in row {bare[0] + 1} holds no object; leave the row out with keep")
    _check_some(truth_R, labels)


def _sure(truth_R: np.ndarray, n_labels: int, **_: Any) -> np.ndarray:
    return _replaced(truth_R, lambda values: np.concatenate([np.ones((len(values), 1)), values[:, 1:]], axis=1))


def _centres(truth_R: np.ndarray, n_labels: int) -> np.ndarray:
    return _replaced(truth_R, lambda values: (values[:, 1:3] + values[:, 3:5]) / 2.0)


def _replaced(truth_R: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return objects(Shapes(shapes.labels, change(shapes.values)) for shapes in truth_R)


_STEPS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
_THRESHOLDS = Setting("thresholds", "a rising list of shares between 0 and 1", shares, _STEPS)
_CURVE = Setting("curve", "coco or voc", one_of("coco", "voc"))

METRICS = (
    Metric("point_f1", False, Needs.POINTS, _point_f1, _check_some, truth=Needs.BOXES, ideal=_centres),
    Metric("box_map", False, Needs.BOXES, _box_map, _check_some, settings=(_THRESHOLDS, _CURVE), ideal=_sure),
    Metric("cuboid_map", False, Needs.CUBOIDS, _cuboid_map, _check_each, settings=(_THRESHOLDS,), ideal=_sure),
)
