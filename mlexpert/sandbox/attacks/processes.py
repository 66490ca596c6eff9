"""Attacks on processes: more of them than allowed, those of other people, and the privileges to reach further."""

from __future__ import annotations

from mlexpert.sandbox.attacks import attack
from mlexpert.sandbox.attacks.attack import OK, PIDS, PROCESSES, TIMEOUT, TOOLS, Attack
from mlexpert.types import Execution

_LIMIT = 64
_LOOKED_AT = 600  # where the count is only looked at now and then, and a wider limit stops an avalanche
_COUNTED = ("docker", "namespaces", "user")  # where the kernel counts
# Numbers of system calls on the two machine types that the filter knows.
_NUMBERS = (
    TOOLS
    + """
ARM = platform.machine() == "aarch64"
def number(x86_64, aarch64):
    return aarch64 if ARM else x86_64
"""
)
_BOUNDED = """
import os, resource, time
if resource.getrlimit(resource.RLIMIT_NPROC)[0] == resource.RLIM_INFINITY:
    raise SystemExit("HOLE no limit on processes is set: not tried")
"""
_OTHERS = (
    TOOLS
    + """
own = {os.getpid(), os.getppid()}
others = pids() | {@PID@, 1, os.getppid()}
"""
)
_MURDER = (
    _OTHERS
    + """
reached = []
for pid in others - {os.getpid(), 1}:
    try: os.kill(pid, 0)
    except OSError: continue
    reached.append(pid)
if reached:
    hole("may signal", reached)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in (1, os.getppid(), @PID@, -1):
        for number in (signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
            try: os.kill(pid, number)
            except OSError: pass
    print("alive")
"""
)
_PTRACE = (
    _OTHERS
    + """
ATTACH, SEIZE = 16, 0x4206
for pid in sorted(others - {os.getpid()}):
    refused(f"ptrace attach {pid}", libc.ptrace(ATTACH, pid, 0, 0))
    refused(f"ptrace seize {pid}", libc.ptrace(SEIZE, pid, 0, 0))
    room = (ctypes.c_uint64 * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    refused(f"process_vm_readv {pid}", libc.process_vm_readv(pid, room, 1, room, 1, 0))
    for mode in ("rb", "r+b"):
        forbidden(f"memory of {pid}", open, f"/proc/{pid}/mem", mode)
    try: pidfd = os.pidfd_open(pid)
    except OSError: continue
    refused(f"descriptor of {pid}", libc.syscall(438, pidfd, 1, 0))
"""
)
_DOORS = (
    _NUMBERS
    + """
room = ctypes.create_string_buffer(256)
NEWUSER, NEWNS, NEWNET, NEWPID = 0x10000000, 0x20000, 0x40000000, 0x20000000
for flags in (NEWUSER, NEWNS, NEWNET, NEWPID, NEWUSER | NEWNS | NEWPID | NEWNET):
    refused(f"unshare {flags:#x}", libc.unshare(flags))
    child = libc.syscall(number(56, 220), flags | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0: os._exit(0)
    refused(f"clone {flags:#x}", child)
refused("mount", libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
refused("bind", libc.mount(b"/", b"/tmp", None, 4096, None))
refused("umount", libc.umount2(b"/proc", 2))
refused("chroot", libc.chroot(b"/tmp"))
refused("pivot_root", libc.syscall(number(155, 41), b"/tmp", b"/tmp"))
refused("setns", libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0))
refused("bpf", libc.syscall(number(321, 280), 0, room, 128))
refused("perf_event_open", libc.syscall(number(298, 241), room, 0, -1, -1, 0))
refused("userfaultfd", libc.syscall(number(323, 282), 1))
refused("io_uring", libc.syscall(425, 8, room))
refused("add_key", libc.syscall(number(248, 217), b"user", b"a", b"b", 1, -3))
refused("keyctl", libc.syscall(number(250, 219), 0, -3, 1))
refused("kexec", libc.syscall(number(246, 104), 0, 0, 0, 0))
refused("init_module", libc.syscall(number(175, 105), room, 10, b""))
refused("open_by_handle_at", libc.syscall(number(304, 265), -100, room, 0))
refused("new mount api", libc.syscall(430, b"tmpfs", 0))
refused("open_tree", libc.syscall(428, -100, b"/", 1))
refused("swapon", libc.swapon(b"/tmp/x", 0))
refused("settimeofday", libc.settimeofday(room, 0))
refused("sethostname", libc.sethostname(b"owned", 5))
refused("reboot", libc.syscall(number(169, 142), 0, 0, 0, 0))
if not ARM:
    refused("clone3", libc.syscall(435, room, 88))
    if os.fork() == 0:  # some filters kill for it
        refused("x32 table", libc.syscall(0x40000000 + 39))
        os._exit(0)
    os.wait()
    refused("iopl", libc.iopl(3))
"""
)
_ROOT = (
    TOOLS
    + """
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
    if int(status[name], 16): hole(name, status[name])
if status["NoNewPrivs"] != "1": hole("may gain privileges")
if 0 in os.getresuid() + os.getresgid() or 0 in os.getgroups(): hole("root", os.getresuid(), os.getgroups())
for name, drop in (("setuid", os.setuid), ("setgid", os.setgid), ("seteuid", os.seteuid)):
    forbidden(name, drop, 0)
forbidden("setgroups", os.setgroups, [0])
forbidden("nice", os.nice, -5)
forbidden("real time", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
if os.path.exists("/usr/bin/su"):  # set-user-id: it must run, if at all, as nobody special
    shown = subprocess.run(["/usr/bin/su", "-c", "id -u"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if shown.stdout.strip() == "0": hole("su")
"""
)
_VICTIM = """
import os, signal, socket, threading, time
for number in range(1, 32):
    try: signal.signal(number, lambda number, _: print("HOLE signal", number, flush=True))
    except (OSError, ValueError): pass
for path in ("/tmp/victim", "victim"):
    try: open(path, "w").write("of the victim")
    except OSError: pass
door = socket.socket(socket.AF_UNIX)
def receive():
    try: door.bind("\\0victim")
    except OSError: return  # where kinds share the machine's network, another check's victim has the name
    door.listen()
    door.accept()
    print("HOLE visitor", flush=True)
threading.Thread(target=receive, daemon=True).start()
time.sleep(1.5)
print("alive")
"""
_NEIGHBOUR = (
    TOOLS
    + """
mine = lambda: {os.getpid(), os.getppid(), 1}
end = time.monotonic() + 1.2
while time.monotonic() < end:
    for pid in pids() - mine():
        try: os.kill(pid, 0)
        except OSError: continue
        hole("may signal a neighbour", pid)
    forbidden("file of a neighbour", lambda: open("/tmp/victim").read())
    forbidden("socket of a neighbour", socket.socket(socket.AF_UNIX).connect, "\\0victim")
    time.sleep(0.05)
"""
)
_SHARING_VICTIM = """
import os, time
with open("/dev/shm/victim", "w") as file: file.write("of the victim")
time.sleep(1.5)
print("HOLE lost its file" if open("/dev/shm/victim").read() != "of the victim" else "alive")
"""
_SHARING = (
    TOOLS
    + """
end = time.monotonic() + 1.2
while time.monotonic() < end:
    forbidden("shared memory of a neighbour", lambda: open("/dev/shm/victim").read())
    forbidden("shared memory of a neighbour", os.unlink, "/dev/shm/victim")
    time.sleep(0.05)
"""
)


def _stayed_below(run: Execution, *_: Execution) -> str:
    started = int((run.stdout.split() or ["0"])[-1])
    limit = _LIMIT if run.isolation.kind in _COUNTED else _LOOKED_AT
    return "" if started < limit else f"{started} of {limit} allowed"


ATTACKS = (
    Attack(
        "fork bomb",
        "5 26",
        PROCESSES,
        "starts sleeping children until it may not",
        "import os, time\nfor n in range(2000):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\n"
        "    print(n + 1, flush=True)",
        (PIDS,),
        _stayed_below,
    ),
    Attack(
        "endless fork bomb",
        "5",
        PROCESSES,
        "every child forks without end",
        _BOUNDED + "end = time.monotonic() + 60\nwhile time.monotonic() < end:\n    try: os.fork()\n"
        "    except OSError: pass",
        (TIMEOUT,),
        limits={"wall_s": 1.0},
    ),
    Attack(
        "thread bomb",
        "6",
        PROCESSES,
        "starts sleeping threads until it may not",
        "import threading, time\nfor n in range(2000):\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n    print(n + 1, flush=True)",
        (PIDS,),
        _stayed_below,
    ),
    Attack(
        "raises its own limits",
        "5 7",
        PROCESSES,
        "setrlimit above what it was given",
        "import resource\nfor name in ('NPROC', 'CPU', 'FSIZE', 'NOFILE', 'CORE'):\n"
        "    which = getattr(resource, 'RLIMIT_' + name)\n    hard = resource.getrlimit(which)[1]\n"
        "    if hard == resource.RLIM_INFINITY: print('HOLE no limit', name)\n"
        "    try: resource.setrlimit(which, (hard, hard + 1)); print('HOLE raised', name)\n"
        "    except (ValueError, OSError): pass",
    ),
    Attack(
        "kills everyone",
        "27 30 E11",
        PROCESSES,
        "SIGTERM, SIGSTOP and SIGKILL to the first process, its parent, the owner and all",
        _MURDER,
        (OK,),
        attack.prints("alive\n"),
    ),
    Attack("reads other processes", "27 21", PROCESSES, "ptrace, memory and descriptors of all it can name", _PTRACE),
    Attack("opens doors", "29", PROCESSES, "namespaces, mounts, bpf, io_uring, keys and other system calls", _DOORS),
    Attack("becomes root", "29", PROCESSES, "uids, capabilities, priorities, set-user-id programs", _ROOT),
    Attack(
        "attacks its neighbour",
        "39",
        PROCESSES,
        "two executions at once: signals, files and sockets of the other",
        _NEIGHBOUR,
        beside=_VICTIM,
    ),
    Attack(
        "shared memory of its neighbour",
        "39",
        PROCESSES,
        "two executions at once: files in /dev/shm",
        _SHARING,
        beside=_SHARING_VICTIM,
        unpromised={"landlock": "locks between processes need /dev/shm, which is that of the machine"},
    ),
)
