"""Linux namespaces from the inside: a process leaves the host step by step and cannot come back.

    enter      new mount, pid, network, ipc and uts namespaces (as a plain user: inside a new user namespace)
    build_root a memory-backed root that shows the interpreter and system libraries read-only, and nothing else
    bind       one more file or folder of the host in it, read-only
    pivot      for the process that calls it, and all it starts, that root becomes / with its own /proc

Killing the first process of a pid namespace kills all of it, whatever sessions or groups its members made. As root no
user namespace is used: a uid mapped to the host's root would still be root to the files of /proc. Kernel 5.12 or newer.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

WORKSPACE = "/workspace"

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
_DETACH = 2
_MOUNT_SETATTR, _AT_RECURSIVE = 442, 0x8000  # the same number on every architecture
_INSIDE_UID = 1000
INODES = 4096  # files that a script may make in one file system
_LIBC = ctypes.CDLL(None, use_errno=True)


def call(function: str, *arguments: object) -> None:
    """Call libc; raise OSError naming the call. Strings become bytes, None a null pointer."""
    raw = [a.encode() if isinstance(a, str) else a for a in arguments]
    if getattr(_LIBC, function)(*raw) < 0:
        number = ctypes.get_errno()
        shown = ", ".join(str(a) for a in arguments if isinstance(a, str))
        raise OSError(number, f"{function}({shown}): {os.strerror(number)}")


def enter(user_namespace: bool) -> None:
    """Leave the host's namespaces; children are born in the new pid namespace. Raises OSError where it is blocked."""
    flags = _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS
    if user_namespace:
        uid, gid = os.getuid(), os.getgid()
        call("unshare", flags | _NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{_INSIDE_UID} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{_INSIDE_UID} {gid} 1")
    else:
        call("unshare", flags)
    _mount(None, "/", None, _REC | _PRIVATE)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    call("mount", source, target, kind, ctypes.c_ulong(flags), options)


def _restrict(target: str, attributes: int, recursive: bool = True) -> None:
    """Add read-only, nosuid, nodev, noexec (same bits as the mount flags) to a mount and those below it."""
    values = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = ctypes.c_uint(_AT_RECURSIVE if recursive else 0)
    call("syscall", ctypes.c_long(_MOUNT_SETATTR), -100, target, flags, ctypes.byref(values), ctypes.c_size_t(32))


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


def build_root(root: str, visible: list[str], owner: int, disk_mb: int, extra_bytes: int, extra_files: int) -> None:
    """Mount the new root at the empty folder `root` (private to this namespace).

    The workspace has room for `extra_bytes` and `extra_files` beside the script's own.
    """
    _mount("root", root, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for folder in ("dev", "etc", "proc", "tmp", "workspace"):
        os.mkdir(f"{root}/{folder}")
    _mount("tmp", f"{root}/tmp", "tmpfs", _NOSUID | _NODEV, f"size={disk_mb}m,mode=1777,nr_inodes={INODES}")
    for path in visible:
        _show(path, root)
    for device in ("null", "zero", "full", "random", "urandom"):
        _show(f"/dev/{device}", root, _NOSUID)
    os.mkdir(f"{root}/dev/shm")
    _mount("shm", f"{root}/dev/shm", "tmpfs", _NOSUID | _NODEV, f"size={disk_mb}m,mode=1777,nr_inodes={INODES}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    Path(root, "etc/passwd").write_text(f"sandbox:x:{owner}:{owner}::/tmp:/bin/sh\n")
    size, files = (disk_mb << 20) + extra_bytes, INODES + extra_files
    options = f"size={size},mode=700,nr_inodes={files},uid={owner},gid={owner}"
    _mount("workspace", root + WORKSPACE, "tmpfs", _NOSUID | _NODEV, options)


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
    bind(path, target, attributes)


def bind(path: str, target: str, attributes: int = _RDONLY | _NOSUID | _NODEV) -> None:
    """Show a file or folder of the host at an existing place of the same sort."""
    _mount(path, target, None, _BIND | _REC)
    _restrict(target, attributes)


def pivot(root: str) -> None:
    """In the first process of the pid namespace: make `root` its /, with its own /proc.

    It does so in a mount namespace of its own, so its parent still sees the host, the control groups of the host, and
    the workspace where it was. /proc comes before the pivot: in a user namespace the kernel grants it only while the
    host's is still in view.
    """
    call("unshare", _NEWNS)
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    os.chdir(root)
    call("pivot_root", ".", ".")
    call("umount2", ".", _DETACH)
    os.chdir("/")
    _restrict("/", _RDONLY, recursive=False)
