"""Every metric once more, as slowly and plainly as its definition reads; the oracle of the parity tests.

Arguments: truth, predictions (arrays as `metric_cases` draws them), number of labels, settings and columns beside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from metric_cases import HEIGHT, WIDTH
from scipy.stats import rankdata


def mean(values: Any) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def columns(score: Callable[..., float]) -> Callable[..., float]:
    def each(truth: np.ndarray, guess: np.ndarray, n: int, **keywords: Any) -> float:
        if truth.ndim == 1:
            return score(truth, guess, n, **keywords)
        return mean(score(truth[:, at], guess[:, at], n, **keywords) for at in range(truth.shape[1]))

    return each


# ---------------------------------------------------------------- labels
def confusion(truth: Any, guess: Any, label: int) -> tuple[int, int, int]:
    """Hits, false alarms and misses of one label."""
    pairs = list(zip(truth, guess, strict=True))
    return (
        sum(t == label and g == label for t, g in pairs),
        sum(t != label and g == label for t, g in pairs),
        sum(t == label and g != label for t, g in pairs),
    )


def accuracy(truth: Any, guess: Any, n: int) -> float:
    return mean(t == g for t, g in zip(truth, guess, strict=True))


def recalls(truth: Any, guess: Any, n: int) -> list[float]:
    return [hits / (hits + misses) for hits, _, misses in (confusion(truth, guess, label) for label in range(n))]


def averaged(value: Callable[[int, int, int], float], parts: Sequence[tuple[int, int, int]], average: str) -> float:
    if average == "binary":
        return value(*parts[1])
    if average == "macro":
        return mean(value(*part) for part in parts)
    if average == "micro":
        return value(*(sum(column) for column in zip(*parts, strict=True)))
    supports = [hits + misses for hits, _, misses in parts]
    return sum(value(*part) * support for part, support in zip(parts, supports, strict=True)) / sum(supports)


def f_of(beta: float, empty: float = 0.0) -> Callable[[int, int, int], float]:
    def value(hits: int, alarms: int, misses: int) -> float:
        whole = (1 + beta**2) * hits + beta**2 * misses + alarms
        return (1 + beta**2) * hits / whole if whole else empty

    return value


def jaccard_of(hits: int, alarms: int, misses: int, empty: float = 0.0) -> float:
    return hits / (hits + alarms + misses) if hits + alarms + misses else empty


def f_beta(truth: Any, guess: Any, n: int, *, beta: float, average: str) -> float:
    return averaged(f_of(beta), [confusion(truth, guess, label) for label in range(n)], average)


def macro_f1(truth: Any, guess: Any, n: int, *, absent: str) -> float:
    parts = [confusion(truth, guess, label) for label in range(n)]
    return averaged(f_of(1), [part for part in parts if any(part) or absent == "undefined"], "macro")


def jaccard(truth: Any, guess: Any, n: int, *, average: str) -> float:
    return averaged(jaccard_of, [confusion(truth, guess, label) for label in range(n)], average)


def kappa(truth: Any, guess: Any, n: int, *, weights: str) -> float:
    power = {"none": 0, "linear": 1, "quadratic": 2}[weights]
    cost = [[float(abs(a - b) ** power if a != b else 0) for b in range(n)] for a in range(n)]
    seen = sum(cost[t][g] for t, g in zip(truth, guess, strict=True)) / len(truth)
    chance = mean(cost[t][g] for t, g in itertools.product(truth, guess))
    return 1 - seen / chance


def qwk(truth: Any, guess: Any, n: int, *, low: int, high: int, outside: str) -> float:
    return kappa((truth - low).astype(int), (guess - low).astype(int), high - low + 1, weights="quadratic")


def mcc(truth: Any, guess: Any, n: int) -> float:
    """Correlation of the indicator vectors, pooled over labels."""
    t, g = np.eye(n)[truth], np.eye(n)[guess]
    t, g = t - t.mean(axis=0), g - g.mean(axis=0)
    scale = math.sqrt((t * t).sum() * (g * g).sum())
    return float((t * g).sum()) / scale if scale > 1e-12 else 0.0


# ---------------------------------------------------------------- probabilities
def logloss(truth: Any, guess: Any, n: int, *, weight: Any = None) -> float:
    weight = np.ones(len(truth)) if weight is None else weight
    rows = guess if guess.ndim == 2 else np.stack([1 - guess, guess], axis=1)
    losses = [-math.log(min(max(row[t], 1e-15), 1 - 1e-15)) for row, t in zip(rows, truth, strict=True)]
    return sum(loss * w for loss, w in zip(losses, weight, strict=True)) / sum(weight)


def auc(truth: Any, guess: Any, n: int = 2, *, weight: Any = None) -> float:
    weight = np.ones(len(truth)) if weight is None else weight
    up, down = np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)
    pairs = [(weight[i] * weight[j], (guess[i] > guess[j]) + 0.5 * (guess[i] == guess[j])) for i in up for j in down]
    return sum(w * value for w, value in pairs) / sum(w for w, _ in pairs)


def average_precision(truth: Any, guess: Any, n: int = 2) -> float:
    total, hits = 0.0, int((truth == 1).sum())
    for level in np.unique(guess):
        chosen = guess >= level
        total += ((guess == level) & (truth == 1)).sum() / hits * ((truth == 1) & chosen).sum() / chosen.sum()
    return float(total)


def multiclass_auc(truth: Any, guess: Any, n: int, *, mode: str) -> float:
    if mode == "ovr":
        return mean(auc((truth == label).astype(int), guess[:, label]) for label in range(n))
    parts = []
    for a, b in itertools.permutations(range(n), 2):
        rows = (truth == a) | (truth == b)
        parts.append(auc((truth[rows] == a).astype(int), guess[rows, a]))
    return mean(parts)


def weighted_auc(truth: Any, guess: Any, n: int, *, edges: Any, weights: Any) -> float:
    """Area above and right of each segment of the curve, cut at the edges."""
    levels = sorted(set(guess.tolist()), reverse=True)
    curve = [(0.0, 0.0)] + [(mean(guess[truth == 0] >= level), mean(guess[truth == 1] >= level)) for level in levels]
    total = 0.0
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        for low, high, weight in zip(edges, edges[1:], weights, strict=False):
            bottom, top = max(y0, low), min(y1, high)
            if top > bottom:
                x_middle = x0 + (x1 - x0) * ((bottom + top) / 2 - y0) / (y1 - y0)
                total += weight * (top - bottom) * (1 - x_middle)
    return total / sum(w * (b - a) for a, b, w in zip(edges, edges[1:], weights, strict=False))


def gini(truth: Any, guess: Any, n: int) -> float:
    def lift(by: Any) -> float:
        return float((truth * (len(truth) + 1 - rankdata(-by))).sum() / truth.sum() - (len(truth) + 1) / 2)

    return lift(guess) / lift(truth)


def probabilistic_f(truth: Any, guess: Any, n: int, *, beta: float) -> float:
    hits, mass = sum(guess[truth == 1]), sum(guess)
    if not hits:
        return 0.0
    precision, recall = hits / mass, hits / sum(truth == 1)
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def bias_auc(truth: Any, guess: Any, n: int, *, identity: Any, power: float, overall: float) -> float:
    def rows_of(kind: str, inside: Any) -> Any:
        if kind == "subgroup":
            return inside == 1
        inner = 0 if kind == "background positive" else 1
        return ((truth == inner) & (inside == 1)) | ((truth == 1 - inner) & (inside == 0))

    total = overall * auc(truth, guess)
    for kind in ("subgroup", "background positive", "background negative"):
        aucs = [auc(truth[rows_of(kind, column)], guess[rows_of(kind, column)]) for column in identity.T]
        power_mean = 0.0 if min(aucs) == 0 else mean(value**power for value in aucs) ** (1 / power)
        total += (1 - overall) / 3 * power_mean
    return total


def top_k_accuracy(truth: Any, guess: Any, n: int, *, k: int) -> float:
    return mean(t in sorted(range(n), key=lambda label: -row[label])[:k] for t, row in zip(truth, guess, strict=True))


# ---------------------------------------------------------------- label sets
def sets(matrix: Any) -> list[set[int]]:
    return [set(np.flatnonzero(row).tolist()) for row in matrix.toarray()]


def set_counts(truth: Any, guess: Any, average: str) -> list[tuple[int, int, int]]:
    if average == "samples":
        return [(len(t & g), len(g - t), len(t - g)) for t, g in zip(sets(truth), sets(guess), strict=True)]
    return [confusion(truth.toarray()[:, at], guess.toarray()[:, at], 1) for at in range(truth.shape[1])]


def multilabel_f(truth: Any, guess: Any, n: int, *, beta: float, average: str) -> float:
    if average == "samples":
        return mean(f_of(beta, empty=1.0)(*part) for part in set_counts(truth, guess, average))
    return averaged(f_of(beta), set_counts(truth, guess, average), average)


def multilabel_jaccard(truth: Any, guess: Any, n: int, *, average: str) -> float:
    if average == "samples":
        return mean(jaccard_of(*part, empty=1.0) for part in set_counts(truth, guess, average))
    return averaged(jaccard_of, set_counts(truth, guess, average), average)


def label_precisions(truth: Any, guess: Any) -> list[list[float]]:
    """Per row, the precision at the rank of each true label; equal scores take the worst rank."""
    rows = []
    for t, g in zip(truth, guess, strict=True):
        own = np.flatnonzero(t)
        rows.append([sum(g[j] >= g[i] for j in own) / sum(g >= g[i]) for i in own])
    return rows


def lrap(truth: Any, guess: Any, n: int) -> float:
    return mean(mean(row) if row else 1.0 for row in label_precisions(truth, guess))


def lwlrap(truth: Any, guess: Any, n: int) -> float:
    return mean(value for row in label_precisions(truth, guess) for value in row)


# ---------------------------------------------------------------- numbers
def over_rows(loss: Callable[[float, float], float]) -> Callable[..., float]:
    def score(truth: Any, guess: Any, n: int, *, weight: Any = None) -> float:
        weight = np.ones(len(truth)) if weight is None else weight
        parts = [w * loss(t, g) for t, g, w in zip(truth, guess, weight, strict=True)]
        return math.fsum(parts) / math.fsum(weight)

    return score


squared, absolute = over_rows(lambda t, g: (t - g) ** 2), over_rows(lambda t, g: abs(t - g))


def rmse(truth: Any, guess: Any, n: int, **weight: Any) -> float:
    return math.sqrt(squared(truth, guess, n, **weight))


def rmsle(truth: Any, guess: Any, n: int, *, negative: str) -> float:
    return math.sqrt(mean((math.log(1 + t) - math.log(1 + g)) ** 2 for t, g in zip(truth, guess, strict=True)))


def relative(power: int) -> Callable[..., float]:
    def score(truth: Any, guess: Any, n: int, *, zeros: str, percent: bool) -> float:
        parts = [abs((t - g) / t) ** power for t, g in zip(truth, guess, strict=True) if t or zeros != "skip"]
        return (100 if percent else 1) * mean(parts) ** (1 / power)

    return score


def smape(truth: Any, guess: Any, n: int, *, percent: bool) -> float:
    pairs = zip(truth, guess, strict=True)
    return (100 if percent else 1) * mean(2 * abs(t - g) / (abs(t) + abs(g)) if t or g else 0.0 for t, g in pairs)


def r2(truth: Any, guess: Any, n: int) -> float:
    return 1 - squared(truth, guess, n) / squared(truth, np.full(len(truth), mean(truth)), n)


def medae(truth: Any, guess: Any, n: int) -> float:
    errors = sorted(abs(truth - guess))
    return (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2


def mase(truth: Any, guess: Any, n: int, *, scale: Any) -> float:
    return mean(abs(t - g) / s for t, g, s in zip(truth, guess, scale, strict=True))


def log_mae(truth: Any, guess: Any, n: int) -> float:
    return math.log(max(1e-9, absolute(truth, guess, n)))


def poisson_deviance(truth: Any, guess: Any, n: int) -> float:
    return mean(2 * ((t * math.log(t / g) if t else 0) - t + g) for t, g in zip(truth, guess, strict=True))


def pearson(truth: Any, guess: Any, n: int) -> float:
    t, g = truth - mean(truth), guess - mean(guess)
    return 0.0 if (guess == guess[0]).all() else float((t * g).sum() / math.sqrt((t * t).sum() * (g * g).sum()))


def spearman(truth: Any, guess: Any, n: int) -> float:
    def ranks(values: Any) -> np.ndarray:
        return np.array([sum(values < v) + (sum(values == v) + 1) / 2 for v in values])

    return pearson(ranks(truth), ranks(guess), n)


def concordance(truth: Any, guess: Any, n: int, *, predicts: str, event: Any) -> float:
    guess = guess if predicts == "time" else -guess
    pairs = [
        (guess[i] < guess[j]) + 0.5 * (guess[i] == guess[j])
        for i, j in itertools.permutations(range(len(truth)), 2)
        if event[i] and (truth[i] < truth[j] or (truth[i] == truth[j] and not event[j]))
    ]
    return mean(pairs)


def pinball(truth: Any, guess: Any, n: int, *, quantiles: Any) -> float:
    rows = guess.reshape(len(truth), -1)
    return mean(
        max(q * (t - g), (q - 1) * (t - g))
        for t, row in zip(truth, rows, strict=True)
        for q, g in zip(quantiles, row, strict=True)
    )


def crps(truth: Any, guess: Any, n: int, *, grid: Any) -> float:
    return mean(
        (share - (t <= point)) ** 2
        for t, row in zip(truth, guess, strict=True)
        for point, share in zip(grid, row, strict=True)
    )


def laplace(truth: Any, guess: Any, n: int, *, floor: float, cap: float) -> float:
    def row(t: float, value: float, spread: float) -> float:
        spread, error = max(spread, floor), min(abs(t - value), cap)
        return -math.sqrt(2) * error / spread - math.log(math.sqrt(2) * spread)

    return mean(row(t, *g) for t, g in zip(truth, guess, strict=True))


def kl_divergence(truth: Any, guess: Any, n: int) -> float:
    def row(t: Any, g: Any) -> float:
        pairs = zip(t / sum(t), np.clip(g, 1e-15, 1 - 1e-15), strict=True)
        return sum(a * math.log(a / b) for a, b in pairs if a)

    return mean(row(t, g) for t, g in zip(truth, guess, strict=True))


def sphere(first: float, second: float) -> np.ndarray:
    """The unit vector at an angle around the pole and one from it."""
    return np.array([math.cos(first) * math.sin(second), math.sin(first) * math.sin(second), math.cos(second)])


def between(one: np.ndarray, other: np.ndarray) -> float:
    return math.atan2(float(np.linalg.norm(np.cross(one, other))), float(one @ other))


def angular_error(truth: Any, guess: Any, n: int) -> float:
    return mean(between(sphere(*t), sphere(*g)) for t, g in zip(truth, guess, strict=True))


def distance_quantiles(truth: Any, guess: Any, n: int, *, quantiles: Any) -> float:
    def place(latitude: float, longitude: float) -> np.ndarray:
        return sphere(math.radians(longitude), math.pi / 2 - math.radians(latitude))

    metres = sorted(6_371_000 * between(place(*t), place(*g)) for t, g in zip(truth, guess, strict=True))

    def quantile(share: float) -> float:
        at = share * (len(metres) - 1)
        low = math.floor(at)
        return metres[low] + (at - low) * (metres[min(low + 1, len(metres) - 1)] - metres[low])

    return mean(quantile(share) for share in quantiles)


# ---------------------------------------------------------------- lists and texts
def map_at_k(truth: Any, guess: Any, n: int, *, k: int, empty: str) -> float:
    def row(wanted: set[str], items: Sequence[str]) -> float:
        distinct = [item if item not in items[:at] else None for at, item in enumerate(items[:k])]
        hits = [item in wanted for item in distinct]
        return sum(hit * mean(hits[: at + 1]) for at, hit in enumerate(hits)) / min(k, len(wanted)) if wanted else 0.0

    rows = [(set(t), g) for t, g in zip(truth, guess, strict=True) if t or empty == "zero"]
    return mean(row(*each) for each in rows)


def recall_at_k(truth: Any, guess: Any, n: int, *, k: int, empty: str) -> float:
    rows = [(set(t), set(g[:k])) for t, g in zip(truth, guess, strict=True) if t or empty == "zero"]
    return mean(len(t & g) / min(k, len(t)) if t else 0.0 for t, g in rows)


def dcg(gains: Any, by: Any, k: int | None) -> float:
    """Each document with the mean discount of the ranks that documents of its score share."""

    def discount(rank: int) -> float:
        return 1 / math.log2(1 + rank) if k is None or rank <= k else 0.0

    total = 0.0
    for gain, score in zip(gains, by, strict=True):
        first, same = 1 + int((by > score).sum()), int((by == score).sum())
        total += gain * mean(discount(rank) for rank in range(first, first + same))
    return total


def ndcg(truth: Any, guess: Any, n: int, *, k: int | None, gain: str, empty: str, group: Any) -> float:
    gains = truth if gain == "linear" else 2**truth - 1
    parts = []
    for query in np.unique(group):
        rows = group == query
        if gains[rows].any():
            parts.append(dcg(gains[rows], guess[rows], k) / dcg(gains[rows], gains[rows], k))
        elif empty != "skip":
            parts.append(1.0 if empty == "one" else 0.0)
    return mean(parts)


def order(truth: Any, guess: Any, n: int) -> float:
    wrong = all_pairs = 0
    for t, g in zip(truth, guess, strict=True):
        pairs = list(itertools.combinations(g, 2))
        wrong += sum(t.index(a) > t.index(b) for a, b in pairs)
        all_pairs += len(pairs)
    return 1 - 2 * wrong / all_pairs


def any_of(truth: Any, guess: Any, n: int) -> float:
    return mean(g in (t or ("",)) for t, g in zip(truth, guess, strict=True))


def word_jaccard(truth: Any, guess: Any, n: int) -> float:
    pairs = [(set(t.lower().split()), set(g.lower().split())) for t, g in zip(truth, guess, strict=True)]
    return mean(len(t & g) / len(t | g) if t | g else 1.0 for t, g in pairs)


def edits(one: Sequence[str], other: Sequence[str]) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def levenshtein(truth: Any, guess: Any, n: int, *, unit: str, per: str) -> float:
    pairs = [(t.split(), g.split()) if unit == "words" else (t, g) for t, g in zip(truth, guess, strict=True)]
    if per == "truth":
        return sum(edits(t, g) for t, g in pairs) / sum(len(t) for t, _ in pairs)
    return mean(edits(t, g) / (max(len(t), len(g), 1) if per == "longer" else 1) for t, g in pairs)


# ---------------------------------------------------------------- masks
def image(runs: Any, order: str = "down") -> np.ndarray:
    flat = np.zeros(HEIGHT * WIDTH, dtype=bool)
    for start, length in runs:
        flat[start - 1 : start - 1 + length] = True
    return flat.reshape(WIDTH, HEIGHT).T if order == "down" else flat.reshape(HEIGHT, WIDTH)


def mask_metric(value: Callable[[int, int, int], float]) -> Callable[..., float]:
    """`value` of hits, false alarms and misses, not all 0."""

    def score(truth: Any, guess: Any, n: int, *, average: str, empty: str, **_: Any) -> float:
        parts = []
        for t, g in zip(truth, guess, strict=True):
            a, b = image(t), image(g)
            parts.append((int((a & b).sum()), int((~a & b).sum()), int((a & ~b).sum())))
        if average == "pixels":
            return value(*(sum(column) for column in zip(*parts, strict=True)))
        return mean(value(*part) if any(part) else 1.0 for part in parts if any(part) or empty == "one")

    return score


def mask_f(truth: Any, guess: Any, n: int, *, beta: float, **keywords: Any) -> float:
    return mask_metric(f_of(beta))(truth, guess, n, **keywords)


def mask_precision(truth: Any, guess: Any, n: int, *, thresholds: Any, **_: Any) -> float:
    one_row = mask_metric(jaccard_of)
    rows = [one_row(truth[at : at + 1], guess[at : at + 1], n, average="rows", empty="one") for at in range(len(truth))]
    return mean(iou > threshold for iou in rows for threshold in thresholds)


def volume_overlap(truth: Any, guess: Any, n: int, *, dice_weight: float, order: str, volume: Any, layer: Any,
                   **_: Any) -> float:  # fmt: skip
    dice = mask_metric(f_of(1))(truth, guess, n, average="rows", empty="skip")
    distances = []
    for code in np.unique(volume):
        rows = np.flatnonzero(volume == code)
        layers = sorted(set(layer[rows]))
        stacks = np.zeros((2, len(layers), HEIGHT, WIDTH), dtype=bool)
        for row in rows:
            for at, masks in enumerate((truth, guess)):
                stacks[at, layers.index(layer[row])] |= image(masks[row], order)
        if stacks.any():
            distances.append(hausdorff(*stacks))
    return dice_weight * dice + (1 - dice_weight) * (1 - mean(distances))


def hausdorff(one: np.ndarray, other: np.ndarray) -> float:
    if not one.any() or not other.any() or other.sum() > 10 * one.sum():
        return 1.0
    a, b = np.argwhere(one) / one.shape, np.argwhere(other) / one.shape
    distances = np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=-1))
    return max(distances.min(axis=0).max(), distances.min(axis=1).max()) / math.sqrt(3)


# ---------------------------------------------------------------- shapes
def point_f1(truth: Any, guess: Any, n: int) -> float:
    hits = alarms = misses = 0
    for boxes, points in zip(truth, guess, strict=True):
        left = list(zip(points.labels, points.values, strict=True))
        for label, (_, x0, y0, x1, y1) in zip(boxes.labels, boxes.values, strict=True):
            inside = [at for at, (name, (x, y)) in enumerate(left) if name == label and x0 < x < x1 and y0 < y < y1]
            hits, misses = hits + bool(inside), misses + (not inside)
            if inside:
                left.pop(inside[0])
        alarms += len(left)
    return f_of(1)(hits, alarms, misses)


def box_iou(one: Any, other: Any) -> float:
    sides = [min(one[at + 2], other[at + 2]) - max(one[at], other[at]) for at in (0, 1)]
    both = max(sides[0], 0) * max(sides[1], 0)
    area = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return both / (sum(area) - both)


def box_map(truth: Any, guess: Any, n: int, *, thresholds: Any, curve: str) -> float:
    labels = {label for boxes in truth for label in boxes.labels}
    return mean(box_ap(truth, guess, label, least, curve) for label in labels for least in thresholds)


def box_ap(truth: Any, guess: Any, label: str, least: float, curve: str) -> float:
    found, there = [], 0
    for boxes, candidates in zip(truth, guess, strict=True):
        free = [values[1:] for name, values in zip(boxes.labels, boxes.values, strict=True) if name == label]
        there += len(free)
        own = [values for name, values in zip(candidates.labels, candidates.values, strict=True) if name == label]
        for confidence, *box in sorted(own, key=lambda values: -values[0]):
            best = max(range(len(free)), key=lambda at: (box_iou(box, free[at]), at), default=None)
            hit = best is not None and box_iou(box, free[best]) >= least
            if hit:
                free.pop(best)
            found.append((confidence, hit))
    return area_under(sorted(found, key=lambda pair: -pair[0]), there, curve)


def area_under(found: Sequence[tuple[float, bool]], there: int, curve: str) -> float:
    hits = [hit for _, hit in found]
    points = [(sum(hits[:at]) / there, sum(hits[:at]) / at) for at in range(1, len(hits) + 1)]

    def best(recall: float) -> float:
        return max((precision for reached, precision in points if reached >= recall), default=0.0)

    if curve == "coco":
        return mean(best(recall) for recall in np.linspace(0, 1, 101))
    return sum(best(at / there) / there for at in range(1, sum(hits) + 1))


def cuboid_map(truth: Any, guess: Any, n: int, *, thresholds: Any) -> float:
    """Of cuboids turned by quarters."""

    def corners(values: Any) -> np.ndarray:
        turned = round(values[7] / (math.pi / 2)) % 2
        width, length, height = values[4:7]
        size = np.array([width, length, height] if turned else [length, width, height])
        return np.stack([values[1:4] - size / 2, values[1:4] + size / 2])

    def overlap(one: Any, other: Any) -> float:
        a, b = corners(one), corners(other)
        both = np.maximum(np.minimum(a[1], b[1]) - np.maximum(a[0], b[0]), 0).prod()
        return both / (one[4:7].prod() + other[4:7].prod() - both)

    def ap(own: list[Any], mine: list[Any], least: float) -> float:
        taken, found = set(), []
        for values in sorted(mine, key=lambda values: -values[0]):
            overlaps = [overlap(values, box) for box in own]
            best = int(np.argmax(overlaps))
            found.append((values[0], overlaps[best] > least and best not in taken))
            taken |= {best} if overlaps[best] > least else set()
        return area_under(found, len(own), "voc")

    rows = []
    for t, g in zip(truth, guess, strict=True):
        split = [
            [[values for name, values in zip(s.labels, s.values, strict=True) if name == label] for s in (t, g)]
            for label in sorted(set(t.labels))
        ]
        rows.append(mean(ap(own, mine, least) for own, mine in split for least in thresholds))
    return mean(rows)


# ---------------------------------------------------------------- the table
def f1(average: str) -> Callable[..., float]:
    return lambda truth, guess, n: f_beta(truth, guess, n, beta=1, average=average)


REFERENCES: dict[str, Callable[..., float]] = {
    "accuracy": accuracy,
    "error_rate": lambda truth, guess, n: 1 - accuracy(truth, guess, n),
    "balanced_accuracy": lambda truth, guess, n: mean(recalls(truth, guess, n)),
    "g_mean": lambda truth, guess, n: math.prod(recalls(truth, guess, n)) ** (1 / n),
    "f1": f1("binary"), "micro_f1": f1("micro"), "weighted_f1": f1("weighted"),
    "macro_f1": macro_f1, "f_beta": f_beta, "jaccard": jaccard, "kappa": kappa, "qwk": qwk, "mcc": mcc,
    "logloss": columns(logloss), "brier": columns(squared), "auc": columns(auc), "multiclass_auc": multiclass_auc,
    "average_precision": columns(average_precision), "weighted_auc": weighted_auc, "gini": gini,
    "probabilistic_f": probabilistic_f, "bias_auc": bias_auc, "top_k_accuracy": top_k_accuracy,
    "hamming": lambda truth, guess, n: float((truth.toarray() != guess.toarray()).mean()),
    "subset_accuracy": lambda truth, guess, n: mean(a == b for a, b in zip(sets(truth), sets(guess), strict=True)),
    "multilabel_f": multilabel_f, "multilabel_jaccard": multilabel_jaccard, "lrap": lrap, "lwlrap": lwlrap,
    "rmse": columns(rmse), "mae": columns(absolute), "wmae": absolute, "mse": squared, "medae": medae,
    "rmsle": columns(rmsle), "mape": relative(1), "rmspe": relative(2), "smape": smape, "r2": columns(r2), "mase": mase,
    "log_mae": log_mae, "poisson_deviance": poisson_deviance, "pearson": columns(pearson),
    "spearman": columns(spearman), "concordance": concordance, "pinball": pinball, "crps": crps, "laplace": laplace,
    "kl_divergence": kl_divergence, "angular_error": angular_error, "distance_quantiles": distance_quantiles,
    "map_at_k": map_at_k, "recall_at_k": recall_at_k, "ndcg": ndcg, "order": order,
    "exact_match": accuracy, "any_of": any_of, "word_jaccard": word_jaccard, "levenshtein": levenshtein,
    "dice": mask_metric(f_of(1)), "iou": mask_metric(jaccard_of), "mask_f": mask_f, "mask_precision": mask_precision,
    "volume_overlap": volume_overlap, "point_f1": point_f1, "box_map": box_map, "cuboid_map": cuboid_map,
}  # fmt: skip
