"""Attacks on memory: of one process, of many, and where no process is seen to hold it."""

from __future__ import annotations

from mlexpert.sandbox.attacks.attack import DISK_FULL, ERROR, KILLED, MEMORY, OK, OOM, PIDS, Attack
from mlexpert.types import Execution

# Each hog stops by itself at three times the limit of 400 MB: if it gets there, nothing stopped it.
_HOG = """
kept = []
for _ in range(1200): kept.append(bytearray(b"x" * (1 << 20)))
print("HOLE 1200 MB")
"""
_COUNT_THE_LIVING = """
for _ in range(100):
    if any(os.waitpid(child, os.WNOHANG)[0] for child in children): break
    time.sleep(0.05)
else: print("HOLE", len(children), "children hold 100 MB each")
"""
_CHILDREN = (
    """
import os, time
children = []
for _ in range(12):
    children.append(os.fork())
    if children[-1] == 0:
        kept = b"x" * (100 << 20)
        time.sleep(60)
        os._exit(0)
"""
    + _COUNT_THE_LIVING
)
_HIDDEN_HOG = """
import ctypes, resource
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # not dumpable: its own user may no longer read its size
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
"""
_CHILD_ONLY = """
import os
child = os.fork()
if child == 0:
    kept = []
    for _ in range(1200): kept.append(bytearray(b"x" * (1 << 20)))
    os._exit(0)
status = os.waitpid(child, 0)[1]
if status == 0: print("HOLE the child held 1200 MB")
"""
_SHARED = (
    """
import mmap, os, time
children = []
for _ in range(12):
    shared = mmap.mmap(-1, 100 << 20)
    children.append(os.fork())
    if children[-1] == 0:
        for at in range(0, 100 << 20, 4096): shared[at] = 1
        time.sleep(60)
        os._exit(0)
    del shared
"""
    + _COUNT_THE_LIVING
)
_MEMFD = """
import os
kept = []
try:
    for n in range(60):
        kept.append(os.memfd_create(f"m{n}"))
        for _ in range(20): os.write(kept[-1], bytes(1 << 20))
        os.ftruncate(kept[-1], 16 << 20)
except PermissionError: print("refused")
else: print("HOLE", len(kept), "memory files of 16 MB")
"""
_SYSTEM_V = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for n in range(40):
    segment = libc.shmget(0, 30 << 20, 0o1600)
    if segment < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    place = libc.shmat(segment, None, 0)
    libc.shmctl(segment, 0, None)  # it goes with its last user, if no sandbox takes it away
    if place == ctypes.c_void_p(-1).value: raise MemoryError("shmat")
    ctypes.memset(place, 1, 30 << 20)
    libc.shmdt(ctypes.c_void_p(place)) if n % 2 else None
print("HOLE 600 MB in segments of System V")
"""
_SOCKETS = """
import mmap, os, socket, struct, time
sent = mmap.mmap(-1, 4096)
for child in range(48):
    if os.fork() == 0:
        kept, total = [], 0
        try:
            while True:
                kept += socket.socketpair()
                kept[-1].setblocking(False)
                try:
                    while True:
                        total += kept[-1].send(bytes(1 << 14))
                        struct.pack_into("Q", sent, 8 * child, total)
                except BlockingIOError: pass
        except OSError: pass
        time.sleep(60)
        os._exit(0)
time.sleep(3)
megabytes = sum(struct.unpack_from("48Q", sent)) >> 20
if megabytes > 500: print("HOLE", megabytes, "MB wait in sockets")
"""


def _told_of_the_child(run: Execution, *_: Execution) -> str:
    if run.status is OK and run.oom_kills == 0:
        return "a child was killed for memory and nobody is told"
    return ""


def _names_the_limit(run: Execution, *_: Execution) -> str:
    return "" if "memory" in run.reason else f"the reason does not speak of memory: {run.reason!r}"


ATTACKS = (
    Attack("one hog", "7", MEMORY, "one process takes all it gets", _HOG, (OOM,), _names_the_limit),
    Attack("hidden hog", "7", MEMORY, "hides its size, then takes all it gets", _HIDDEN_HOG + _HOG, (OOM,)),
    Attack(
        "one huge array",
        "7",
        MEMORY,
        "asks for 800 GB at once",
        "import numpy as np\nnp.ones(10**11)\nprint('HOLE')",
        (OOM,),
        _names_the_limit,
    ),
    Attack(
        "many small hogs",
        "8",
        MEMORY,
        "twelve children, each below the limit",
        _CHILDREN,
        (OK, OOM),
        _told_of_the_child,
    ),
    Attack(
        "hog in a child",
        "10",
        MEMORY,
        "a child is killed for memory, main ends with code 0",
        _CHILD_ONLY,
        (OK, OOM),
        _told_of_the_child,
    ),
    Attack(
        "shared maps", "9", MEMORY, "anonymous memory shared between processes", _SHARED, (OK, OOM), _told_of_the_child
    ),
    Attack(
        "memory files", "9", MEMORY, "memfd_create, where it is allowed", _MEMFD, (OK, OOM, ERROR, DISK_FULL, KILLED)
    ),
    Attack("System V segments", "9 32", MEMORY, "shmget", _SYSTEM_V, (OOM, ERROR, DISK_FULL, KILLED)),
    Attack(
        "full sockets",
        "9",
        MEMORY,
        "fills the buffers of as many sockets as it may open",
        _SOCKETS,
        (OK, OOM, PIDS),
        unpromised={"memory is looked at": "buffers of sockets belong to no process: only a cgroup counts them"},
    ),
)
