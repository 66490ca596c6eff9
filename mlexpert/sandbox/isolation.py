"""Confinement by Linux namespaces, from the inside: a process gives up the host step by step and cannot take it back.

    enter      new mount, pid, network, ipc and uts namespaces (as a plain user: inside a new user namespace)
    build_root a memory-backed root that shows the interpreter and system libraries read-only, and nothing else
    pivot      that root becomes / with its own /proc, the host's tree is detached
    drop       in the script's process: limits, another uid, no capabilities, no new privileges, call filter

Killing the first process of a pid namespace kills all of it, whatever sessions or groups its members made. As root no
user namespace is used: a uid mapped to the host's root would still be root to the files of /proc. Kernel 5.12 or newer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path

from mlexpert.sandbox import seccomp

WORKSPACE = "/workspace"
NAMESPACES, USER, PLAIN = "namespaces", "user", "plain"

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
_DETACH = 2
_PDEATHSIG, _DUMPABLE, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 24, 36, 38
_MOUNT_SETATTR, _AT_RECURSIVE = 442, 0x8000  # the same number on every architecture
_INSIDE_UID = 1000
_LIBC = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: object) -> None:
    """Call libc; raise OSError naming the call. Strings become bytes, None a null pointer."""
    raw = [a.encode() if isinstance(a, str) else a for a in arguments]
    if getattr(_LIBC, function)(*raw) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}{arguments}: {os.strerror(number)}")


def die_with_parent() -> None:
    _call("prctl", _PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def hide_memory() -> None:
    """Nobody of the same uid may attach to, or read the memory or environment of, this process."""
    _call("prctl", _DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    _call("prctl", _SUBREAPER, 1, 0, 0, 0)


# ---------------------------------------------------------------- entering
def enter(kind: str) -> None:
    """Leave the host's namespaces; children are born in the new pid namespace. Raises OSError where it is blocked."""
    flags = _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS
    if kind == USER:
        uid, gid = os.getuid(), os.getgid()
        _call("unshare", flags | _NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{_INSIDE_UID} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{_INSIDE_UID} {gid} 1")
    else:
        _call("unshare", flags)
    _mount(None, "/", None, _REC | _PRIVATE)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    _call("mount", source, target, kind, ctypes.c_ulong(flags), options)


def _restrict(target: str, attributes: int, recursive: bool = True) -> None:
    """Add read-only, nosuid, nodev, noexec (same bits as the mount flags) to a mount and those below it."""
    values = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = ctypes.c_uint(_AT_RECURSIVE if recursive else 0)
    _call("syscall", ctypes.c_long(_MOUNT_SETATTR), -100, target, flags, ctypes.byref(values), ctypes.c_size_t(32))


def visible_paths() -> list[str]:
    """Host paths that scripts may read: interpreter, installed packages, system libraries; none lies inside another.

    Only `bin` and `lib` of each prefix are shown: a project that keeps its environment inside its own folder, or
    lives below /usr, stays hidden.
    """
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    wanted = [os.path.join(p, part) for p in prefixes for part in ("bin", "lib", "lib64", "pyvenv.cfg")]
    wanted += [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    wanted += ["/bin", "/lib", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo"]
    wanted += ["/etc/ld.so.cache", "/etc/localtime"]
    wanted += [os.path.realpath(p) for p in wanted]
    kept: list[str] = []
    for path in sorted({os.path.abspath(p) for p in wanted if os.path.exists(p)}):
        if not any(path.startswith(k + "/") for k in kept):
            kept.append(path)
    return kept


def build_root(root: str, visible: list[str], owner: int, disk_mb: int, workspace_mb: int) -> str:
    """Mount the new root at the empty folder `root` (private to this namespace); return the workspace's path in it."""
    _mount("root", root, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for folder in ("dev", "etc", "proc", "tmp", "workspace"):
        os.mkdir(f"{root}/{folder}")
    _mount("tmp", f"{root}/tmp", "tmpfs", _NOSUID | _NODEV, f"size={disk_mb}m,mode=1777,nr_inodes=4096")
    for path in visible:
        _show(path, root)
    for device in ("null", "zero", "full", "random", "urandom"):
        _show(f"/dev/{device}", root, _NOSUID)
    os.mkdir(f"{root}/dev/shm")
    _mount("shm", f"{root}/dev/shm", "tmpfs", _NOSUID | _NODEV, f"size={disk_mb}m,mode=1777,nr_inodes=1024")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    Path(root, "etc/passwd").write_text(f"sandbox:x:{owner}:{owner}::/tmp:/bin/sh\n")
    workspace = root + WORKSPACE
    options = f"size={workspace_mb}m,mode=700,nr_inodes=4096,uid={owner},gid={owner}"
    _mount("workspace", workspace, "tmpfs", _NOSUID | _NODEV, options)
    return workspace


def _show(path: str, root: str, attributes: int = _RDONLY | _NOSUID | _NODEV) -> None:
    target = root + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path) and os.path.dirname(path) == "/":
        os.symlink(os.readlink(path), target)  # /lib -> usr/lib
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    _mount(path, target, None, _BIND | _REC)
    _restrict(target, attributes)


def pivot(root: str) -> None:
    """In the first process of the pid namespace: make `root` the / of all processes here, with their own /proc.

    /proc comes before the pivot: in a user namespace the kernel grants it only while the host's is still in view.
    """
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    os.chdir(root)
    _call("pivot_root", ".", ".")
    _call("umount2", ".", _DETACH)
    os.chdir("/")
    _restrict("/", _RDONLY, recursive=False)


# ---------------------------------------------------------------- dropping
def slot_uid(kind: str, server_pid: int, slot: int) -> int:
    """A uid of its own per slot, so that process counts and signals of two sandboxes do not meet."""
    return 50_000 + (server_pid * 16 + slot) % 10_000 if kind == NAMESPACES else _INSIDE_UID


def drop(kind: str, uid: int, limits: dict) -> None:
    """Make this process the script's: limits first, then identity, then the doors that must stay shut."""
    _set_limits(kind, limits)
    _call("prctl", _DUMPABLE, 1, 0, 0, 0)  # else its own files below /proc/self are closed to it
    Path("/proc/self/oom_score_adj").write_text("1000")
    if kind == NAMESPACES:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif kind == USER:
        _drop_capabilities()
    die_with_parent()  # a change of identity clears this and the next, so they come after
    _call("prctl", _DUMPABLE, 1, 0, 0, 0)
    _call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
    if seccomp.available():
        seccomp.install(unix_sockets_only=kind == PLAIN)


def _set_limits(kind: str, limits: dict) -> None:
    megabyte = 1 << 20
    virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    wanted = {
        # Reserved address space is not memory in use (thread stacks, arenas): the watch over the whole tree is tighter.
        resource.RLIMIT_AS: virtual + (2 * limits["memory_mb"] + 512) * megabyte,
        resource.RLIMIT_CPU: max(1, int(limits["cpu_s"] + 0.999)),
        resource.RLIMIT_FSIZE: limits["disk_mb"] * megabyte,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: 0,
    }
    if kind != PLAIN:  # counted per uid: without a uid of its own a script would count all of its user's processes
        wanted[resource.RLIMIT_NPROC] = limits["pids"]
    for name, value in wanted.items():
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # Only a soft limit below the hard one sends SIGXCPU, which tells a time limit from any other kill.
        resource.setrlimit(
            name, (value, value + 1) if name == resource.RLIMIT_CPU and value != hard else (value, value)
        )


def _drop_capabilities() -> None:
    for capability in range(64):
        if _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # past the last capability of this kernel
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


# ---------------------------------------------------------------- watching and killing
def processes_below(ancestor: int) -> list[int]:
    """Living descendants, orphans included, provided that `ancestor` adopts orphans (or is a namespace's init)."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):  # it ended meanwhile
                state, parent = Path("/proc", entry, "stat").read_text(errors="replace").rsplit(")", 1)[1].split()[:2]
                if state not in "ZX":
                    parents[int(entry)] = int(parent)
    below, frontier = [], [ancestor]
    while frontier:
        frontier = [pid for pid, parent in parents.items() if parent in frontier]
        below += frontier
    return below


def memory_over(pids: list[int], limit: int) -> bool:
    """Whether the processes together hold more than `limit` bytes above what they share with anyone else.

    Resident size is an upper bound that costs nothing to read; the exact proportional size is read only beyond it.
    """
    page = resource.getpagesize()
    if sum(_first_number(pid, "statm", 1) for pid in pids) * page <= limit:
        return False
    return sum(_first_number(pid, "smaps_rollup", None) for pid in pids) * 1024 > limit


def _first_number(pid: int, file: str, column: int | None) -> int:
    with contextlib.suppress(OSError):  # it ended meanwhile
        text = Path(f"/proc/{pid}/{file}").read_text()
        if column is not None:
            return int(text.split()[column])
        return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return 0


def kill_tree(init: int, kind: str, patience_s: float = 10.0) -> None:
    """Kill all that runs below this process and reap it. Raises TimeoutError if something outlives SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(init, signal.SIGKILL)
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        if kind == PLAIN:
            for pid in processes_below(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG if kind == PLAIN else 0) != (0, 0):
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)
    raise TimeoutError(f"processes outlived SIGKILL for {patience_s} s: {processes_below(os.getpid())}")
