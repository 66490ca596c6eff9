"""The kinds of isolation as layers, and the last steps with which a process becomes the script's.

    namespaces  own mounts, processes, network and root; killed whole by killing the first process inside
    own_uid     a user that nobody else is: needs root; killed whole by killing that user's processes
    landlock    files, TCP and signals out of reach by the process's own decision
    container   /workspace, /tmp and /dev/shm are file systems of limited size that a container engine made

Nothing but `layers` knows a kind by name. Whatever the layers, every script has limits, no new privileges, and the call
filter where the machine has one.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import pwd
import resource
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlexpert.sandbox import landlock, processes, seccomp
from mlexpert.sandbox.namespaces import call

NAMESPACES, USER, LANDLOCK, CONTAINER, PLAIN = "namespaces", "user", "landlock", "container", "plain"
SLOTS = 64  # executions that one server can keep apart

_PDEATHSIG, _GET_PDEATHSIG, _DUMPABLE, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS = 1, 2, 4, 24, 36, 38
# Below 65536, which is all that many containers map, and above what distributions give to people.
_FIRST_UID, _END_UID = 50_000, 60_000
_SPARE_PROCESSES = 512
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Layers:
    inputs: Literal["bind", "link", "copy"]  # how the script gets its files
    namespaces: bool = False
    user_namespace: bool = False
    own_uid: bool = False
    landlock: bool = False
    container: bool = False

    @property
    def guarded(self) -> bool:
        """Whether a script can do nothing to the processes that watch it."""
        return self.namespaces or self.own_uid


def layers(kind: str) -> Layers:
    """Raises OSError for a kind that cannot work for this user or on this kernel, ValueError for an unknown one."""
    root, has_landlock = os.geteuid() == 0, landlock.abi() > 0
    if kind == USER and root:
        raise OSError("as root a user namespace does not isolate: use namespaces")
    if kind == LANDLOCK and not has_landlock:
        raise OSError("this kernel has no Landlock, or it is switched off")
    known = {
        NAMESPACES: Layers("bind", namespaces=True, own_uid=True),
        USER: Layers("bind", namespaces=True, user_namespace=True),
        LANDLOCK: Layers("link", landlock=True, own_uid=root),
        CONTAINER: Layers("link", container=True, landlock=has_landlock, own_uid=True),
        PLAIN: Layers("copy"),
    }
    if kind not in known:
        raise ValueError(f"isolation kind {kind!r}: one of {', '.join(known)}")
    return known[kind]


# ---------------------------------------------------------------- identities
def claim_uids() -> int:
    """The first of a range of uids, two per slot, that no other server here uses as long as this process lives.

    The claim is the name of a socket, which the kernel takes back whatever happens. A range with a user of the machine
    in it is passed over: that user's processes would be killed with a script's.
    """
    taken = processes.uids_in_use() | {user.pw_uid for user in pwd.getpwall()}
    for first in range(_FIRST_UID, _END_UID - 2 * SLOTS, 2 * SLOTS):
        if taken.intersection(range(first, first + 2 * SLOTS)):
            continue
        claim = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            claim.bind(f"\0mlexpert-sandbox-uids-{first}")
            _CLAIMS.append(claim)
            return first
        claim.close()
    raise OSError(f"all uids from {_FIRST_UID} to {_END_UID} are in use by other sandboxes")


_CLAIMS: list[socket.socket] = []


@contextlib.contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Touch files with the rights of `uid` and no others. Its processes cannot signal or trace us meanwhile."""
    before, from_parent = os.geteuid(), ctypes.c_int()
    if uid == before:
        yield
        return
    call("prctl", _GET_PDEATHSIG, ctypes.byref(from_parent), 0, 0, 0)
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)
        os.setegid(os.getgid())
        die_with_parent(from_parent.value)  # a change of identity clears it


def die_with_parent(number: int = signal.SIGKILL) -> None:
    call("prctl", _PDEATHSIG, int(number), 0, 0, 0)


def hide_memory() -> None:
    """Nobody of the same uid may attach to, or read the memory or environment of, this process."""
    call("prctl", _DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    call("prctl", _SUBREAPER, 1, 0, 0, 0)


# ---------------------------------------------------------------- becoming the script's process
def drop(
    layers: Layers, uid: int, limits: dict, readable: Sequence[str], writable: Sequence[str], counted: bool
) -> None:
    """Make this process the script's: limits first, then identity, then the doors that must stay shut.

    `counted`: a control group counts all memory. `readable` and `writable` matter to Landlock alone.
    """
    _set_limits(layers, limits)
    call("prctl", _DUMPABLE, 1, 0, 0, 0)  # else its own files below /proc/self are closed to it
    Path("/proc/self/oom_score_adj").write_text("1000")
    if layers.own_uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif layers.user_namespace:
        _drop_capabilities()
    die_with_parent()  # a change of identity clears this and the next, so they come after
    call("prctl", _DUMPABLE, 1, 0, 0, 0)
    call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
    if layers.landlock:
        # In a container only GPUs that the engine was asked for have devices.
        landlock.restrict(readable, writable, glob.glob("/dev/nvidia*") if layers.container else ())
    if seccomp.available():
        seccomp.install(
            unix_sockets_only=not layers.namespaces,
            hidden_memory=layers.namespaces and counted,
            shared_uid=layers.landlock and not layers.container,  # sockets of the machine are in reach by their path
        )


def _set_limits(layers: Layers, limits: dict) -> None:
    megabyte = 1 << 20
    virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    wanted = {
        resource.RLIMIT_CPU: max(1, int(limits["cpu_s"] + 0.999)),
        resource.RLIMIT_FSIZE: limits["disk_mb"] * megabyte,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: 1,  # 0 would still feed a crash handler that the machine runs; 1 byte never does
        resource.RLIMIT_NPROC: limits["pids"],
    }
    if not layers.guarded:  # counted per uid: this one has other processes too, so this only stops an avalanche
        wanted[resource.RLIMIT_NPROC] = _tasks_of(os.getuid()) + limits["pids"] + _SPARE_PROCESSES
    for name, value in wanted.items():
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # Only a soft limit below the hard one sends SIGXCPU, which tells a time limit from any other kill.
        above = value + 1 if name == resource.RLIMIT_CPU and value != hard else value
        resource.setrlimit(name, (value, above))
    # Turns most mistakes into a MemoryError. Reserved address space is not memory in use (thread stacks, arenas): what
    # holds is the control group or the watch over the whole tree, so a soft limit will do.
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    space = virtual + (2 * limits["memory_mb"] + 512) * megabyte
    resource.setrlimit(resource.RLIMIT_AS, (space if hard == resource.RLIM_INFINITY else min(space, hard), hard))


def _tasks_of(uid: int) -> int:
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                count += len(os.listdir(f"/proc/{entry}/task")) if os.stat(f"/proc/{entry}").st_uid == uid else 0
    return count


def _drop_capabilities() -> None:
    for capability in range(64):
        if _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # past the last capability of this kernel
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
