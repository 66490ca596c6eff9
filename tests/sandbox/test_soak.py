"""500 executions on 4 slots, 5 % of each of eight hostile kinds: the counts add up, and nothing is left of any."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest

from mlexpert.sandbox import attacks, images, owner, processes, scratch
from mlexpert.sandbox.api import Job
from mlexpert.sandbox.attacks import attack, check, outside
from mlexpert.sandbox.attacks.attack import Attack
from mlexpert.sandbox.containers import DockerSandbox
from mlexpert.sandbox.embedded import EmbeddedSandbox

pytestmark = pytest.mark.slow
SLOTS, OF_EACH, GOOD = 4, 25, 300
SUBMITS = """
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
X = np.random.rand(200, 5)
y = (X[:, 0] > 0.5).astype(int)
print("cv", LogisticRegression().fit(X, y).score(X, y) > 0.8)
pd.DataFrame({"id": [3], "target": [1]}).to_csv("submission.csv", index=False)
"""
WELL_BEHAVED = Attack(
    "works",
    "",
    attack.SEMANTICS,
    "trains and hands in",
    SUBMITS,
    fault=attack.collects("submission.csv", b"id,target\n3,1\n"),
)
HOSTILE = {
    "endless loop": "timeout",
    "orphan in its own session": "ok",
    "fork bomb": "pids",
    "one hog": "oom",
    "many files": "disk",
    "segmentation fault": "killed",
    "many lines": "ok",
    "kills everyone": "ok",
}


def plan():
    """500 attacks in a random order, the same every time."""
    chosen = [one for one in attacks.ALL if one.name in HOSTILE]
    assert len(chosen) == len(HOSTILE)
    todo = [WELL_BEHAVED] * GOOD + chosen * OF_EACH
    random.Random(0).shuffle(todo)
    return todo


async def execute(sandbox, one, around, number):
    into = around.folder / f"into{number}"
    into.mkdir()
    limits = replace(check.LIMITS, **one.limits)
    run = await sandbox.execute(Job(around.fill_in(one.script), around.inputs, into, limits=limits))
    holes = [line for line in run.stdout.splitlines() if line.startswith("HOLE")]
    return run, "; ".join(holes) or one.fault(run)


async def soak(sandbox, around):
    """What went wrong, by attack; the statuses; what was there before and after."""
    todo = plan()
    async with sandbox:
        await check.settle(sandbox, around)
        before = outside.trace(sandbox.server_pid)
        done = await asyncio.gather(*(execute(sandbox, one, around, n) for n, one in enumerate(todo)))
        for _ in range(500):  # what is just leaving
            if not (left := outside.trace(sandbox.server_pid).beyond(before)):
                break
            await asyncio.sleep(0.02)
        restarts = sandbox.restarts
    faults = Counter(fault for one, (run, told) in zip(todo, done, strict=True) if (fault := _fault(one, run, told)))
    statuses = Counter((one.name, run.status.value) for one, (run, _) in zip(todo, done, strict=True))
    return faults, statuses, left, restarts


def _fault(one, run, told):
    wanted = HOSTILE.get(one.name, "ok")
    unlike = "" if run.status == wanted else f"ended as {run.status} ({run.reason}), not {wanted}: {run.stderr[-300:]}"
    return f"{one.name}: {unlike or told}" if unlike or told else ""


@pytest.fixture(params=["embedded", pytest.param("docker", marks=pytest.mark.docker)])
def sandbox(request):
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
        return DockerSandbox(SLOTS)
    return EmbeddedSandbox(SLOTS)


def test_500_executions(sandbox, request):
    children = set(processes.processes_below(processes.os.getpid()))
    with outside.planted() as around:
        faults, statuses, left, restarts = asyncio.run(soak(sandbox, around))
        assert outside.disturbed(around) == ""
    assert not faults
    expected = {(name, status): OF_EACH for name, status in HOSTILE.items()} | {("works", "ok"): GOOD}
    assert statuses == expected and sum(statuses.values()) == 500
    assert left == "" and restarts == 0
    assert set(processes.processes_below(processes.os.getpid())) <= children
    assert not scratch.mine()
    if isinstance(sandbox, DockerSandbox):
        engine = request.getfixturevalue("docker_engine")
        assert owner.mark() not in images.owned(engine).values()
