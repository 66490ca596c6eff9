"""A small task of any metric: ids r0, r1, ... and given answers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from mlexpert.tasks.metrics import METRICS
from mlexpert.tasks.seal import write
from mlexpert.tasks.task import Facts, Provenance, Split, Task, Thresholds

LADDERS = {True: Thresholds(0.1, 0.2, 0.3, 0.4, 0.9), False: Thresholds(0.9, 0.8, 0.7, 0.6, 0.5)}
OPTIONAL = ("settings", "columns", "budget")


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Task]:
    def make(
        metric: str,
        answers: Sequence[object],
        labels: Sequence[str] = (),
        /,
        ids: Sequence[object] | None = None,
        fill: object = None,
        **changes: object,
    ) -> Task:
        ids = [f"r{i}" for i in range(len(answers))] if ids is None else ids
        fill = (labels[0] if metric in ("accuracy", "macro_f1") else 0.5) if fill is None else fill
        many = metric == "logloss" and len(labels) > 2
        predicted = dict.fromkeys(labels, 1 / len(labels)) if many else {"target": fill}
        facts = dict(
            id="demo", modality="tabular", domain="tests", metric=metric, id_column="id", target_columns=("target",),
            labels=tuple(labels), provenance=Provenance("test", "", "none", True, "demo"),
            split=Split("generated", 3, 0.5), thresholds_from="reference solutions",
        )  # fmt: skip
        facts |= {name: changes.pop(name) for name in list(changes) if name in facts or name in OPTIONAL}
        parts = dict(
            thresholds=LADDERS[METRICS[metric].lower_is_better], seed=3, family="secret-family",
            description="# Demo\n", train=pd.DataFrame({"id": ["t0"], "x": [1.0], "target": answers[:1]}),
            test=pd.DataFrame({"id": ids, "x": 0.0}), sample=pd.DataFrame({"id": ids, **predicted}),
            answers=pd.DataFrame({"id": ids, "target": answers}), notes={"rule": "secret-rule"},
        )  # fmt: skip
        parts |= changes
        return write(tmp_path / "set", Facts(**facts), parts.pop("thresholds"), **parts)

    return make
