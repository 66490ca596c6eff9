"""The filter in a live process of this machine, and its program for both machines in a small BPF interpreter."""

import errno
import json
import signal
import struct

import pytest
from fresh import printed, python

from mlexpert.sandbox import seccomp

live = pytest.mark.skipif(not seccomp.available(), reason="no system-call filter for this machine type")

FILTERED = """
import ctypes, json, os, sys
from errno import *
from mlexpert.sandbox import seccomp
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)  # no_new_privs
column = seccomp._MACHINES[os.uname().machine][0]
def number(name):
    tables = (seccomp._DENIED, seccomp._HIDDEN_MEMORY, seccomp._OTHERS_BY_PID, seccomp._TO_OTHERS, seccomp._METADATA,
              seccomp._CHECKED, seccomp._CONNECTIONS)
    return next(table[name][column] for table in tables if name in table)
def call(name, *arguments):
    ctypes.set_errno(0)
    which = name if isinstance(name, int) else number(name)
    result = libc.syscall(ctypes.c_long(which), *map(ctypes.c_long, arguments))
    return errorcode.get(ctypes.get_errno(), "ok") if result < 0 else "ok"
"""


# ---------------------------------------------------------------- live
@live
def test_every_denied_call_is_refused():
    source = (
        FILTERED
        + """
seccomp.install(unix_sockets_only=True, hidden_memory=False)
names = [n for n, numbers in {**seccomp._DENIED, **seccomp._HIDDEN_MEMORY}.items() if numbers[column] is not None]
print(len(names) > 50, [name for name in names if call(name, -1, -1, -1, -1, -1) != "EPERM"])
"""
    )
    assert printed(source) == "True []\n"


@live
def test_namespaces_stay_shut_and_new_calls_do_not_exist():
    source = (
        FILTERED
        + """
seccomp.install(unix_sockets_only=False, hidden_memory=True)
print([call("clone", flag | 17, 0, 0, 0, 0) for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000)])
print(call("clone3", 0, 0), call(seccomp._LAST_KNOWN + 1), call(0x40000000 + 39))
print(os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1])
"""
    )
    assert printed(source) == "['EPERM', 'EPERM', 'EPERM', 'EPERM']\nENOSYS ENOSYS ENOSYS\n0\n"


@live
def test_sockets_cannot_leave_the_machine():
    source = (
        FILTERED
        + """
import socket
seccomp.install(unix_sockets_only=sys.argv[1] == "True", hidden_memory=True)
inet, dirty, unix, netlink, vsock, packet = 2, 1 << 32 | 2, 1, 16, 40, 17
print(*[call("socket", family, 1, 0) for family in (inet, dirty, unix, netlink, vsock, packet)])
a, b = socket.socketpair()
a.send(b"x")
print(b.recv(1), call("socketpair", inet, 1, 0, 0))
"""
    )
    assert printed(source, True) == "EPERM EPERM ok EPERM EPERM EPERM\nb'x' EPERM\n"
    assert printed(source, False) == "ok ok ok EPERM EPERM EPERM\nb'x' EPERM\n"


@live
def test_memory_outside_of_files_is_allowed_only_where_it_is_counted():
    source = (
        FILTERED
        + """
seccomp.install(unix_sockets_only=False, hidden_memory=sys.argv[1] == "True")
try:
    os.close(os.memfd_create("x")); print("made")
except PermissionError:
    print("refused")
"""
    )
    assert printed(source, True) == "made\n"
    assert printed(source, False) == "refused\n"


@live
def test_arguments_that_are_checked_are_checked_as_the_kernel_reads_them():
    source = (
        FILTERED
        + """
seccomp.install(unix_sockets_only=False, hidden_memory=True)
print([call("ioctl", 0, request, 0) for request in (0x5412, 1 << 32 | 0x5412, 0x541C)])
no_randomization, what_is_it = 0x40000, 0xFFFFFFFF
print(call("personality", no_randomization), call("personality", what_is_it), call("personality", 0))
"""
    )
    assert printed(source) == "['EPERM', 'EPERM', 'EPERM']\nEPERM ok ok\n"


@live
def test_where_other_programs_sockets_are_in_view_sockets_come_in_pairs(tmp_path):
    source = (
        FILTERED
        + """
import socket
os.chdir(sys.argv[1])
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[2]); server.listen()
seccomp.install(unix_sockets_only=True, hidden_memory=True, shared_uid=sys.argv[2] == "shared")
def attempt(act):
    try: act(); return "ok"
    except OSError as error: return errorcode[error.errno]
print(attempt(lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[2])))
print(attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)))
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))
"""
    )
    assert printed(source, tmp_path, "alone") == "ok\nok\nb'x'\n"
    assert printed(source, tmp_path, "shared") == "EPERM\nEPERM\nb'x'\n"


@live
def test_a_script_of_a_shared_uid_reaches_none_of_its_users_other_things(tmp_path):
    source = (
        FILTERED
        + """
import resource, socket
os.chdir(sys.argv[1])
server = socket.socket(socket.AF_UNIX); server.bind("socket"); server.listen()
open("file", "w").close(); os.chmod("file", 0o640)
seccomp.install(unix_sockets_only=True, hidden_memory=True, shared_uid=True)
def attempt(act):
    try: act(); return "ok"
    except OSError as error: return errorcode[error.errno]
parent = os.getppid()
print(attempt(lambda: socket.socket(socket.AF_UNIX).connect("socket")))
print(attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)))
print(attempt(lambda: resource.prlimit(parent, resource.RLIMIT_CPU)), attempt(lambda: os.sched_getaffinity(parent)))
print(attempt(lambda: os.sched_setaffinity(parent, {0})), attempt(lambda: os.setpriority(os.PRIO_PROCESS, parent, 5)))
print(attempt(lambda: os.chmod("file", 0)), attempt(lambda: os.utime("file", (1, 1))), oct(os.stat("file").st_mode))
print(attempt(lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))), len(socket.socketpair()))
"""
    )
    expected = "EPERM\nEPERM\nEPERM ok\nEPERM EPERM\nok ok 0o100640\nok 2\n"
    assert printed(source, tmp_path) == expected


@live
def test_what_numeric_scripts_use_works_under_the_strictest_filter(tmp_path):
    source = (
        FILTERED
        + """
import asyncio, multiprocessing, shutil, subprocess, tempfile, threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
seccomp.install(unix_sockets_only=True, hidden_memory=False, shared_uid=True)
if __name__ == "__main__":
    os.chdir(sys.argv[1])
    import numpy as np
    print(float((np.ones((300, 300)) @ np.ones((300, 300))).sum()))
    np.save("a.npy", np.arange(3)); shutil.copy2("a.npy", "b.npy")
    print(np.load("b.npy", mmap_mode="r").sum(), len(tempfile.mkdtemp(dir=".")) > 0)
    print(subprocess.run(["/bin/sh", "-c", "echo sub"], capture_output=True, text=True).stdout.strip())
    fork = multiprocessing.get_context("fork")
    print(sum(fork.Pool(2).map(abs, [-1, -2])), ProcessPoolExecutor(2, fork).submit(abs, -3).result())
    print(ThreadPoolExecutor(2).submit(abs, -4).result(), asyncio.run(asyncio.sleep(0, "async")))
    queue = fork.Queue(); queue.put(5); print(queue.get())
"""
    )
    assert printed(source, tmp_path) == "27000000.0\n3 True\nsub\n3 3\n4 async\n5\n"


@pytest.mark.skipif(not seccomp.available() or seccomp.platform.machine() != "x86_64", reason="an x86 instruction")
def test_the_32_bit_table_of_calls_is_deadly():
    source = (
        FILTERED
        + """
import mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))  # mov eax, getpid; int 0x80; ret
function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
seccomp.install(unix_sockets_only=False, hidden_memory=True)
function()
"""
    )
    assert python(source).returncode in (-signal.SIGSYS, -signal.SIGSEGV)  # the latter: a kernel without that table


# ---------------------------------------------------------------- both machines
def verdict(program, architecture, number, *arguments):
    """What the kernel's interpreter would return: classic BPF over struct seccomp_data."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(a & (1 << 64) - 1 for a in padded))
    accumulator, position = 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("=HBBI", program, 8 * position)
        position += 1
        if code == seccomp._LOAD:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == seccomp._AND:
            accumulator &= value
        elif code == seccomp._RETURN:
            return value
        else:
            holds = {
                seccomp._EQUAL: accumulator == value,
                seccomp._ABOVE: accumulator > value,
                seccomp._ANY_BIT: accumulator & value != 0,
            }[code]
            position += if_true if holds else if_false


MACHINES = list(seccomp._MACHINES)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("strict", [False, True])
def test_each_machine_has_its_own_numbers(machine, strict):
    column, architecture = seccomp._MACHINES[machine]
    program = seccomp._program(machine, strict, hidden_memory=not strict, shared_uid=strict)

    def of(table, *arguments):
        numbers = (numbers[column] for numbers in table.values())
        return {verdict(program, architecture, number, *arguments) for number in numbers if number is not None}

    assert of(seccomp._DENIED) == {seccomp._EPERM}
    for table in (seccomp._HIDDEN_MEMORY, seccomp._CONNECTIONS, seccomp._TO_OTHERS):
        assert of(table) == {seccomp._EPERM if strict else seccomp._ALLOW}
    assert of(seccomp._METADATA) == {seccomp._PRETEND if strict else seccomp._ALLOW}
    assert of(seccomp._OTHERS_BY_PID, 0) == {seccomp._ALLOW}
    assert of(seccomp._OTHERS_BY_PID, 7) == {seccomp._EPERM if strict else seccomp._ALLOW}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_calls_of_every_program_and_of_the_server_are_allowed(machine):
    # read, write, openat, mmap, execve, exit_group, futex, kill, prctl, setresuid, seccomp, landlock, pidfd_open
    ordinary = {
        "x86_64": (0, 1, 257, 9, 59, 231, 202, 62, 157, 117, 317, 444, 434, 57),
        "aarch64": (63, 64, 56, 222, 221, 94, 98, 129, 167, 147, 277, 444, 434),
    }[machine]
    program = seccomp._program(machine, True, False, False)
    assert {verdict(program, seccomp._MACHINES[machine][1], n) for n in ordinary} == {seccomp._ALLOW}
    assert verdict(program, 0x40000003, 0) == seccomp._KILL


def test_numbers_are_unique():
    tables = [seccomp._DENIED, seccomp._HIDDEN_MEMORY, seccomp._OTHERS_BY_PID, seccomp._TO_OTHERS]
    tables += [seccomp._METADATA, seccomp._CONNECTIONS, seccomp._CHECKED]
    for column in (0, 1):
        numbers = [n[column] for table in tables for n in table.values() if n[column] is not None]
        assert len(numbers) == len(set(numbers)) and max(numbers) <= seccomp._LAST_KNOWN


def test_a_refused_filter_is_an_error():
    source = (
        "import os; from mlexpert.sandbox import seccomp; os.getuid() or os.setuid(65534); seccomp.install(True, True)"
    )
    run = python(source)  # without no_new_privs the kernel refuses a plain user's filter
    assert run.returncode == 1 and "seccomp filter refused" in run.stderr


# ---------------------------------------------------------------- the profile of a container engine
def refused(profile, name, *arguments):
    """Whether a rule of the profile meets this call; a rule's tests must all hold."""

    def holds(test):
        value = arguments[test["index"]]
        return {
            "SCMP_CMP_EQ": value == test["value"],
            "SCMP_CMP_GT": value > test["value"],
            "SCMP_CMP_MASKED_EQ": value & test["value"] == test["valueTwo"],
        }[test["op"]]

    rules = [rule for rule in profile["syscalls"] if name in rule["names"]]
    return any(all(holds(test) for test in rule["args"]) for rule in rules)


def test_the_container_profile_says_the_same():
    profile = json.loads(json.dumps(seccomp.docker_profile()))
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
    assert {rule["action"] for rule in profile["syscalls"]} == {"SCMP_ACT_ERRNO"}
    assert all(refused(profile, name) for name in seccomp._DENIED)
    assert [rule["errnoRet"] for rule in profile["syscalls"] if "clone3" in rule["names"]] == [errno.ENOSYS]
    allowed = ("setresuid", "setresgid", "setgroups", "kill", "prctl", "seccomp", "landlock_restrict_self", "chown")
    assert not any(refused(profile, name) for name in (*allowed, "memfd_create", "connect", "execve"))


def test_the_container_profile_looks_at_flags_and_families():
    profile = seccomp.docker_profile()
    fork, thread = 17, 0x3D0F00
    assert not refused(profile, "clone", fork) and not refused(profile, "clone", thread)
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert refused(profile, "clone", flag | fork)
    assert [f for f in range(60) if not refused(profile, "socket", f)] == [1, 2, 10]  # unix, inet, inet6
