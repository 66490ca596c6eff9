"""How an execution ended, in words: what happened, at which limit, and what to do about it.

The cause is the sandbox's own (`Execution.reason`); nothing here is read from what a script printed. `brief` is a
fixed line per kind of ending, for policies with a small vocabulary; `full` and `notes` are for those that can read.
"""

from __future__ import annotations

import signal

from mlexpert.types import ExecStatus, Execution

IDLE = 0.05  # of the wall time: a script that used less of a processor waited rather than computed

_BRIEF = {
    ExecStatus.OK: "",
    ExecStatus.TIMEOUT: "timeout: the script ran too long",
    ExecStatus.OOM: "out of memory",
    ExecStatus.PIDS: "too many processes",
    ExecStatus.DISK: "too much disk used",
}
_REMEDY = {
    ExecStatus.OOM: "hold less data at a time, use smaller types or fewer parallel jobs",
    ExecStatus.PIDS: "start fewer of them, for instance with n_jobs=1",
    ExecStatus.DISK: "write less to the working folder, /tmp and /dev/shm",
}
_SIGNAL_REMEDY: dict[int, str] = {
    signal.SIGBUS: "share less memory, for instance num_workers=0 in a DataLoader",
    signal.SIGSEGV: "compiled code crashed: look at what a library was called with",
    signal.SIGABRT: "compiled code gave up: its last words are in stderr",
    signal.SIGKILL: "no limit was reached: the script killed itself, or the machine had no memory left",
}


def brief(execution: Execution) -> str:
    """One short line, "" if the script ran through. Raises ValueError for a failure of the infrastructure."""
    match execution.status:
        case ExecStatus.KILLED:
            return f"killed by signal {execution.signal}"
        case ExecStatus.ERROR if execution.exception:
            return f"{execution.exception}: {execution.message}" if execution.message else execution.exception
        case ExecStatus.ERROR:
            return f"exit code {execution.exit_code}"
        case ExecStatus.SETUP_FAILED:
            raise ValueError("an infrastructure failure is not a node: it is counted apart and never becomes a result")
    return _BRIEF[execution.status]


def full(execution: Execution) -> str:
    """The same with limit and remedy, as far as they are known: journals of old runs hold no reason."""
    what, reason = brief(execution), execution.reason
    match execution.status:
        case ExecStatus.TIMEOUT:
            return f"timeout: {reason or 'the script ran too long'}; {_pace(execution)}"
        case ExecStatus.KILLED:
            remedy = _SIGNAL_REMEDY.get(execution.signal or 0, "")
            return "; ".join(part for part in (f"killed by {reason}" if reason else what, remedy) if part)
        case ExecStatus.OOM | ExecStatus.PIDS | ExecStatus.DISK:
            return f"{what}{f': {reason}' if reason else ''}; {_REMEDY[execution.status]}"
    return what


def _pace(execution: Execution) -> str:
    if execution.cpu_s < IDLE * execution.wall_s:
        return f"it used no CPU ({execution.cpu_s:.1f} s): it waited, for a lock, a process of its own or input"
    return f"it used {execution.cpu_s:.1f} s of CPU: fit less, or on fewer rows"


def notes(execution: Execution) -> tuple[str, ...]:
    """What else the policy should know: processes that died while the script went on, output that is not shown."""
    lines = []
    if execution.oom_kills and execution.status in (ExecStatus.OK, ExecStatus.ERROR):
        many = "1 process" if execution.oom_kills == 1 else f"{execution.oom_kills} processes"
        lines.append(f"{many} that the script started died for lack of memory: its results may be incomplete")
    if execution.truncated:
        sizes = f"{execution.stdout_bytes} bytes to stdout, {execution.stderr_bytes} to stderr"
        lines.append(f"output cut: the script wrote {sizes}")
    return tuple(lines)
