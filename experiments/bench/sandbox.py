"""The sandbox in numbers: what a warm server saves, what isolation costs, executions a second, memory over thousands.

    python -m experiments.bench.sandbox [--rounds 15] [--executions 3000] [--json FILE]

Prints a table. All ways to run the script take turns, there and back (A B C, C B A), so that whatever else the machine
does slows all of them alike; a ratio is one of medians from one run. The script is a typical one of an episode: read
two tables of 200 rows, encode, fit, score on a split, write a submission. Without a Docker engine, or without the
image, its lines say why they are empty. Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench.turns import Line, Way, in_turns, machine, print_table
from mlexpert.sandbox import images, server
from mlexpert.sandbox.api import Job, Sandbox, SandboxError
from mlexpert.sandbox.containers import DockerSandbox
from mlexpert.sandbox.embedded import EmbeddedSandbox
from mlexpert.types import ExecStatus, Isolation

ROWS, SLOTS = 200, (1, 2, 4)
FLAT_MB = 8.0  # by which a server that leaks nothing may grow in thousands of executions
SCRIPT = """
import pandas as pd
from sklearn.compose import make_column_transformer
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
model = make_pipeline(encode, LogisticRegression())
fit, held, y_fit, y_held = train_test_split(train, y, test_size=0.25, random_state=0)
model.fit(fit, y_fit)
print(f"val: {accuracy_score(y_held, model.predict(held)):.4f}")
pd.DataFrame({"id": test["id"], "target": model.predict(test)}).to_csv("submission.csv", index=False)
"""


# ---------------------------------------------------------------- ways to run the script
def write_inputs(folder: Path) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir(mode=0o755)
    for name in ("train", "test"):
        lines = ["id,a,b,c,kind" + (",target" if name == "train" else "")]
        for i, (a, b, c) in enumerate(rng.normal(size=(ROWS, 3))):
            label = f",{int(a + b > 0)}" if name == "train" else ""
            lines.append(f"{i},{a:.3f},{b:.3f},{c:.3f},k{i % 4}{label}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


async def sandboxed(sandbox: Sandbox, inputs: Path) -> None:
    with tempfile.TemporaryDirectory() as into:
        run = await sandbox.execute(Job(SCRIPT, inputs, Path(into)))
        if run.status is not ExecStatus.OK or "submission.csv" not in run.files:
            raise RuntimeError(f"the benchmark's script ended {run.status} ({run.reason}): {run.stderr}")


async def cold(inputs: Path) -> None:
    """`python script.py` in a copy of the folder, with the threads that a sandbox has."""
    with tempfile.TemporaryDirectory() as folder:
        _copy_with_script(inputs, Path(folder))
        command = (sys.executable, "script.py")
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=server.ENVIRONMENT, stdout=asyncio.subprocess.DEVNULL
        )
        if code := await process.wait():
            raise RuntimeError(f"{' '.join(command)} ended with {code}")


def fresh_container(engine: Any, image: str, inputs: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _copy_with_script(inputs, Path(folder))
        engine.containers.run(
            image,
            ["python3", "script.py"],
            working_dir="/workspace",
            volumes={folder: {"bind": "/workspace", "mode": "rw"}},
            environment=server.ENVIRONMENT,
            network_mode="none",
            remove=True,
        )


def _copy_with_script(inputs: Path, folder: Path) -> None:
    shutil.copytree(inputs, folder, dirs_exist_ok=True)
    (folder / "script.py").write_text(SCRIPT)


# ---------------------------------------------------------------- measuring
async def at_once(way: Way, count: int, workers: int) -> float:
    """Seconds of `count` executions, `workers` at a time."""
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await way()

    begin = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(workers)))
    return time.perf_counter() - begin


async def rates(way: Way, rounds: int) -> dict[int, float]:
    """Executions a second with each number of slots busy."""
    batch, spent = 2 * max(SLOTS), dict.fromkeys(SLOTS, 0.0)
    for i in range(rounds):
        for slots in SLOTS if i % 2 else reversed(SLOTS):
            spent[slots] += await at_once(way, batch, slots)
    return {slots: rounds * batch / seconds for slots, seconds in spent.items()}


def memory_mb(pid: int) -> dict[str, float]:
    """Resident and proportional size. A leak shows in the first; the second also depends on who else shares pages."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("Rss", "Pss"):
            found[name.lower()] = int(value.split()[0]) / 1024
    return found


async def endurance(sandbox: EmbeddedSandbox, way: Way, executions: int) -> dict[str, dict[str, float]]:
    """Memory of the server, and of this process that calls it, at three moments of a long run."""
    await at_once(way, 20, 2)
    moments = {}
    for moment in ("start", "middle", "end"):
        if moment != "start":
            await at_once(way, executions // 2, 2)
        pid = sandbox.server_pid
        if pid is None:
            raise RuntimeError("the server died during the benchmark")
        caller = memory_mb(os.getpid())
        moments[moment] = memory_mb(pid) | {f"caller_{name}": value for name, value in caller.items()}
    return moments


# ---------------------------------------------------------------- the table
def speed_lines(seconds: dict[str, list[float]], kind: str, no_docker: str) -> list[Line]:
    median = {name: statistics.median(values) for name, values in seconds.items()}
    lines = [
        Line(f"{name}: one execution", 1000 * value, "ms", note=f"fastest {1000 * min(seconds[name]):.0f} ms")
        for name, value in median.items()
    ]
    ratio = median["cold"] / median["embedded"]
    added = [1000 * (a - b) for a, b in zip(seconds["embedded"], seconds["plain"], strict=True)]
    lines += [
        Line("cold / embedded", ratio, "x", at_least=12.0),
        Line(f"{kind} adds to plain, median of the rounds", statistics.median(added), "ms", at_most=25.0),
    ]
    slower = median["docker"] / median["embedded"] if "docker" in median else None
    fresh = median["fresh container"] / median["docker"] if "docker" in median else None
    return [
        *lines,
        Line("docker / embedded", slower, "x", at_most=1.5, note=no_docker),
        Line("fresh container / docker", fresh, "x", at_least=12.0, note="as above" if no_docker else ""),
    ]


def rate_lines(found: dict[int, float]) -> list[Line]:
    return [
        Line(f"embedded, {slots} at a time", rate, "/s", at_least=5.0 if slots > 1 else None)
        for slots, rate in found.items()
    ]


def memory_lines(moments: dict[str, dict[str, float]], executions: int) -> list[Line]:
    if not moments:
        return [Line("memory of the server", None, "MB", at_most=FLAT_MB, note="ask for it with --executions 3000")]
    shown = {name: " -> ".join(f"{moment[name]:.1f}" for moment in moments.values()) for name in moments["start"]}
    first, last = moments["start"], moments["end"]
    return [
        Line(
            f"{who} grew over {executions} executions",
            last[f"{name}rss"] - first[f"{name}rss"],
            "MB",
            at_most=FLAT_MB,
            note=f"resident {shown[f'{name}rss']}, its share {shown[f'{name}pss']}",
        )
        for who, name in (("the server", ""), ("its caller", "caller_"))
    ]


# ---------------------------------------------------------------- one run
async def docker_ways(stack: AsyncExitStack, image: str, inputs: Path) -> tuple[dict[str, Way], str]:
    """The two ways with containers, or why there are none."""
    sandbox = DockerSandbox(1, image)
    try:
        await stack.enter_async_context(sandbox)
    except SandboxError as error:
        return {}, str(error)
    engine = images.connect()
    stack.callback(engine.close)
    return {
        "docker": lambda: sandboxed(sandbox, inputs),
        "fresh container": lambda: asyncio.to_thread(fresh_container, engine, image, inputs),
    }, ""


async def measured(rounds: int, executions: int, image: str) -> tuple[Isolation, list[Line]]:
    async with AsyncExitStack() as stack:
        inputs = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "public"
        write_inputs(inputs)
        plain = await stack.enter_async_context(EmbeddedSandbox(1, "plain"))
        embedded = await stack.enter_async_context(EmbeddedSandbox(max(SLOTS)))
        containers, no_docker = await docker_ways(stack, image, inputs)

        def warm() -> Awaitable[None]:
            return sandboxed(embedded, inputs)

        ways: dict[str, Way] = {
            "cold": lambda: cold(inputs),
            "plain": lambda: sandboxed(plain, inputs),
            "embedded": warm,
            **containers,
        }
        lines = speed_lines(await in_turns(ways, rounds), embedded.isolation.kind, no_docker)
        lines += rate_lines(await rates(warm, rounds))
        moments = await endurance(embedded, warm, executions) if executions else {}
        return embedded.isolation, lines + memory_lines(moments, executions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="turns of every way")
    parser.add_argument("--executions", type=int, default=0, help="of the run that watches memory; 0 for none")
    parser.add_argument("--image", default="mlexpert-sandbox:latest", help="image of the containers")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    options = parser.parse_args()
    before = machine()
    isolation, lines = asyncio.run(measured(options.rounds, options.executions, options.image))
    print(", ".join(f"{name} {value}" for name, value in before.items()), "before the run")
    print(f"embedded: {isolation.kind} {isolation.note}\n")
    print_table(lines)
    if options.json:
        found = {"machine": before, "isolation": asdict(isolation), "lines": [asdict(line) for line in lines]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
