"""Landlock: files, TCP, signals and abstract sockets out of reach, by a process's own decision and for good.

Everything the running kernel's version can govern is denied, then the given folders are opened again, together with
the devices and the facts about the machine that any program may know (`_FACTS`). A right unknown to the kernel must
not be named, and a rule for a file must not name rights of folders, so both are masked. Kernel 5.13 or newer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterator, Sequence

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_SINCE = {_REFER: 2, _TRUNCATE: 3, _IOCTL_DEVICE: 5}  # version that brought the right; all others came with 1
FILES_SINCE = 3  # before, a file out of reach could still be emptied
SIGNALS_SINCE = 6  # before, processes of one's own uid could still be killed
_NETWORK_SINCE = 4
_TCP, _SCOPE = 3, 3  # bind | connect; abstract unix sockets | signals

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ALL = (1 << 16) - 1
_WRITE = _ALL & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEVICE)
_CONTROL = _READ_FILE | _WRITE_FILE | _IOCTL_DEVICE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Read by C libraries and by libraries that count processors; some fail if a file exists and cannot be read. Of /proc a
# script needs what its children have not been born with, so all of it is open: names, arguments and sizes of other
# processes can be read, while Landlock keeps their memory, environment and files closed.
_FACTS = (
    "/proc",
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage"),
    *("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION, _PATH_BENEATH = 1, 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The kernel's version of Landlock; 0 where it is missing, switched off, or denied to this process."""
    return max(0, _syscall(_CREATE_RULESET, None, 0, _VERSION))


def restrict(readable: Sequence[str], writable: Sequence[str], devices: Sequence[str] = ()) -> None:
    """Confine this thread and all it starts: read and execute below `readable`, all but devices below `writable`.

    `devices` may be read, written and controlled, beside the few that every program needs.

    `no_new_privs` must be set, and capabilities gone: with CAP_PERFMON others' environments could still be read. Not
    governed: connections to sockets that have a path, and modes, owners and times of files. Raises FileNotFoundError
    for a path that does not exist, OSError where the kernel refuses.
    """
    version = abi()
    if version == 0:
        raise OSError("this kernel has no Landlock, or it is switched off")
    handled = _handled(version)
    with _ruleset(version, handled) as ruleset:
        for paths, rights in ((readable, _READ), (writable, _WRITE), (devices, _CONTROL)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        for paths, rights in ((_DEVICES, _READ_FILE | _WRITE_FILE), (_FACTS, _READ_FILE | _READ_DIR)):
            for path in paths:
                with contextlib.suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                    _allow(ruleset, path, rights & handled)
        _checked(_RESTRICT_SELF, ruleset, 0)


def _handled(version: int) -> int:
    return _ALL & ~sum(right for right, since in _SINCE.items() if version < since)


@contextlib.contextmanager
def _ruleset(version: int, handled: int) -> Iterator[int]:
    fields = [handled]
    if version >= _NETWORK_SINCE:
        fields.append(_TCP)
    if version >= SIGNALS_SINCE:
        fields.append(_SCOPE)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    fd = _checked(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        yield fd
    finally:
        os.close(fd)


def _allow(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)  # follows a link: the rule belongs to the file behind it
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        _checked(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    whole = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _LIBC.syscall(ctypes.c_long(number), *whole)


def _checked(number: int, *arguments: int | bytes | None) -> int:
    result = _syscall(number, *arguments)
    if result < 0:
        name = {_CREATE_RULESET: "create_ruleset", _ADD_RULE: "add_rule", _RESTRICT_SELF: "restrict_self"}[number]
        raise OSError(ctypes.get_errno(), f"landlock_{name}: {os.strerror(ctypes.get_errno())}")
    return result
