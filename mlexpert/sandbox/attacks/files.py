"""Attacks on files: the secrets of the machine, its settings, and what the next execution will find.

The owner plants a secret with a known beginning in all the places where real ones lie: its private folder, /tmp, shared
memory, its environment and the command line, environment and memory of a process beside it.
"""

from __future__ import annotations

from mlexpert.sandbox.attacks import attack
from mlexpert.sandbox.attacks.attack import FILES, SEMANTICS, TOOLS, Attack

_SECRET = (
    TOOLS
    + """
import re
SECRET = re.compile(rb"planted" rb"-secret-[0-9a-f]{16}")  # in two parts: not found in this script itself
def search(name, read):
    try: data = read()
    except (OSError, ValueError, MemoryError): return
    for found in set(SECRET.findall(data)): hole(name, found.decode())
"""
)
_WALK = (
    _SECRET
    + """
def load(path):
    if not stat.S_ISREG(os.stat(path).st_mode): return b""
    with open(path, "rb") as file: return file.read(1 << 16)
known = ["@FOLDER@", "/tmp", "/var/tmp", "/root", "/home", "/run", "/etc", "/work", "/mnt", "/srv", "/opt"]
roots = [*known, *(f"/proc/{p}/{where}@FOLDER@" for p in ("self", "1", @PID@) for where in ("root", "cwd"))]
end = time.monotonic() + 8
for root in roots:
    for folder, names, files in os.walk(root):
        names[:] = [n for n in names if n not in ("site-packages", "proc", "sys")]
        for name in files:
            search(f"{folder}/{name}", lambda: load(f"{folder}/{name}"))
        if time.monotonic() > end: break
for path in ("/etc/shadow", "/root/.ssh/id_rsa", "/dev/mem", "/dev/kmsg", "/proc/kcore", "/proc/kmsg", "/dev/vda",
             "/dev/sda", "/var/run/docker.sock", "/run/docker.sock", "@FOLDER@/answers.csv", "/proc/1/environ"):
    forbidden(path, lambda: open(path, "rb").read(1), but=(b"",))
"""
)
_SHARED = (
    _SECRET
    + """
for folder, names, files in os.walk("/dev/shm"):
    for name in files: search(f"{folder}/{name}", lambda: open(f"{folder}/{name}", "rb").read(1 << 16))
"""
)
_PROC = (
    _SECRET
    + """
for pid in (pids() | {@PID@}) - {os.getpid()}:
    for name in ("environ", "maps", "stack", "syscall", "auxv", "io"):
        search(f"/proc/{pid}/{name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1 << 16))
    for name in ("cwd", "root", "exe"):
        if pid != os.getppid(): forbidden(f"/proc/{pid}/{name}", os.readlink, f"/proc/{pid}/{name}")
    try: fds = os.listdir(f"/proc/{pid}/fd")
    except OSError: continue
    for fd in fds: forbidden(f"/proc/{pid}/fd/{fd}", os.readlink, f"/proc/{pid}/fd/{fd}")
"""
)
_COMMAND_LINES = (
    _SECRET
    + """
for pid in pids() | {@PID@}:
    search(f"/proc/{pid}/cmdline", lambda: open(f"/proc/{pid}/cmdline", "rb").read(1 << 16))
"""
)
_OWN_MEMORY = (
    _SECRET
    + """
import gc
for name, value in os.environ.items():
    search("environment", lambda: f"{name}={value}".encode())
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in maps.read().splitlines():
        span, rights, *_ = line.split()
        if not rights.startswith("rw"): continue
        low, high = (int(at, 16) for at in span.split("-"))
        def load():
            memory.seek(low)
            return memory.read(min(high - low, 64 << 20))
        search(f"memory {span}", load)
for fd in range(3, 256):
    try: mode = os.fstat(fd).st_mode
    except OSError: continue
    if not stat.S_ISFIFO(mode): hole("descriptor", fd, os.readlink(f"/proc/self/fd/{fd}"))
"""
)
_OWN_FRAMES = (
    TOOLS
    + """
import gc, inspect, linecache
def load(name):
    try: return __import__(name)
    except ImportError as error: raise OSError from error
for words in (("answers", "csv"), ("grad", "er"), ("sample", "_submission")):
    word = "".join(words)
    for name in list(sys.modules):
        if name.startswith("mlexpert") and word in name: hole("module", name)
for name in ("mlexpert", "mlexpert.tasks", "mlexpert.tasks.grading", "mlexpert.loops"):
    forbidden(f"import {name}", lambda: load(name))
for path in sys.path:
    if path and os.path.isdir(os.path.join(path, "mlexpert")): hole("sources of the sandbox in", path)
"""
)
_SETTINGS = (
    TOOLS
    + """
def write(path, data):
    fd = os.open(path, os.O_WRONLY | (os.O_CREAT if path.endswith(("x", ".py", "preload")) else 0))
    try: os.write(fd, data)
    finally: os.close(fd)
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/modprobe",
             "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/sys/fs/binfmt_misc/register",
             "/sys/kernel/uevent_helper", "/proc/1/oom_score_adj", "/proc/1/mem",
             "/etc/passwd", "/etc/ld.so.preload", "/x", "/usr/lib/x", "/bin/x", os.path.dirname(os.__file__) + "/x.py"):
    forbidden(path, write, path, b"1")
for folder in [p for p in sys.path if p.endswith("-packages")] + [sys.prefix + "/bin"]:
    forbidden(folder, write, folder + "/sitecustomize.py", b"")
forbidden("the interpreter", os.open, os.path.realpath(sys.executable), os.O_WRONLY)
forbidden("own oom score", write, "/proc/self/oom_score_adj", b"-1000")
forbidden("user map", write, "/proc/self/uid_map", f"0 {os.getuid()} 1".encode())
forbidden("device", os.mknod, "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
for folder, names, files in os.walk("/sys/fs/cgroup"):
    for name in files:
        if name in ("cgroup.procs", "tasks", "memory.max", "memory.limit_in_bytes", "pids.max", "release_agent"):
            forbidden(f"{folder}/{name}", os.open, f"{folder}/{name}", os.O_WRONLY)
"""
)
_WRITABLE = (
    TOOLS
    + """
allowed = (os.getcwd(), "/workspace", "/tmp", "/dev/shm", "/proc", "/dev/mqueue")
end = time.monotonic() + 8
for folder, names, files in os.walk("/"):
    if folder.startswith(allowed) or folder.startswith("/sys"): names.clear(); continue
    if folder.count("/") > 6: names.clear()
    if os.access(folder, os.W_OK):
        forbidden(f"write in {folder}", os.mkdir, folder + "/owned")
    if time.monotonic() > end: break
"""
)
_LEAVES = """
import ctypes, fcntl, os, socket
libc = ctypes.CDLL(None)
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", "."):
    for name in ("left-behind", "numpy.py", "sitecustomize.py"):
        try:
            file = open(f"{folder}/{name}", "w")
            file.write("raise SystemExit(3)")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError: pass
libc.shmget(0x5EC2E7, 4096, 0o1666)
libc.semget(0x5EC2E7, 1, 0o1666)
libc.msgget(0x5EC2E7, 0o1666)
"""
_FINDS = """
import ctypes, os, numpy
libc = ctypes.CDLL(None)
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", "."):
    try: found = sorted(os.listdir(folder))
    except OSError: continue
    for name in ("left-behind", "sitecustomize.py", "numpy.py"):
        if name in found: print("HOLE", folder, name)
for name in ("shmget", "semget", "msgget"):
    arguments = (0x5EC2E7, 0, 0) if name != "msgget" else (0x5EC2E7, 0)
    if getattr(libc, name)(*arguments) >= 0: print("HOLE", name)
print(sorted(os.listdir(".")))
"""
_TRAPS = """
import os
for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "numpy.py", "pandas.py", "json.py", "csv.py",
             "evil.pth", "script.py", "os.py", "mlexpert.py"):
    with open(name, "w") as file: file.write("raise SystemExit('trap')")
os.makedirs("__pycache__", exist_ok=True)
open("__pycache__/script.cpython-311.pyc", "w").write("x")
"""
_UNTRAPPED = """
import csv, json, os, numpy, pandas
print(sorted(os.listdir(".")), pandas.DataFrame({"a": [1]}).to_csv(index=False))
"""
_INPUTS = """
import os, shutil
for name in os.listdir("."):
    if name == "script.py": continue
    for spoil in (lambda: os.chmod(name, 0o777), lambda: open(name, "w").write("spoiled"), lambda: os.truncate(name, 0),
                  lambda: os.utime(name, (0, 0)), lambda: os.unlink(name), lambda: shutil.rmtree(name),
                  lambda: os.rename(name, "moved")):
        try: spoil()
        except OSError: pass
print("done")
"""
_INTACT = """
import os
if open("train.csv").read() != "id,target\\n1,0\\n2,1\\n": print("HOLE spoiled inputs")
if open("folder/deep.txt").read() != "deep": print("HOLE spoiled inputs")
"""

ATTACKS = (
    Attack("searches the disk", "21 17", FILES, "answers, keys and devices, by name and by walking", _WALK),
    Attack(
        "searches shared memory",
        "21 39",
        FILES,
        "files of other programs in /dev/shm",
        _SHARED,
        unpromised={"landlock": "locks between processes need /dev/shm, which is that of the machine"},
    ),
    Attack("searches /proc", "21 30", FILES, "environments, folders and descriptors of other processes", _PROC),
    Attack(
        "reads command lines",
        "21",
        FILES,
        "the arguments of other processes",
        _COMMAND_LINES,
        unpromised={"landlock": "the names and arguments of other processes can be seen in /proc"},
    ),
    Attack(
        "searches its own memory",
        "21 22",
        SEMANTICS,
        "memory, environment, open files of the server's fork",
        _OWN_MEMORY,
    ),
    Attack("looks for the grader", "22", FILES, "modules and sources of the house", _OWN_FRAMES),
    Attack("changes settings", "30", FILES, "/proc/sys, /sys, cgroup files, the interpreter", _SETTINGS),
    Attack("writes everywhere", "30 E11", FILES, "tries every folder that it can see", _WRITABLE),
    Attack("leaves traces", "32 25", FILES, "files, locks, shared memory for the next execution", _LEAVES, then=_FINDS),
    Attack("sets traps", "25", SEMANTICS, "modules that the next execution might import", _TRAPS, then=_UNTRAPPED),
    Attack(
        "spoils the inputs",
        "31",
        SEMANTICS,
        "writes, deletes and renames the public files",
        _INPUTS,
        fault=attack.prints("done\n"),
        then=_INTACT,
    ),
)
