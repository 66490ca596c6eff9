"""Toys (see `grader_toys`) for graders of masks, points, boxes and cuboids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.bench.grader_toys import ROWS, WORDS, Toy, frame, ids, written
from mlexpert.factory.mlebench_metrics import Grader
from mlexpert.tasks.metrics import Needs, read


# ---------------------------------------------------------------- masks
def runs(rng: np.random.Generator, pixels: int, empty: float = 0.2) -> str:
    inside = rng.random(pixels) < (0.0 if rng.random() < empty else rng.uniform(0.2, 0.8))
    borders = np.flatnonzero(np.diff(np.r_[0, inside, 0].astype(int)))
    return " ".join(f"{start + 1} {end - start}" for start, end in zip(borders[::2], borders[1::2], strict=True))


def masks(
    height: int,
    width: int,
    truth_column: str = "",
    empty: float = 0.2,
    sizes: Sequence[str] = (),
    empty_alone: bool = True,
) -> Callable[..., Toy]:
    """`empty`: share of empty masks; `empty_alone`: whether a prediction may be empty where the answer is not."""

    def make(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
        truth = [runs(rng, height * width, empty) for _ in range(ROWS)]
        blank = [empty if not text or empty_alone else 0.0 for text in truth]
        guess = [
            text if rng.random() < 0.2 else runs(rng, height * width, e) for text, e in zip(truth, blank, strict=True)
        ]
        toy = written(grader, rng, truth, guess)
        size = dict(zip(sizes, (height, width), strict=True)) if sizes else {}
        answers = toy.answers.rename(columns={grader.targets[0]: truth_column or grader.targets[0]}).assign(**size)
        beside = {"height": [str(height)] * ROWS, "width": [str(width)] * ROWS} if sizes else {}
        return Toy(answers, toy.submission, toy.targets, toy.predictions, (), beside)

    return make


def stacks(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    height, width = 5, 4
    keys = [(day, layer, organ) for day in range(3) for layer in range(4) for organ in range(2)]
    truth = [runs(rng, height * width, 0.3) for _ in keys]
    guess = [runs(rng, height * width, 0.3) for _ in keys]
    table = pd.DataFrame({"id": [f"case1_day{day}_slice_{layer:04d}" for day, layer, _ in keys],
                          "class": [f"organ{organ}" for *_, organ in keys]})  # fmt: skip
    answers = table.assign(predicted=truth, image_height=height, image_width=width)
    beside = {"volume": [f"day{day}" for day, *_ in keys], "layer": [str(layer) for _, layer, _ in keys],
              "height": [str(height)] * len(keys), "width": [str(width)] * len(keys)}  # fmt: skip
    return Toy(answers, table.assign(predicted=guess), [truth], read(Needs.RUNS, guess), (), beside)


# ---------------------------------------------------------------- objects
def characters(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    theirs, ours, guess = [], [], []
    for _ in range(ROWS):
        boxes = [(str(rng.choice(WORDS[:2])), *rng.integers(0, 6, 2), *rng.integers(1, 5, 2)) for _ in range(3)]
        theirs.append(" ".join(f"{label} {x} {y} {w} {h}" for label, x, y, w, h in boxes))
        ours.append(" ".join(f"{label} 1 {x} {y} {x + w} {y + h}" for label, x, y, w, h in boxes))
        points = [(str(rng.choice(WORDS[:2])), *(rng.integers(0, 20, 2) / 2)) for _ in range(int(rng.integers(1, 5)))]
        guess.append(" ".join(f"{label} {x} {y}" for label, x, y in points))
    answers, submission = (frame(grader, {"labels": column}) for column in (theirs, guess))
    return Toy(answers, submission, [ours], read(Needs.POINTS, guess))


def chests(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    """Our borders are what the grader's program makes of its own: left, top, and the last two as width and height.

    Nothing is found in the first image: that program takes the number 0 of its first box or prediction for no match.
    """
    rows, ours, theirs_guess, ours_guess = [], [], [], []
    for at in range(ROWS):
        boxes = [(int(rng.integers(0, 2)), *rng.integers(0, 5, 2), *rng.integers(5, 10, 2)) for _ in range(2)]
        rows += [dict(zip(("image_id", "class_id", "x_min", "y_min", "x_max", "y_max"), (ids()[at], *box), strict=True))
                 for box in boxes]  # fmt: skip
        found = [(int(rng.integers(0, 2)) if at else 9, int(rng.integers(1, 90)) / 91, *rng.integers(0, 5, 2),
                  *rng.integers(5, 10, 2)) for _ in range(3)]  # fmt: skip
        ours.append(" ".join(f"{c} 1 {a} {b} {a + w} {b + h}" for c, a, b, w, h in boxes))
        theirs_guess.append(" ".join(f"{c} {s} {a} {b} {w} {h}" for c, s, a, b, w, h in found))
        ours_guess.append(" ".join(f"{c} {s} {a} {b} {a + w} {b + h}" for c, s, a, b, w, h in found))
    submission = frame(grader, {"PredictionString": theirs_guess})
    return Toy(pd.DataFrame(rows), submission, [ours], read(Needs.BOXES, ours_guess))


def covid(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    def boxes(n: int) -> str:
        made = [(str(rng.choice(["opacity", "none"])), rng.random(), *rng.integers(0, 5, 2), *rng.integers(5, 10, 2))
                for _ in range(n)]  # fmt: skip
        return " ".join(" ".join(map(str, box)) for box in made)

    truth, guess = [boxes(1 + at % 2) for at in range(ROWS)], [boxes(2) for _ in range(ROWS)]
    return written(grader, rng, truth, guess)


def cars(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    def cuboids(n: int) -> list[list[Any]]:
        return [[1.0, *rng.uniform(0, 3, 3), *rng.uniform(1, 4, 3), rng.uniform(-4, 4), str(rng.choice(["car", "bus"]))]
                for _ in range(n)]  # fmt: skip

    def near(cuboid: list[Any]) -> list[Any]:
        moved = [value + rng.normal(0, 0.1) for value in cuboid[1:8]]
        return [rng.random(), *moved[:3], *(abs(value) + 0.1 for value in moved[3:6]), moved[6], cuboid[8]]

    truth = [cuboids(3) for _ in range(6)]
    guess = [[*map(near, row), *cuboids(1)] for row in truth]
    lines = [[" ".join(str(part) for cuboid in row for part in cuboid) for row in rows] for rows in (truth, guess)]
    return written(grader, rng, *lines)
