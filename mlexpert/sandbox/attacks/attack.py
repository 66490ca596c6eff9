"""One attack as data: a script that misbehaves for real, and what must still be true afterwards.

A script tells on the sandbox by printing a line that begins with HOLE: it got what it must not get. Whatever it prints
can only accuse; that it ended as expected, left nothing behind and printed no secret is seen from outside. No script
relies on the sandbox to stop: each is bounded by itself, so that a sandbox with a hole costs time, not the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mlexpert.types import ExecStatus, Execution, Isolation

FILES, NETWORK, PROCESSES = "files", "network", "processes"
MEMORY, CPU, DISK = "memory", "cpu", "disk"
ENDING, INTAKE, OUTPUT, SEMANTICS = "ending", "intake", "output", "semantics"
PROMISES = (FILES, NETWORK, PROCESSES, MEMORY, CPU, DISK, ENDING, INTAKE, OUTPUT, SEMANTICS)

OK, ERROR, TIMEOUT, OOM = ExecStatus.OK, ExecStatus.ERROR, ExecStatus.TIMEOUT, ExecStatus.OOM
KILLED, PIDS, DISK_FULL = ExecStatus.KILLED, ExecStatus.PIDS, ExecStatus.DISK

# The functions that a script may call to try what must fail. Put in front of it where it asks for them.
TOOLS = """\
import ctypes, errno, os, platform, signal, socket, stat, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)

def hole(*words):
    print("HOLE", *words, flush=True)

def forbidden(name, action, *arguments, but=()):  # but: answers that give nothing away
    try:
        got = action(*arguments)
    except OSError:
        return
    if got not in but:
        hole(name, repr(got)[:80])

def pids():  # of all processes that can be seen or felt
    try: return {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except PermissionError: return {pid for pid in range(1, 1 << 16) if exists(pid)}

def exists(pid):
    try: os.kill(pid, 0)
    except OSError as error: return error.errno != errno.ESRCH
    return True

def refused(name, result):  # of a call to libc: it must be turned away at the door, not fail on its arguments
    if result >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        hole(name, result, os.strerror(ctypes.get_errno()))
"""


def nothing(*_: Execution) -> str:
    return ""


@dataclass(frozen=True)
class Attack:
    """`fault` sees the executions (the second is that of `then`) and returns what is wrong with them, or "".

    In scripts @FOLDER@, @PID@, @PORT@, @UDP@ and @ABSTRACT@ stand for the owner's private folder, process, listening
    ports and abstract socket: an attacker who knows where to look.
    """

    name: str
    numbers: str  # of the catalogue, separated by spaces
    promise: str
    tries: str  # one line
    script: str
    expected: tuple[ExecStatus, ...] = (OK,)
    fault: Callable[..., str] = nothing
    limits: Mapping[str, float] = field(default_factory=dict)  # what differs from the check's own
    then: str = ""  # runs afterwards in the same slot and must end well
    beside: str = ""  # runs at the same time in another slot and must end well
    unpromised: Mapping[str, str] = field(default_factory=dict)  # kind, or words of its note -> why there is no promise


def promised(attack: Attack, isolation: Isolation) -> str:
    """ "" if this kind of isolation promises to hold against the attack, else why not.

    What is not promised is not tried either: some scripts would reach the user's other processes and files.
    """
    if not getattr(isolation, attack.promise, True):
        return isolation.note or f"{isolation.kind} makes no promise about {attack.promise}"
    excuses = (why for key, why in attack.unpromised.items() if key == isolation.kind or key in isolation.note)
    return next(excuses, "")


# ---------------------------------------------------------------- checks that attacks share
def prints(text: str) -> Callable[..., str]:
    def fault(run: Execution, *_: Execution) -> str:
        return "" if run.stdout == text else f"printed {run.stdout[:100]!r} instead of {text[:100]!r}"

    return fault


def fails_with(exception: str) -> Callable[..., str]:
    def fault(run: Execution, *_: Execution) -> str:
        return "" if run.exception == exception else f"reported as {run.exception or 'no exception'}, not {exception}"

    return fault


def refuses(name: str, *words: str) -> Callable[..., str]:
    """The file was not collected, and the script's author is told why in one of these words."""

    def fault(run: Execution, *_: Execution) -> str:
        if name in run.files:
            return f"{name} was collected"
        told = any(word in run.stderr for word in words) or not words
        return "" if told else f"nobody is told why {name} was not collected: {run.stderr[-100:]!r}"

    return fault


def collects(name: str, content: bytes) -> Callable[..., str]:
    def fault(run: Execution, *_: Execution) -> str:
        if name not in run.files:
            return f"{name} was not collected: {run.stderr[-100:]!r}"
        got = run.files[name].read_bytes()
        return "" if got == content else f"{name} holds {got[:60]!r}, not {content[:60]!r}"

    return fault


def ends(code: int | None = None, signal: int | None = None) -> Callable[..., str]:
    def fault(run: Execution, *_: Execution) -> str:
        ended = (run.exit_code, run.signal)
        return "" if ended == (code, signal) else f"exit code and signal are {ended}, not {(code, signal)}"

    return fault


def every(*checks: Callable[..., str]) -> Callable[..., str]:
    def fault(*runs: Execution) -> str:
        return next((found for check in checks if (found := check(*runs))), "")

    return fault
