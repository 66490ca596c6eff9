"""A small real task, a sandbox that does as it is told, and a grader with a verdict up its sleeve."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from mlexpert.harness.environment import Environment
from mlexpert.harness.journal import Journal
from mlexpert.harness.state import Budget
from mlexpert.sandbox.api import Job
from mlexpert.tasks.seal import write
from mlexpert.tasks.task import Facts, Provenance, Split, Task, Thresholds
from mlexpert.types import (
    ExecStatus,
    Execution,
    Finish,
    Isolation,
    Limits,
    Medal,
    ToolCall,
    Verdict,
    VerdictStatus,
)

PLAIN = Isolation("plain", files=False, network=False, processes=False, memory=False, cpu=False, disk=False)


def execution(stdout="", status=ExecStatus.OK, exception="", message="", stderr="", **fields) -> Execution:
    defaults = {"exit_code": 0, "signal": None, "truncated": False, "wall_s": 0.1, "cpu_s": 0.1, "peak_mb": 10.0}
    return Execution(
        status=status, exception=exception, message=message, stdout=stdout, stderr=stderr, isolation=PLAIN,
        **(defaults | fields),
    )  # fmt: skip


def graded(score: float, medal: Medal = Medal.NONE) -> Verdict:
    return Verdict(VerdictStatus.GRADED, score=score, medal=medal, above_median=True, lower_is_better=True, quality=0.5)


class FakeSandbox:
    """Returns the listed executions in order; one that ran through hands in a submission unless `files` says no."""

    isolation = PLAIN

    def __init__(self, executions: list[Execution], files: bool = True) -> None:
        self.executions, self.files, self.jobs = list(executions), files, []

    async def execute(self, job: Job) -> Execution:
        self.jobs.append(job)
        done = self.executions.pop(0)
        if not self.files:
            return done
        path = job.into / "submission.csv"
        path.write_text("id,y\n")
        return replace(done, files={path.name: path})

    async def close(self) -> None: ...


@pytest.fixture
def task(tmp_path: Path) -> Task:
    ids = ["r0", "r1", "r2", "r3"]
    facts = Facts(
        id="micro", modality="tabular", domain="soil", metric="rmse", id_column="id", target_columns=("y",),
        provenance=Provenance("test", "", "none", True, "micro"), split=Split("generated", 3, 0.5),
        thresholds_from="reference solutions",
    )  # fmt: skip
    return write(
        tmp_path / "set", facts, Thresholds(0.1357913, 0.2468024, 0.3691215, 0.4812162, 0.9753186), seed=3,
        family="hidden_family_name", description="Predict `y` from `soil_depth`.\n",
        train=pd.DataFrame({"id": ["a", "b", "c"], "soil_depth": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}),
        test=pd.DataFrame({"id": ids, "soil_depth": [1.0, 2.0, 3.0, 4.0]}),
        sample=pd.DataFrame({"id": ids, "y": [0.0] * 4}),
        answers=pd.DataFrame({"id": ids, "y": [1.125, 2.25, 3.375, 4.5]}),
    )  # fmt: skip


@pytest.fixture
def play(task: Task, tmp_path: Path) -> Callable:
    """play(executions, verdicts, **settings): an environment whose n-th graded file gets the n-th verdict."""

    def make(executions=(), verdicts=(), files=True, name="episode", **settings) -> SimpleNamespace:
        pending, seen = list(verdicts), []

        def grade(path: Path | None) -> Verdict:
            seen.append(path)
            return Verdict(VerdictStatus.ABSENT) if path is None else pending.pop(0)

        sandbox = FakeSandbox(list(executions), files)
        budget = settings.pop("budget", Budget(executions=5, steps=20, malformed=2, wall_s=100.0))
        journal = Journal(tmp_path / f"{name}.jsonl")
        clock = settings.pop("clock", lambda: 0.0)
        environment = Environment(
            task, sandbox, grade, budget, journal, tmp_path / name, Limits(), clock=clock, **settings
        )
        return SimpleNamespace(environment=environment, sandbox=sandbox, graded_paths=seen, journal=journal)

    return make


@pytest.fixture
def say() -> SimpleNamespace:
    return SimpleNamespace(
        run=lambda code="print(1)", **more: ToolCall("execute_code", {"code": code, **more}),
        answer=lambda node: ToolCall("update_answer", {"node": str(node)}),
        invalidate=lambda node, reason="leak": ToolCall("invalidate_node", {"node": str(node), "reason": reason}),
        analyze=lambda **more: ToolCall("analyze", more),
        finish=Finish("Done."),
    )


@pytest.fixture
def make() -> SimpleNamespace:
    return SimpleNamespace(execution=execution, graded=graded)
