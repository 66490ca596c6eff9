"""Processes seen through /proc: who descends from whom, what they use, and killing all of them for certain.

Two ways to kill, each certain under its own condition:

    kill_below  this process adopts orphans, so everything a script started is a descendant, whatever sessions or groups
                it made. A fork bomb loses because its members are stopped before they are killed: a stopped process
                still counts against the limit on processes, so the bomb cannot replace what it loses.
    kill_uid    a uid that only the script's processes have: one kill(-1) of that uid reaches all of them at once, and
                the kernel lets no fork slip past it. The sender's other identities belong to nobody, so they cannot
                shoot back.

A signal goes through a descriptor of the very process that was looked at, never to a number that may be another's now.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

_KILLER_UID = 65_531  # inside what container engines map; reserved by systemd and Debian, so nobody's
_PAUSE_S = 0.002
_SHOWN = 10  # survivors that an error names
_TICKS = os.sysconf("SC_CLK_TCK")
# By number, the same on every architecture: Python has names for them only if it was built on a recent system.
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434
_LIBC = ctypes.CDLL(None, use_errno=True)


# ---------------------------------------------------------------- looking
@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    name: str
    state: str  # one letter as in /proc/PID/stat: R running, T stopped, Z ended and not reaped, ...
    start: int  # clock ticks since boot
    cpu_s: float  # its own and that of children it has waited for

    @property
    def living(self) -> bool:
        return self.state not in "ZX"


def read(pid: int) -> Process | None:
    """None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 :].rsplit(")", 1)  # a name may hold spaces and brackets
    field = rest.split()
    ticks = sum(int(field[i]) for i in (11, 12, 13, 14))
    return Process(pid, int(field[1]), name, field[0], int(field[19]), ticks / _TICKS)


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; with its pid it names one process for ever. None: no process."""
    process = read(pid)
    return process.start if process else None


def lives(pid: int) -> bool:
    """Whether it is there and has not ended."""
    process = read(pid)
    return process is not None and process.living


def below(ancestor: int, but: Collection[int] = ()) -> list[Process]:
    """All descendants, ended ones too; orphans if `ancestor` adopts them, as the first process of a namespace does.

    Processes `but` are left out, with all below them.
    """
    children: dict[int, list[Process]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := read(int(entry))):
            children.setdefault(process.parent, []).append(process)
    found, frontier = [], [ancestor]
    while frontier:
        born = [process for parent in frontier for process in children.get(parent, ()) if process.pid not in but]
        found += born
        frontier = [process.pid for process in born]
    return found


def processes_below(ancestor: int) -> list[int]:
    """Pids of the living descendants."""
    return [process.pid for process in below(ancestor) if process.living]


def cpu_s_of(root: int, family: list[Process]) -> float:
    """Seconds of processor time of a process, its `below`, and all those they have waited for."""
    return sum(process.cpu_s for process in (read(root), *family) if process)


def memory_over(pids: list[int], limit: int) -> bool:
    """Whether the processes together hold more than `limit` bytes above what they share with anyone else.

    Resident size is an upper bound that costs little to read; the exact proportional size is read only beyond it, and
    only of processes that allow it: one that hides its size, or is another user's, counts with the upper bound.
    """
    if sum(map(_resident, pids)) <= limit:
        return False
    return sum(map(_proportional, pids)) > limit


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm") as file:  # it may have ended meanwhile
        return int(file.read().split()[1]) * resource.getpagesize()
    return 0


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:")), 0)
    except PermissionError:
        return _resident(pid)
    except OSError:  # it ended meanwhile
        return 0


def uids_in_use() -> set[int]:
    """Real uids of all processes in view."""
    return {uid for entry in os.listdir("/proc") if entry.isdigit() and (uid := _real_uid(int(entry))) is not None}


# ---------------------------------------------------------------- killing
def kill_below(patience_s: float = 10.0) -> None:
    """Kill and reap all descendants; this process must adopt orphans. Raises TimeoutError naming who is left."""
    until = time.monotonic() + patience_s

    def family() -> list[Process]:
        return [process for process in below(os.getpid()) if process.living]

    while True:
        found = _shoot_each(family, patience_s / 4)
        if not reap() and not found:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"processes outlived SIGKILL for {patience_s} s: {_names(family())}")
        time.sleep(_PAUSE_S)


def kill_strays(kept: Collection[int], patience_s: float = 10.0) -> None:
    """Kill all descendants but the children `kept` and what is below them. Those that ended stay to be reaped.

    Raises TimeoutError naming who is left.
    """
    until = time.monotonic() + patience_s

    def family() -> list[Process]:
        return [process for process in below(os.getpid(), kept) if process.living]

    while found := _shoot_each(family, patience_s / 4):
        if time.monotonic() > until:
            raise TimeoutError(f"processes outlived SIGKILL for {patience_s} s: {_names(found)}")
        time.sleep(_PAUSE_S)


def kill_uid(uid: int, patience_s: float = 10.0) -> None:
    """Kill all processes of a uid, for which this process needs CAP_SETUID. Raises TimeoutError naming who is left.

    Those that were this process's children stay to be reaped. Raises ValueError for root's and one's own uid.
    """
    if uid in (0, os.getuid(), os.geteuid()):
        raise ValueError(f"uid {uid} is not a script's")
    until = time.monotonic() + patience_s
    while family := _of_uid(uid):
        try:
            _shoot_at_once(uid)
        except BlockingIOError:  # no helper can be born: make room
            _shoot_each(lambda: _of_uid(uid), patience_s / 4)
        if time.monotonic() > until:
            raise TimeoutError(f"processes of uid {uid} outlived SIGKILL for {patience_s} s: {_names(family)}")
        time.sleep(_PAUSE_S)


def reap() -> bool:
    """Collect every child that has ended; whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return False
    return True


def _shoot_each(look: Callable[[], list[Process]], patience_s: float) -> list[Process]:
    """Stop all, however fast they multiply, as long as something limits their number; then kill all that were found."""
    until = time.monotonic() + patience_s
    while True:
        found = look()
        moving = [process for process in found if process.state not in "Tt"]
        if not moving or time.monotonic() > until:
            break
        for process in moving:
            _signal(process, signal.SIGSTOP)
    for process in found:
        _signal(process, signal.SIGKILL)
    return found


def _signal(process: Process, number: int) -> None:
    """Signal this very process; one that ended, or may not be signalled, is left for the next look."""
    fd = _LIBC.syscall(_PIDFD_OPEN, process.pid, 0)
    try:
        if start_time(process.pid) != process.start:
            return
        if fd >= 0:
            _LIBC.syscall(_PIDFD_SEND_SIGNAL, fd, int(number), None, 0)
        else:  # a kernel before 5.3
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
    finally:
        if fd >= 0:
            os.close(fd)


def _shoot_at_once(uid: int) -> None:
    """One kill(-1) from a helper of that uid. Raises BlockingIOError where no process can be born."""
    helper = os.fork()
    if helper == 0:
        try:
            _become_killer(uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):  # reaped by the kernel where SIGCHLD is ignored
        os.waitpid(helper, 0)


def _become_killer(uid: int) -> None:
    """Effective uid: the targets'. Real and saved uid: nobody's, and only these decide who may signal us."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    try:
        os.setresuid(_KILLER_UID, uid, _KILLER_UID)
    except OSError:  # not mapped in this user namespace
        os.setresuid(uid, uid, uid)


def _of_uid(uid: int) -> list[Process]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    found = (read(pid) for pid in pids if _real_uid(pid) == uid)
    return [process for process in found if process and process.living]


def _real_uid(pid: int) -> int | None:
    """None if it ended. Not the effective uid: a server may act as a script's user for a moment."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(b"Uid:")), None)
    return None


def _names(processes: list[Process]) -> str:
    shown = ", ".join(f"{p.pid} ({p.name}, {p.state})" for p in processes[:_SHOWN])
    return shown + (f" and {len(processes) - _SHOWN} more" if len(processes) > _SHOWN else "")
