"""Endings in words: brief ones never change, full ones name limit and remedy, notes tell what a status hides."""

import asyncio
import itertools

import pytest

from mlexpert.harness import causes
from mlexpert.harness.observation import FULL, SHORT
from mlexpert.types import ExecStatus

NAMES = itertools.count()
ENDED = {
    "idle": (
        {"status": ExecStatus.TIMEOUT, "reason": "wall limit of 10 s", "wall_s": 10.0, "cpu_s": 0.04},
        "timeout: wall limit of 10 s; it used no CPU (0.0 s): it waited, for a lock, a process of its own or input",
    ),
    "slow": (
        {"status": ExecStatus.TIMEOUT, "reason": "wall limit of 10 s", "wall_s": 10.0, "cpu_s": 9.9},
        "timeout: wall limit of 10 s; it used 9.9 s of CPU: fit less, or on fewer rows",
    ),
    "oom": (
        {"status": ExecStatus.OOM, "reason": "memory limit of 300 MB", "oom_kills": 2},
        "out of memory: memory limit of 300 MB; hold less data at a time, use smaller types or fewer parallel jobs",
    ),
    "pids": (
        {"status": ExecStatus.PIDS, "reason": "limit of 64 processes and threads"},
        "too many processes: limit of 64 processes and threads; start fewer of them, for instance with n_jobs=1",
    ),
    "disk": (
        {"status": ExecStatus.DISK, "reason": "disk limit of 16 MB"},
        "too much disk used: disk limit of 16 MB; write less to the working folder, /tmp and /dev/shm",
    ),
    "bus": (
        {"status": ExecStatus.KILLED, "signal": 7, "reason": "signal 7, SIGBUS (/dev/shm is full)"},
        "killed by signal 7, SIGBUS (/dev/shm is full); share less memory, for instance num_workers=0 in a DataLoader",
    ),
    "usr1": (
        {"status": ExecStatus.KILLED, "signal": 10, "reason": "signal 10, SIGUSR1"},
        "killed by signal 10, SIGUSR1",
    ),
    "exception": (
        {"status": ExecStatus.ERROR, "exception": "KeyError", "message": "'a'", "reason": "KeyError: 'a'"},
        "KeyError: 'a'",
    ),
    "old journal": ({"status": ExecStatus.KILLED, "signal": 10}, "killed by signal 10"),
    "old timeout": (
        {"status": ExecStatus.TIMEOUT, "cpu_s": 0.1, "wall_s": 0.1},
        "timeout: the script ran too long; it used 0.1 s of CPU: fit less, or on fewer rows",
    ),
}


def observed(play, make, say, style, **fields):
    game = play([make.execution("printed\n", **fields)], [make.graded(0.5)], style=style, name=f"n{next(NAMES)}")
    return asyncio.run(game.environment.step(say.run())).text.split("\n")


@pytest.mark.parametrize(("fields", "line"), ENDED.values(), ids=ENDED.keys())
def test_a_full_observation_names_limit_and_remedy(play, make, say, fields, line):
    assert observed(play, make, say, FULL, **fields)[2] == line
    assert len(line) <= FULL.error


@pytest.mark.parametrize("status", [one for one in ExecStatus if one is not ExecStatus.SETUP_FAILED])
def test_what_the_sandbox_adds_changes_no_short_observation(play, make, say, status):
    added = {"reason": "wall limit of 10 s", "oom_kills": 2, "truncated": True, "stdout_bytes": 10, "stderr_bytes": 1}
    fields = {"status": status, "signal": 7, "exception": "E" * (status is ExecStatus.ERROR), "message": "m"}
    assert observed(play, make, say, SHORT, **fields, **added) == observed(play, make, say, SHORT, **fields)


def test_a_child_that_died_and_output_that_is_cut_are_told(play, make, say):
    fields = {"oom_kills": 1, "reason": "memory limit of 300 MB: a process of the script was killed"}
    assert observed(play, make, say, FULL, **fields)[1:3] == [
        "printed",
        "1 process that the script started died for lack of memory: its results may be incomplete",
    ]
    cut = make.execution(truncated=True, stdout_bytes=1_000_000, stderr_bytes=7, status=ExecStatus.TIMEOUT, oom_kills=1)
    assert causes.notes(cut) == ("output cut: the script wrote 1000000 bytes to stdout, 7 to stderr",)


def test_what_a_script_prints_or_raises_decides_nothing(make):
    """A message is quoted where the exception is named, and nowhere else."""
    quoted = make.execution("x", status=ExecStatus.ERROR, exception="E", message="out of memory", stderr="Killed")
    assert (causes.brief(quoted), causes.full(quoted), causes.notes(quoted)) == (*["E: out of memory"] * 2, ())
