"""A system-call filter for the script: what it never needs and what escapes have used answers EPERM.

Second layer below namespaces and the dropped uid: it closes nested user namespaces, mounts, ptrace, bpf, io_uring and
kernel keyrings. Where no network namespace exists it also limits `socket` to AF_UNIX. x86_64 only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

# number -> name, x86_64
_DENIED = (
    *(101, 310, 311, 312, 438),  # ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd
    *(155, 161, 165, 166),  # pivot_root, chroot, mount, umount2
    *(272, 308),  # unshare, setns
    *(428, 429, 430, 431, 432, 433, 442),  # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr
    *(298, 321, 323),  # perf_event_open, bpf, userfaultfd
    *(425, 426, 427),  # io_uring
    *(248, 249, 250),  # keyrings
    *(163, 172, 173, 175, 179, 246, 304, 313, 320),  # acct, io ports, modules, quotactl, kexec, open_by_handle_at
)
_CLONE, _CLONE3, _SOCKET = 56, 435, 41
_CLONE_NEW_ANY = 0x7E020000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARG0 = 0, 4, 16
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x50001, 0x50026
_AUDIT_X86_64 = 0xC000003E
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


def available() -> bool:
    return platform.machine() == "x86_64"


def _program(unix_sockets_only: bool) -> bytes:
    """Classic BPF: a jump counts the instructions it skips if the test holds / fails."""

    def op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    steps = [
        op(_LOAD, _ARCH),
        op(_EQUAL, _AUDIT_X86_64, 1, 0),
        op(_RETURN, _KILL),
        op(_LOAD, _NUMBER),
        op(_AT_LEAST, 0x40000000, 0, 1),  # the x32 table would walk around every number below
        op(_RETURN, _EPERM),
        op(_EQUAL, _CLONE3, 0, 1),  # its flags lie in memory: glibc falls back to clone, whose flags can be read
        op(_RETURN, _ENOSYS),
        *(step for number in _DENIED for step in (op(_EQUAL, number, 0, 1), op(_RETURN, _EPERM))),
        op(_EQUAL, _CLONE, 0, 3),
        op(_LOAD, _ARG0),
        op(_ANY_BIT, _CLONE_NEW_ANY, 0, 1),
        op(_RETURN, _EPERM),
        op(_LOAD, _NUMBER),
    ]
    if unix_sockets_only:
        steps += [op(_EQUAL, _SOCKET, 0, 3), op(_LOAD, _ARG0), op(_EQUAL, 1, 1, 0), op(_RETURN, _EPERM)]
    return b"".join([*steps, op(_RETURN, _ALLOW)])


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(unix_sockets_only: bool) -> None:
    """Filter this process and all it starts. `no_new_privs` must be set. Raises OSError where the kernel refuses."""
    code = _program(unix_sockets_only)
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp filter refused: " + os.strerror(ctypes.get_errno()))
