"""A system-call filter for scripts: what they never need and what escapes have used does not work.

Second layer below namespaces and the dropped uid. It closes nested user namespaces, mounts, ptrace, bpf, io_uring,
keyrings and handles into other processes; a call newer than this list does not exist (ENOSYS), as on an older kernel,
so C libraries fall back. Everything else stays allowed: numeric libraries differ too much for a list of permissions.
One table serves x86_64, aarch64 and, by name, the profile of a container engine.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from errno import EPERM

# name: number on x86_64, number on aarch64 (None: the call does not exist there)
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # into other processes
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272)},
    **{"pidfd_getfd": (438, 438), "process_madvise": (440, 440), "process_mrelease": (448, 448)},
    **{"migrate_pages": (256, 238), "move_pages": (279, 239)},
    # mounts and namespaces
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51)},
    **{"open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431)},
    **{"fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467)},
    **{"statmount": (457, 457), "listmount": (458, 458), "unshare": (272, 97), "setns": (308, 268)},
    # large kernel interfaces with a long history of holes
    **{"bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282)},
    **{"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)},
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)},
    **{"fanotify_init": (300, 262), "fanotify_mark": (301, 263), "open_by_handle_at": (304, 265)},
    **{"modify_ldt": (154, None), "uselib": (134, None), "vmsplice": (278, 75)},
    # the whole machine
    **{"kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "syslog": (103, 116)},
    **{"init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106)},
    **{"iopl": (172, None), "ioperm": (173, None), "acct": (163, 89), "vhangup": (153, 58)},
    **{"quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225)},
    **{"sethostname": (170, 161), "setdomainname": (171, 162), "nfsservctl": (180, 42), "lookup_dcookie": (212, 18)},
    **{"settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266)},
}
_HIDDEN_MEMORY = {  # memory and messages that no limit on files sees and that may outlive their maker
    **{"memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186)},
    **{"semget": (64, 190), "mq_open": (240, 180)},
}
_OTHERS_BY_PID = {  # what may be done to any process of one's own uid; the first argument 0 means oneself
    **{"prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setparam": (142, 118)},
    **{"sched_setscheduler": (144, 119), "sched_setattr": (314, 274)},
}
_CONNECTIONS = {"connect": (42, 203)}
_TO_OTHERS = {"setpriority": (141, 140), "ioprio_set": (251, 30)}
_METADATA: dict[str, tuple[int | None, int | None]] = {  # modes, owners, times, attributes of files
    **{"chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)},
    **{"chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54)},
    **{"utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88)},
    **{"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463)},
    **{"removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466)},
    **{"file_setattr": (469, 469)},
}
_CHECKED = {  # allowed with some arguments
    **{"clone": (56, 220), "clone3": (435, 435), "socket": (41, 198), "socketpair": (53, 199)},
    **{"personality": (135, 92), "ioctl": (16, 29)},
}
_LAST_KNOWN = 469  # file_setattr, Linux 6.17; new calls have one number on all machines
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH_*

_NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEW*
_UNIX, _INET, _INET6 = 1, 2, 10
_DATAGRAM, _TYPE_BITS = 2, 0xF
_TERMINAL_INPUT, _CONSOLE = 0x5412, 0x541C  # TIOCSTI types into the terminal that started the trainer; TIOCLINUX
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)  # plain, 32-bit uname, "which one?"; the rest weakens mmap

_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _EPERM, _ENOSYS, _PRETEND = 0x7FFF0000, 0x80000000, 0x50001, 0x50026, 0x50000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


def available() -> bool:
    return platform.machine() in _MACHINES


def install(unix_sockets_only: bool, hidden_memory: bool, shared_uid: bool = False) -> None:
    """Filter this process and all it starts; `no_new_privs` must be set. Raises OSError where the kernel refuses.

    unix_sockets_only  where there is no network namespace: no socket that could leave the machine.
    hidden_memory      allow memory and System V or POSIX objects that live in no file: right where a cgroup counts them
                       and the ipc namespace ends with the execution.
    shared_uid         where sockets, processes and files of the machine's other programs are in view, perhaps of one's
                       own user. Sockets come in connected pairs only: some programs resolve names or start others for
                       whoever connects, and Landlock does not guard that. No change of others' limits or scheduling; a
                       change of modes, owners or times of files, which Landlock does not guard either, only seems to
                       succeed.
    """
    code = _program(platform.machine(), unix_sockets_only, hidden_memory, shared_uid)
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp filter refused: " + os.strerror(ctypes.get_errno()))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


# ---------------------------------------------------------------- classic BPF
def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction; a jump counts the instructions it skips if its test holds / fails."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _program(machine: str, unix_sockets_only: bool, hidden_memory: bool, shared_uid: bool) -> bytes:
    column, architecture = _MACHINES[machine]
    denied = {**_DENIED, **({} if hidden_memory else _HIDDEN_MEMORY)}
    denied |= {**_CONNECTIONS, **_TO_OTHERS} if shared_uid else {}
    families = (_UNIX,) if unix_sockets_only or shared_uid else (_UNIX, _INET, _INET6)
    number = {name: numbers[column] for name, numbers in {**_CHECKED, **_OTHERS_BY_PID}.items()}
    blocks = [
        _op(_LOAD, _ARCH) + _op(_EQUAL, architecture, 1, 0) + _op(_RETURN, _KILL),  # another table of numbers
        _op(_LOAD, _NUMBER) + _op(_ABOVE, _LAST_KNOWN, 0, 1) + _op(_RETURN, _ENOSYS),  # x32's table lies above too
        *_answers(denied, column, _EPERM),
        *_answers(_METADATA if shared_uid else {}, column, _PRETEND),
        # Its flags lie in memory, where no filter looks: C libraries then use clone.
        _op(_EQUAL, number["clone3"], 0, 1) + _op(_RETURN, _ENOSYS),
        _when(number["clone"], _op(_LOAD, _ARGUMENTS) + _op(_ANY_BIT, _NAMESPACE_FLAGS, 0, 1) + _op(_RETURN, _EPERM)),
        _when(number["personality"], _only(0, _PERSONALITIES)),
        _when(number["ioctl"], _never(1, (_TERMINAL_INPUT, _CONSOLE))),
        _when(number["socket"], _only(0, families)),
        _when(number["socketpair"], _only(0, (_UNIX,))),
    ]
    if shared_uid:
        blocks += [_when(number[name], _only(0, (0,))) for name in _OTHERS_BY_PID]
        # A datagram needs no connection to reach a socket: only streams are left.
        blocks += [_when(number[name], _no_datagrams()) for name in ("socket", "socketpair")]
    return b"".join([*blocks, _op(_RETURN, _ALLOW)])


def _answers(calls: dict, column: int, answer: int) -> list[bytes]:
    present = [numbers[column] for numbers in calls.values() if numbers[column] is not None]
    return [_op(_EQUAL, number, 0, 1) + _op(_RETURN, answer) for number in present]


def _when(number: int | None, block: bytes) -> bytes:
    """Run `block` for this call alone, then go on with the call's number loaded again."""
    assert number is not None
    return _op(_EQUAL, number, 0, len(block) // 8 + 1) + block + _op(_LOAD, _NUMBER)


def _only(argument: int, values: tuple[int, ...]) -> bytes:
    """EPERM unless the low 32 bits of the argument, which is all the kernel reads of an int, are one of the values."""
    tests = b"".join(_op(_EQUAL, value, len(values) - i, 0) for i, value in enumerate(values))
    return _op(_LOAD, _ARGUMENTS + 8 * argument) + tests + _op(_RETURN, _EPERM)


def _never(argument: int, values: tuple[int, ...]) -> bytes:
    tests = b"".join(_op(_EQUAL, value, 0, 1) + _op(_RETURN, _EPERM) for value in values)
    return _op(_LOAD, _ARGUMENTS + 8 * argument) + tests


def _no_datagrams() -> bytes:
    load = _op(_LOAD, _ARGUMENTS + 8) + _op(_AND, _TYPE_BITS)
    return load + _op(_EQUAL, _DATAGRAM, 0, 1) + _op(_RETURN, _EPERM)


# ---------------------------------------------------------------- the same list for a container engine
def docker_profile() -> dict:
    """The list as a seccomp profile for Docker (`security_opt=["seccomp=" + json.dumps(...)]`).

    It allows by default, as the filter above does, and for the same reason; also so that the server in the container
    may change uids and install Landlock and this module's filter, which looks at more arguments, for each script.
    Without a list of architectures only the machine's own table of calls exists.
    """

    def rule(names: list[str], errno_: int = EPERM, *tests: dict) -> dict:
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno_, "args": list(tests)}

    def test(operator: str, value: int, value_two: int = 0) -> dict:
        return {"index": 0, "value": value, "valueTwo": value_two, "op": f"SCMP_CMP_{operator}"}

    flags = [1 << bit for bit in range(32) if _NAMESPACE_FLAGS >> bit & 1]
    families = [family for family in range(_INET6) if family not in (_UNIX, _INET)]
    rules = [rule(sorted(_DENIED)), rule(["clone3"], _ENOSYS & 0xFFFF)]
    rules += [rule(["clone"], EPERM, test("MASKED_EQ", flag, flag)) for flag in flags]
    rules += [rule(["socket"], EPERM, test("EQ", family)) for family in families]
    rules += [rule(["socket"], EPERM, test("GT", _INET6))]
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}
