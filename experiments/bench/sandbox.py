"""Executions per second: a warm sandbox with 1, 2 and 4 slots against a cold `python script.py`.

    python -m experiments.bench.sandbox [--executions 40]

The script is a typical one of an episode: read two tables, encode, fit, score on a split, write a submission.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mlexpert.sandbox.api import Job
from mlexpert.sandbox.warm import WarmSandbox
from mlexpert.types import ExecStatus

SCRIPT = """
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
y = train.pop("target")
numbers = ["a", "b", "c"]
encode = make_column_transformer(
    (make_pipeline(SimpleImputer(), StandardScaler()), numbers), (OneHotEncoder(handle_unknown="ignore"), ["kind"])
)
model = make_pipeline(encode, MODEL)
fit, held, y_fit, y_held = train_test_split(train, y, test_size=0.25, random_state=0)
model.fit(fit, y_fit)
print(f"val: {accuracy_score(y_held, model.predict(held)):.4f}")
pd.DataFrame({"id": test["id"], "target": model.predict(test)}).to_csv("submission.csv", index=False)
"""
MODELS = {
    "logistic": SCRIPT.replace("MODEL", "LogisticRegression()"),
    "boosting": SCRIPT.replace("MODEL", "HistGradientBoostingClassifier(max_iter=20)"),
    "empty": "pass",
}


def write_inputs(folder: Path, rows: int = 240) -> None:
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        table = rng.normal(size=(rows, 3))
        lines = ["id,a,b,c,kind" + (",target" if name == "train" else "")]
        for i, (a, b, c) in enumerate(table):
            label = f",{int(a + b > 0)}" if name == "train" else ""
            lines.append(f"{i},{a:.3f},{b:.3f},{c:.3f},k{i % 4}{label}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


async def warm_rate(sandbox: WarmSandbox, script: str, inputs: Path, count: int) -> tuple[float, float]:
    """Executions/s with every slot busy, and the median wall time of one, in ms."""

    async def once() -> float:
        with tempfile.TemporaryDirectory() as into:
            run = await sandbox.execute(Job(script, inputs, Path(into)))
        if run.status is not ExecStatus.OK:
            raise RuntimeError(f"the benchmark script ended {run.status}: {run.stderr}")
        return run.wall_s

    started = time.perf_counter()
    walls = await asyncio.gather(*(once() for _ in range(count)))
    return count / (time.perf_counter() - started), 1000 * statistics.median(walls)


def cold_rate(script: str, inputs: Path, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        subprocess.run([sys.executable, "-c", script], cwd=inputs, check=True, capture_output=True)
    return count / (time.perf_counter() - started)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=40)
    count = parser.parse_args().executions
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        for slots in (1, 2, 4):
            async with WarmSandbox(slots) as sandbox:
                await warm_rate(sandbox, "pass", Path(folder), 2)
                for name, script in MODELS.items():
                    rate, wall_ms = await warm_rate(sandbox, script, Path(folder), count)
                    print(f"warm {sandbox.isolation.kind} slots={slots} {name}: {rate:.1f}/s, median {wall_ms:.0f} ms")
        print(f"cold, one at a time, logistic: {cold_rate(MODELS['logistic'], Path(folder), 3):.2f}/s")


if __name__ == "__main__":
    asyncio.run(main())
