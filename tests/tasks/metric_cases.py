"""Random well-formed answers and predictions for every metric: one drawing, used by all tests of metrics.

`VARIANTS` names the settings under which each metric is drawn; `draw` gives a case. Sizes are small, so that ties,
empty cells and rare classes come up again and again among a thousand cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from mlexpert.tasks.metrics import METRICS, Answers, Metric, Needs, bind, read_answers, spell
from mlexpert.tasks.metrics.cells import Shapes, objects

WORDS = ("red", "green", "blue", "gold", "Red", "grey")
GRID = [-2.0, -1.0, 0.0, 0.5, 1.0, 2.0]


class Drawn(NamedTuple):
    """Answers and predictions as arrays."""

    truth: Any
    predictions: Any
    labels: tuple[str, ...] = ()
    beside: Mapping[str, np.ndarray] = {}


class Case(NamedTuple):
    metric: Metric  # bound
    labels: tuple[str, ...]
    answers: Answers
    predictions: Any
    targets: list[list[str]]  # the cells that the answers were read from
    beside: Mapping[str, Any]


# ---------------------------------------------------------------- labels
def names(n: int) -> tuple[str, ...]:
    return tuple(f"c{at}" for at in range(n))


def codes(rng: np.random.Generator, n_labels: int, rows: int) -> np.ndarray:
    """Every class at least once."""
    return rng.permutation(np.r_[np.arange(n_labels), rng.integers(0, n_labels, max(0, rows - n_labels))])


def classes(rng: np.random.Generator, n_labels: int | None = None) -> Drawn:
    n_labels = n_labels or int(rng.integers(2, 5))
    truth_R = codes(rng, n_labels, int(rng.integers(4, 13)))
    guess_R = rng.integers(0, n_labels, len(truth_R))
    return Drawn(truth_R, np.where(rng.random(len(truth_R)) < 0.4, truth_R, guess_R), names(n_labels))


def two_classes(rng: np.random.Generator) -> Drawn:
    return classes(rng, 2)


def scores(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Of shares: with ties, with 0 and 1."""
    return rng.integers(0, 7, rows) / 6.0 if rng.random() < 0.5 else rng.random(rows)


def scored(rng: np.random.Generator) -> Drawn:
    truth_R = codes(rng, 2, int(rng.integers(4, 13)))
    return Drawn(truth_R, scores(rng, len(truth_R)), names(2))


def weighted(rng: np.random.Generator) -> Drawn:
    case = scored(rng)
    return case._replace(beside={"weight": rng.integers(1, 4, len(case.truth)).astype(float)})


def several_scored(rng: np.random.Generator) -> Drawn:
    rows, columns = int(rng.integers(4, 10)), int(rng.integers(2, 4))
    truth_RxT = np.stack([codes(rng, 2, rows) for _ in range(columns)], axis=1)
    return Drawn(truth_RxT, np.stack([scores(rng, rows) for _ in range(columns)], axis=1), names(2))


def share_rows(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.dirichlet(np.full(columns, 0.5), rows)


def many_shares(rng: np.random.Generator) -> Drawn:
    n_labels = int(rng.integers(3, 5))
    truth_R = codes(rng, n_labels, int(rng.integers(6, 13)))
    return Drawn(truth_R, share_rows(rng, len(truth_R), n_labels), names(n_labels))


def identities(rng: np.random.Generator) -> Drawn:
    """Both classes inside and outside of two identities."""
    corners = np.array([[y, a, b] for y in (0, 1) for a in (0, 1) for b in (0, 1)])
    rows = rng.permutation(np.r_[corners, rng.integers(0, 2, (int(rng.integers(0, 9)), 3))])
    return Drawn(rows[:, 0], scores(rng, len(rows)), names(2), {"identity": rows[:, 1:].astype(float)})


def ratings(rng: np.random.Generator) -> Drawn:
    truth_R = rng.permutation(np.r_[1, 4, rng.integers(0, 5, int(rng.integers(2, 10)))]).astype(float)
    guess_R = np.clip(truth_R + rng.integers(-1, 2, len(truth_R)), 0, 4)
    return Drawn(truth_R, guess_R)


# ---------------------------------------------------------------- label sets
def label_sets(rng: np.random.Generator) -> Drawn:
    rows, n_labels = int(rng.integers(3, 9)), int(rng.integers(2, 5))
    truth = rng.random((rows, n_labels)) < 0.4
    truth[rng.integers(0, rows, n_labels), np.arange(n_labels)] = True
    guess = np.where(rng.random(truth.shape) < 0.6, truth, rng.random(truth.shape) < 0.5)
    return Drawn(sparse.csr_matrix(truth.astype(int)), sparse.csr_matrix(guess.astype(int)), names(n_labels))


def ranked_labels(rng: np.random.Generator) -> Drawn:
    rows, columns = int(rng.integers(2, 8)), int(rng.integers(2, 6))
    truth_RxT = (rng.random((rows, columns)) < 0.4).astype(np.int64)
    truth_RxT[0, 0] = 1
    return Drawn(truth_RxT, scores(rng, rows * columns).reshape(rows, columns), names(2))


# ---------------------------------------------------------------- numbers
def numbers(rng: np.random.Generator) -> Drawn:
    truth_R = rng.normal(size=int(rng.integers(3, 13))).round(int(rng.integers(0, 4)))
    truth_R[:2] = (0.25, -1.5)
    return Drawn(truth_R, truth_R + rng.normal(size=len(truth_R)).round(1))


def positives(rng: np.random.Generator) -> Drawn:
    case = numbers(rng)
    return Drawn(np.abs(case.truth) + 0.125, np.abs(case.predictions) + 0.125)


def with_zeros(rng: np.random.Generator) -> Drawn:
    case = numbers(rng)
    return case._replace(truth=np.r_[case.truth[0], np.where(rng.random(len(case.truth)) < 0.3, 0.0, case.truth)[1:]])


def several_numbers(rng: np.random.Generator) -> Drawn:
    truth_RxT = rng.normal(size=(int(rng.integers(3, 9)), int(rng.integers(2, 4))))
    return Drawn(truth_RxT, truth_RxT + rng.normal(size=truth_RxT.shape))


def several_positives(rng: np.random.Generator) -> Drawn:
    case = several_numbers(rng)
    return Drawn(np.abs(case.truth), np.abs(case.predictions))


def with_weight(rng: np.random.Generator) -> Drawn:
    case = numbers(rng)
    return case._replace(beside={"weight": rng.integers(1, 5, len(case.truth)).astype(float)})


def with_scale(rng: np.random.Generator) -> Drawn:
    case = numbers(rng)
    return case._replace(beside={"scale": rng.random(len(case.truth)) + 0.1})


def counts(rng: np.random.Generator) -> Drawn:
    truth_R = rng.integers(0, 5, int(rng.integers(3, 10))).astype(float)
    return Drawn(truth_R, rng.random(len(truth_R)) * 4 + 0.01)


def survival(rng: np.random.Generator) -> Drawn:
    rows = int(rng.integers(4, 14))
    event_R = (rng.random(rows) < 0.6).astype(float)
    event_R[0] = 1.0
    times_R = np.r_[0.5, rng.integers(1, 8, rows - 1)]
    return Drawn(times_R, rng.integers(0, 6, rows).astype(float), (), {"event": event_R})


def quantiles(rng: np.random.Generator) -> Drawn:
    truth_R = rng.normal(size=int(rng.integers(2, 9)))
    return Drawn(truth_R, rng.normal(size=(len(truth_R), 3)))


def cumulative(rng: np.random.Generator) -> Drawn:
    truth_R = rng.choice([*GRID, 0.7, 5.0], int(rng.integers(2, 9)))
    return Drawn(truth_R, np.sort(scores(rng, len(truth_R) * len(GRID)).reshape(len(truth_R), -1), axis=1))


def confident(rng: np.random.Generator) -> Drawn:
    truth_R = rng.normal(2000, 500, int(rng.integers(2, 9)))
    guess_R = truth_R + rng.choice([0.0, 100.0, -3000.0], len(truth_R))
    return Drawn(truth_R, np.stack([guess_R, rng.choice([-1.0, 50.0, 200.0], len(truth_R))], axis=1))


def votes(rng: np.random.Generator) -> Drawn:
    truth_RxC = rng.integers(0, 4, (int(rng.integers(2, 8)), 3)).astype(float)
    truth_RxC[truth_RxC.sum(axis=1) == 0, 0] = 1.0
    return Drawn(truth_RxC, share_rows(rng, len(truth_RxC), 3))


def angles(rng: np.random.Generator) -> Drawn:
    truth_Rx2 = rng.random((int(rng.integers(1, 8)), 2)) * [2 * np.pi, np.pi]
    return Drawn(truth_Rx2, rng.random(truth_Rx2.shape) * [2 * np.pi, np.pi])


def places(rng: np.random.Generator) -> Drawn:
    truth_Rx2 = rng.uniform((-80, -180), (80, 180), (int(rng.integers(1, 8)), 2))
    return Drawn(truth_Rx2, truth_Rx2 + rng.normal(size=truth_Rx2.shape))


# ---------------------------------------------------------------- lists and texts
def words(rng: np.random.Generator, least: int, most: int, repeat: bool = True) -> tuple[str, ...]:
    return tuple(rng.choice(WORDS, int(rng.integers(least, most + 1)), replace=repeat).tolist())


def lists(rng: np.random.Generator) -> Drawn:
    rows = int(rng.integers(2, 8))
    return Drawn(objects(words(rng, 1, 4) for _ in range(rows)), objects(words(rng, 0, 6) for _ in range(rows)))


def bare_lists(rng: np.random.Generator) -> Drawn:
    case = lists(rng)
    return case._replace(truth=objects([*case.truth[:-1], ()]))


def orders(rng: np.random.Generator) -> Drawn:
    truth = [words(rng, 2, 6, repeat=False) for _ in range(int(rng.integers(1, 6)))]
    return Drawn(objects(truth), objects(tuple(rng.permutation(items).tolist()) for items in truth))


def documents(rng: np.random.Generator) -> Drawn:
    group_R = rng.permutation(np.r_[0, 0, 1, 1, 2, 2, rng.integers(0, 3, int(rng.integers(0, 9)))])
    grades_R = rng.integers(0, 4, len(group_R)).astype(float)
    for query in range(3):
        grades_R[np.flatnonzero(group_R == query)[0]] = 2.0
    return Drawn(grades_R, scores(rng, len(group_R)), (), {"group": group_R})


def dull_documents(rng: np.random.Generator) -> Drawn:
    case = documents(rng)
    return case._replace(truth=np.where(case.beside["group"] == 1, 0.0, case.truth))


def texts(rng: np.random.Generator) -> Drawn:
    def text() -> str:
        return "".join(rng.choice(list("ab Bé"), int(rng.integers(0, 9))))

    truth = [text() for _ in range(int(rng.integers(2, 7)))]
    truth[0] = "ab"
    return Drawn(objects(truth), objects(each if rng.random() < 0.3 else text() for each in truth))


def accepted(rng: np.random.Generator) -> Drawn:
    truth = [words(rng, 0, 3) for _ in range(int(rng.integers(2, 7)))]
    return Drawn(objects(truth), objects(str(rng.choice([*each, "", "no"])) for each in truth))


# ---------------------------------------------------------------- masks and shapes
HEIGHT, WIDTH = 4, 5


def mask(rng: np.random.Generator, empty: float = 0.3) -> np.ndarray:
    """Runs of a random image; empty now and then."""
    pixels = rng.random(HEIGHT * WIDTH) < (0.0 if rng.random() < empty else 0.5)
    borders = np.flatnonzero(np.diff(np.r_[0, pixels, 0].astype(int)))
    return np.stack([borders[::2] + 1, borders[1::2] - borders[::2]], axis=1)


def masks(rng: np.random.Generator) -> Drawn:
    rows = int(rng.integers(2, 7))
    truth = [np.array([[2, 3]]), *(mask(rng) for _ in range(rows - 1))]
    guess = [each if rng.random() < 0.3 else mask(rng) for each in truth]
    return Drawn(objects(truth), objects(guess))


def sized_masks(rng: np.random.Generator) -> Drawn:
    case = masks(rng)
    size = {"height": np.full(len(case.truth), HEIGHT), "width": np.full(len(case.truth), WIDTH)}
    return case._replace(beside={role: array.astype(float) for role, array in size.items()})


def volumes(rng: np.random.Generator) -> Drawn:
    case = sized_masks(rng)
    rows = len(case.truth)
    stack = {"volume": np.unique(rng.integers(0, 2, rows), return_inverse=True)[1], "layer": rng.integers(0, 3, rows)}
    return case._replace(beside=case.beside | {"volume": stack["volume"], "layer": stack["layer"].astype(float)})


def boxes(rng: np.random.Generator, least: int = 0) -> Shapes:
    n = int(rng.integers(least, 5))
    corner_Nx2, side_Nx2 = rng.integers(0, 4, (n, 2)), rng.integers(1, 4, (n, 2))
    values = np.concatenate([rng.integers(1, 9, (n, 1)) / 8, corner_Nx2, corner_Nx2 + side_Nx2], axis=1)
    return Shapes(tuple(rng.choice(["cat", "dog"], n).tolist()), values)


def detections(rng: np.random.Generator) -> Drawn:
    rows = int(rng.integers(1, 5))
    return Drawn(objects(boxes(rng, 1) for _ in range(rows)), objects(boxes(rng) for _ in range(rows)))


def points(rng: np.random.Generator) -> Drawn:
    rows = int(rng.integers(1, 5))

    def some() -> Shapes:
        n = int(rng.integers(0, 6))
        return Shapes(tuple(rng.choice(["cat", "dog"], n).tolist()), rng.integers(0, 13, (n, 2)) / 2.0)

    return Drawn(objects(boxes(rng, 1) for _ in range(rows)), objects(some() for _ in range(rows)))


def cuboids(rng: np.random.Generator) -> Drawn:
    """Turned by quarters, so that their overlaps are those of boxes."""

    def some(least: int) -> Shapes:
        n = int(rng.integers(least, 4))
        centre, size = rng.integers(0, 3, (n, 3)), rng.integers(1, 4, (n, 3))
        turn = rng.integers(0, 4, (n, 1)) * np.pi / 2
        values = np.concatenate([rng.permutation(8)[:n, None] / 8, centre, size, turn], axis=1)
        return Shapes(tuple(rng.choice(["car", "bus"], n).tolist()), values)

    rows = int(rng.integers(1, 4))
    return Drawn(objects(some(1) for _ in range(rows)), objects(some(0) for _ in range(rows)))


# ---------------------------------------------------------------- what is drawn for which metric
Draw = Callable[[np.random.Generator], Drawn]
VARIANTS: Mapping[str, list[tuple[dict[str, Any], Draw]]] = {
    **{name: [({}, classes)] for name in ("accuracy", "error_rate", "balanced_accuracy", "g_mean", "mcc")},
    "macro_f1": [({}, classes), ({"absent": "seen"}, classes)],
    "f1": [({}, two_classes)],
    **{name: [({}, classes)] for name in ("micro_f1", "weighted_f1")},
    "f_beta": [({"beta": 0.5, "average": "binary"}, two_classes),
               *(({"beta": 2.0, "average": average}, classes) for average in ("macro", "micro", "weighted"))],
    "jaccard": [({"average": "binary"}, two_classes),
                *(({"average": average}, classes) for average in ("macro", "micro", "weighted"))],
    "kappa": [({"weights": weights}, classes) for weights in ("none", "linear", "quadratic")],
    "qwk": [({"low": 0, "high": 4}, ratings), ({"low": -1, "high": 6, "outside": "clip"}, ratings)],
    "logloss": [({}, scored), ({}, many_shares), ({}, several_scored), ({}, weighted)],
    "brier": [({}, scored), ({}, several_scored)],
    "auc": [({}, scored), ({}, several_scored), ({}, weighted)],
    "multiclass_auc": [({"mode": "ovr"}, many_shares), ({"mode": "ovo"}, many_shares)],
    "average_precision": [({}, scored), ({}, several_scored)],
    "weighted_auc": [({"edges": [0, 0.4, 1], "weights": [2, 1]}, scored)],
    "gini": [({}, positives)],
    "probabilistic_f": [({}, scored), ({"beta": 2.0}, scored)],
    "bias_auc": [({}, identities)],
    "top_k_accuracy": [({"k": 2}, many_shares)],
    "hamming": [({}, label_sets)],
    "subset_accuracy": [({}, label_sets)],
    "multilabel_f": [({"average": a, "beta": 1.0}, label_sets) for a in ("samples", "macro", "micro", "weighted")],
    "multilabel_jaccard": [({"average": a}, label_sets) for a in ("samples", "macro", "micro", "weighted")],
    "lrap": [({}, ranked_labels)],
    "lwlrap": [({}, ranked_labels)],
    "rmse": [({}, numbers), ({}, several_numbers), ({}, with_weight)],
    "mae": [({}, numbers), ({}, several_numbers), ({}, with_weight)],
    "wmae": [({}, with_weight)],
    "mse": [({}, numbers)],
    "medae": [({}, numbers)],
    "rmsle": [({}, positives), ({}, several_positives)],
    "mape": [({}, positives), ({"zeros": "skip", "percent": True}, with_zeros)],
    "rmspe": [({}, positives), ({"zeros": "skip", "percent": True}, with_zeros)],
    "smape": [({}, numbers), ({"percent": False}, with_zeros)],
    "r2": [({}, numbers), ({}, several_numbers)],
    "mase": [({}, with_scale)],
    "log_mae": [({}, numbers)],
    "poisson_deviance": [({}, counts)],
    "pearson": [({}, numbers), ({}, several_numbers)],
    "spearman": [({}, numbers), ({}, several_numbers)],
    "concordance": [({"predicts": "risk"}, survival), ({"predicts": "time"}, survival)],
    "pinball": [({"quantiles": [0.9]}, numbers), ({"quantiles": [0.1, 0.5, 0.9]}, quantiles)],
    "crps": [({"grid": GRID}, cumulative)],
    "laplace": [({}, confident)],
    "kl_divergence": [({}, votes)],
    "angular_error": [({}, angles)],
    "distance_quantiles": [({}, places)],
    "map_at_k": [({"k": 1}, lists), ({"k": 5}, lists), ({"k": 3, "empty": "zero"}, bare_lists),
                 ({"k": 3, "empty": "skip"}, bare_lists)],
    "recall_at_k": [({"k": 3}, lists), ({"k": 3, "empty": "zero"}, bare_lists)],
    "ndcg": [({"k": None, "gain": "linear"}, documents), ({"k": 3, "gain": "exponential"}, documents),
             ({"k": 2, "gain": "linear", "empty": "skip"}, dull_documents),
             ({"k": 2, "gain": "linear", "empty": "one"}, dull_documents)],
    "order": [({}, orders)],
    "exact_match": [({}, texts)],
    "any_of": [({}, accepted)],
    "word_jaccard": [({}, texts)],
    "levenshtein": [({}, texts), ({"per": "longer"}, texts), ({"unit": "words", "per": "truth"}, texts)],
    "dice": [({}, sized_masks), ({"average": "pixels", "shape": [HEIGHT, WIDTH]}, masks),
             ({"empty": "skip", "shape": [HEIGHT, WIDTH]}, masks)],
    "iou": [({"shape": [HEIGHT, WIDTH]}, masks), ({"average": "pixels"}, sized_masks)],
    "mask_f": [({"beta": 0.5}, sized_masks)],
    "mask_precision": [({"shape": [HEIGHT, WIDTH]}, masks)],
    "volume_overlap": [({}, volumes), ({"order": "along"}, volumes)],
    "point_f1": [({}, points)],
    "box_map": [({"curve": "coco", "thresholds": [0.4]}, detections),
                ({"curve": "voc", "thresholds": [0.3, 0.6]}, detections)],
    "cuboid_map": [({"thresholds": [0.3, 0.6]}, cuboids)],
}  # fmt: skip
EACH = [(name, at) for name, variants in VARIANTS.items() for at in range(len(variants))]


def draw(name: str, variant: int, rng: np.random.Generator) -> Case:
    """A case whose answers went through text and the metric's check."""
    settings, drawing = VARIANTS[name][variant]
    metric = bind(METRICS[name], settings)
    drawn = drawing(rng)
    targets = cells(metric.answers, drawn.truth, drawn.labels)
    beside = {role: role_cells(array) for role, array in drawn.beside.items()}
    answers = read_answers(metric, targets, drawn.labels, beside)
    return Case(metric, drawn.labels, answers, drawn.predictions, targets, beside)


def cells(kind: Needs, values: Any, labels: tuple[str, ...]) -> list[list[str]]:
    """One list of cells per column."""
    if kind is Needs.LABELS or values.ndim == 1:
        return [spell(kind, values, labels)]
    return [spell(kind, values[:, at], labels) for at in range(values.shape[1])]


def role_cells(array: np.ndarray) -> Any:
    if array.ndim == 2:
        return [role_cells(column) for column in array.T]
    return [f"g{value}" for value in array] if array.dtype.kind == "i" else [repr(v) for v in array.tolist()]
