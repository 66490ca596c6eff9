"""Grading in a process of its own: what a submission does to the grader never reaches the run, and never the policy.

One persistent child serves all tasks and keeps their answers, so that grading costs one message to and fro. It has a
limit of time for each request and a limit of memory. Where it is too slow, ended, or at fault, the request raises
`GraderError`: infrastructure, whatever the file was, and hence no outcome and no reward. The answer is a structured
message; nothing that a grader prints is ever read as a score.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from mlexpert.tasks.grading import Assessment, Grader
from mlexpert.tasks.precision import standard_error
from mlexpert.tasks.reasons import Reason, Refusal
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import REQUIRED, Task, load
from mlexpert.types import Medal, Verdict, VerdictStatus

MAX_MESSAGE = 2**20
KEPT_ROWS = 5_000_000  # of answers, over all tasks that the child keeps at hand


class GraderError(Exception):
    """The grader failed, not the submission: it was too slow, ended, or raised. The request may be made again."""


@dataclass(frozen=True)
class GraderLimits:
    wall_s: float = 120.0  # of one request; the first one on a task reads its answers
    memory_mb: int = 8192  # address space


@dataclass(frozen=True)
class Graded:
    """What a grading found beyond the verdict. Never for the policy."""

    verdict: Verdict
    refusal: Refusal | None
    standard_error: float | None  # of the score, over the test rows


class ProcessGrader:
    """Grades for any task, safe to call from several threads; the child starts with the first request."""

    def __init__(self, limits: GraderLimits | None = None) -> None:
        self._limits = limits or GraderLimits()
        self._lock = threading.Lock()
        self._child: tuple[BaseProcess, Connection] | None = None

    def grader(self, task: Task) -> Callable[[Path | None], Verdict]:
        return partial(self.grade, task)

    def grade(self, task: Task, path: Path | None) -> Verdict:
        """As `Grader(task).grade(path)`. Raises GraderError; TaskError if the task itself is broken."""
        return self._graded(task, path, detail=False).verdict

    def report(self, task: Task, path: Path | None) -> Graded:
        """The verdict with what a report tells beside it. Raises as `grade` does."""
        return self._graded(task, path, detail=True)

    def _graded(self, task: Task, path: Path | None, detail: bool) -> Graded:
        if path is None:  # nothing that a child could read
            return Graded(Verdict(VerdictStatus.ABSENT, lower_is_better=task.lower_is_better), None, None)
        told = self._ask(task, path, detail)
        return Graded(_verdict(told["verdict"]), _refusal(told["refusal"]), told["standard_error"])

    def close(self) -> None:
        with self._lock:
            self._stop()

    # ------------------------------------------------------------ the child
    def _ask(self, task: Task, path: Path, detail: bool) -> Mapping[str, Any]:
        root, file = str(task.root.resolve()), str(path.absolute())
        request = {"root": root, "key": key_of(task), "path": file, "detail": detail}
        with self._lock:
            told = self._exchange(json.dumps(request).encode())
        if "task_error" in told:
            raise TaskError(told["task_error"])
        if "fault" in told:
            raise GraderError(f"grading {path.name} for task {task.id} failed in the grader: {told['fault']}")
        return told

    def _exchange(self, request: bytes) -> Mapping[str, Any]:
        """One request and its answer. Whatever goes wrong ends the child: the next request gets a fresh one."""
        try:
            _, pipe = self._child = self._child or self._start()
            pipe.send_bytes(request)
            if not pipe.poll(self._limits.wall_s):
                raise GraderError(f"no answer from the grader within {self._limits.wall_s:g} s")
            return json.loads(pipe.recv_bytes(MAX_MESSAGE))
        except (EOFError, OSError, ValueError) as error:
            exit_code = self._stop()
            raise GraderError(f"the grader ended (exit code {exit_code}): {error or type(error).__name__}") from error
        except BaseException:  # also Ctrl-C: an answer that nobody read must not be taken for the next one
            self._stop()
            raise

    def _start(self) -> tuple[BaseProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._limits), daemon=True, name="grader")
        process.start()
        theirs.close()
        return process, ours

    def _stop(self) -> int | None:
        if self._child is None:
            return None
        process, pipe = self._child
        self._child = None
        pipe.close()
        process.join(0.2)  # one that has ended by itself tells how
        process.kill()
        process.join()
        return process.exitcode


def key_of(task: Task) -> str:
    """Changes whenever what a grader keeps of the task does."""
    return "".join(task.checksums[path] for path in REQUIRED)


# ---------------------------------------------------------------- inside the child
def _serve(pipe: Connection, limits: GraderLimits) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    most = limits.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    graders: dict[tuple[str, str], Grader] = {}
    while True:
        try:
            request = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        pipe.send_bytes(json.dumps(_answer(request, graders), allow_nan=False).encode())


def _end_with(parent: BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)


def _answer(request: Mapping[str, Any], graders: dict[tuple[str, str], Grader]) -> dict[str, Any]:
    try:
        grader = _grader(request["root"], request["key"], graders)
        assessed = grader.assess(Path(request["path"]))
        return _told(grader, assessed, request["detail"])
    except TaskError as error:
        return {"task_error": str(error)}
    except Exception as error:  # MemoryError too; the file is never to blame
        return {"fault": f"{type(error).__name__}: {error}"[:2000]}


def _grader(root: str, key: str, graders: dict[tuple[str, str], Grader]) -> Grader:
    """Kept, or read; those that were used longest ago go first."""
    grader = graders.pop((root, key), None) or Grader(load(Path(root), whole=False))
    graders[root, key] = grader
    while len(graders) > 1 and sum(kept.answers.rows for kept in graders.values()) > KEPT_ROWS:
        del graders[next(iter(graders))]
    return grader


def _told(grader: Grader, assessed: Assessment, detail: bool) -> dict[str, Any]:
    error = None
    if detail and assessed.predictions is not None:
        values, labels = assessed.predictions.values, grader.task.labels
        error = standard_error(grader.metric, grader.answers, values, labels)
    refusal = None if assessed.refusal is None else asdict(assessed.refusal)
    return {"verdict": asdict(assessed.verdict), "refusal": refusal, "standard_error": error}


# ---------------------------------------------------------------- from JSON
def _verdict(told: Mapping[str, Any]) -> Verdict:
    return Verdict(**{**told, "status": VerdictStatus(told["status"]), "medal": Medal(told["medal"])})


def _refusal(told: Mapping[str, Any] | None) -> Refusal | None:
    if told is None:
        return None
    code = None if told["code"] is None else Reason(told["code"])
    return Refusal(**{**told, "status": VerdictStatus(told["status"]), "code": code})
