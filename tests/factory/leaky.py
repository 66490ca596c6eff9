"""A fair task, and the means to make it unfair: a table with honest columns, and one small file an item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlexpert.factory import leaks
from mlexpert.tasks.seal import write
from mlexpert.tasks.task import Facts, Provenance, Split, Task, Thresholds

N_TRAIN, N_TEST = 320, 160
SPLIT = Split("random", 3, N_TEST / (N_TRAIN + N_TEST))
PROVENANCE = Provenance("test", "", "CC0", True, "fair")
TOWNS = ("Aarhus", "Bergen", "Cork", "Delft")


def rows(seed: int, n: int, numeric: bool) -> pd.DataFrame:
    """Two columns that help, one that does not, a text and a column with gaps; nothing tells for certain."""
    draw = np.random.default_rng(seed)
    age, town = draw.normal(size=n), draw.integers(len(TOWNS), size=n)
    value = age + 0.7 * (town == 2) + draw.normal(scale=0.8, size=n)
    table = pd.DataFrame(
        {
            "age": np.round(age, 5).astype(str),
            "town": [TOWNS[t] for t in town],
            "noise": np.round(draw.normal(size=n), 5).astype(str),
            "memo": [f"memo about {draw.choice(TOWNS)} and {k} boxes of tea" for k in draw.integers(99, size=n)],
            "gap": ["" if g < 0.3 else str(round(g, 3)) for g in draw.random(n)],
        }
    )  # fmt: skip
    table["target"] = np.round(value, 4).astype(str) if numeric else np.where(value > 0.2, "spoiled", "fresh")
    return table


def fair(
    folder: Path,
    change: Callable[[pd.DataFrame, pd.DataFrame], Any] = lambda train, test: None,
    numeric: bool = False,
    description: str = "# Fair\nPredict whether a box is `fresh` or `spoiled`.\n",
    sample: str = "",
    **facts: Any,
) -> Task:
    """`change` may edit the train and test tables, targets included, before the target leaves test."""
    train, test = rows(1, N_TRAIN, numeric), rows(2, N_TEST, numeric)
    draw = np.random.default_rng(5)
    ids = draw.permutation(10**6)[: N_TRAIN + N_TEST]
    train.insert(0, "id", [f"r{i:06d}" for i in ids[:N_TRAIN]])
    test.insert(0, "id", [f"r{i:06d}" for i in ids[N_TRAIN:]])
    change(train, test)
    answers = test[["id", "target"]]
    given = {
        "id": "fair", "modality": "tabular", "domain": "tests", "metric": "rmse" if numeric else "accuracy",
        "id_column": "id", "target_columns": ("target",), "provenance": PROVENANCE, "split": SPLIT,
        "labels": () if numeric else tuple(dict.fromkeys([*test["target"], "fresh", "spoiled"])),
        "thresholds_from": "reference solutions",
    }  # fmt: skip
    ladder = Thresholds(0.1, 0.2, 0.3, 0.4, 0.9) if numeric else Thresholds(0.9, 0.8, 0.7, 0.6, 0.5)
    guess = sample or ("0.0" if numeric else "fresh")
    return write(
        folder, Facts(**(given | facts)), ladder, description=description, train=train,
        test=test.drop(columns="target"), sample=answers.assign(target=guess), answers=answers,
    )  # fmt: skip


def kinds(task: Task, severity: str = "refuse", **options: Any) -> set[str]:
    """Kinds of findings of this severity."""
    return {one.kind for one in leaks.findings(task, **options) if one.severity == severity}


def answers_of(task: Task) -> Mapping[str, str]:
    """id -> answer."""
    table = pd.read_csv(task.private / "answers.csv", dtype=str, keep_default_na=False)
    return dict(zip(table["id"], table["target"], strict=True))
