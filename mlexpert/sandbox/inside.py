"""The two processes inside: the first, which watches, and the script's own.

    init  reaps orphans, watches what no control group or file system holds, reports how main ended; never runs a script
    main  becomes the script: in the fork itself, or in a fresh interpreter if the script asks for a cold start

Init's only report goes through the status pipe, main's through the report pipe.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from dataclasses import dataclass
from typing import NoReturn

from mlexpert.sandbox import cgroup, disk, isolation, namespaces, processes, runner
from mlexpert.sandbox.isolation import Layers
from mlexpert.sandbox.places import Place

_POLL_S = 0.05
_FOLDER_VARIABLES = ("HOME", "TMPDIR", "MPLCONFIGDIR", "JOBLIB_TEMP_FOLDER")


@dataclass(frozen=True)
class Plan:
    """All that the processes inside need to know."""

    source: bytes
    seed: int
    limits: dict
    layers: Layers
    place: Place
    readable: list[str]  # for Landlock
    group: cgroup.Group | None  # of this execution alone
    counted: cgroup.Group | None  # whose killed processes are this execution's
    watched: frozenset[str]  # which of memory, cpu, pids, disk init has to watch
    library: list[str]
    runner: str  # source of the runner, for a cold start


def fault(error: BaseException) -> str:
    """One line that names an error and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" [{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}]" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + place


# ---------------------------------------------------------------- the first process
def init(plan: Plan, ends: dict[str, int]) -> NoReturn:
    """Its last act is the status line; in a pid namespace its exit kills what is left."""
    parent = os.getppid()
    try:
        isolation.die_with_parent()
        isolation.hide_memory()
        # An init with a handler can be signalled from inside; without one the kernel protects it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _close_all_but(set(ends.values()))
        if plan.group is not None:
            cgroup.enter(plan.group)
        if plan.place.root:
            namespaces.pivot(plan.place.root)
        isolation.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        main = os.fork()
        if main == 0:
            _main(plan, ends)
        status = _watch(main, plan, parent)
    except Exception as error:
        status = {"setup_failed": fault(error)}
    os.write(ends["status"], json.dumps(status).encode() + b"\n")
    signal.pause()  # the supervisor kills; ending here could let an orphan slip away where there is no pid namespace
    os._exit(0)


def _watch(main: int, plan: Plan, parent: int) -> dict:
    """How main ended: its exit code, or the limit for which it has to be stopped.

    What is watched is looked at once more when main ends well: a script can be quicker than the watch.
    """
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, _POLL_S)
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if ended[0] == main:
                code = os.waitstatus_to_exitcode(ended[1])
                limit = _exceeded(plan) if plan.watched and code == 0 else ""
                return {"stopped": limit} if limit else {"code": code}
        if plan.watched and (limit := _exceeded(plan)):
            return {"stopped": limit}
        if os.getppid() != parent and not plan.layers.namespaces:  # it ended while the signal for that was off
            raise RuntimeError("the supervisor has ended")


def _exceeded(plan: Plan) -> str:
    limits, place, family = plan.limits, plan.place, processes.below(os.getpid())
    living = [process.pid for process in family if process.living]
    if "pids" in plan.watched and len(living) > limits["pids"]:
        return "pids"
    if "cpu" in plan.watched and processes.cpu_s_of(os.getpid(), family) > limits["cpu_s"]:
        return "cpu"
    if "memory" in plan.watched:
        with isolation.acting_as(place.uid):  # whose processes they are: others may not read their exact size
            if processes.memory_over(living, limits["memory_mb"] << 20):
                return "memory"
    disk_bytes = limits["disk_mb"] << 20
    if "disk" in plan.watched and disk.over(list(place.writable), living, place.uid, disk_bytes):
        return "disk"
    return ""


# ---------------------------------------------------------------- the script's process
def _main(plan: Plan, ends: dict[str, int]) -> NoReturn:
    place, limits = plan.place, plan.limits
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(ends["stdout"], 1)
        os.dup2(ends["stderr"], 2)
        _close_all_but({0, 1, 2, ends["status"], ends["report"]})
        isolation.drop(plan.layers, place.uid, limits, plan.readable, place.writable, plan.group is not None)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.chdir(place.workspace)
        os.umask(0o077)
        os.environ.update(dict.fromkeys(_FOLDER_VARIABLES, place.temporary))
        if runner.wants_cold(plan.source):
            _start_cold(plan, ends["report"])
        os.close(ends["status"])  # from here on nothing that happens is the sandbox's failure
    except Exception as error:
        os.write(ends["status"], json.dumps({"setup_failed": fault(error)}).encode() + b"\n")
        os._exit(1)
    try:
        code = runner.main(plan.source, f"{place.workspace}/script.py", plan.library, plan.seed, ends["report"])
    except BaseException:  # a script that broke the interpreter's own functions must not return into the sandbox's
        code = 1
    os._exit(code)


def _start_cold(plan: Plan, report_fd: int) -> None:
    """Become a fresh interpreter that runs the same runner; the status pipe closes with this process's memory."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))  # such libraries reserve far more than they use
    os.set_inheritable(report_fd, True)
    arguments = [f"{plan.place.workspace}/script.py", json.dumps(plan.library), str(plan.seed), str(report_fd)]
    os.execv(sys.executable, [sys.executable, "-s", "-P", "-c", plan.runner, *arguments])


def _close_all_but(kept: set[int]) -> None:
    low = 3
    for fd in sorted(kept):
        if fd >= low:
            os.closerange(low, fd)
            low = fd + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
