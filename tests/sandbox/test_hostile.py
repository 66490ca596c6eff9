"""What a hostile or broken script gets: bounded, contained, named, and gone when it is over."""

import asyncio
import time

import pytest

from mlexpert.sandbox import isolation, processes
from mlexpert.types import ExecStatus

ORPHAN = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    os._exit(0)
print("main", flush=True)
"""


def below(runner):
    return processes.processes_below(runner.sandbox.server_pid)


def survivors(runner, patience_s=20):
    """Processes that stay; the supervisor itself may need a moment to leave after its answer."""
    until = time.monotonic() + patience_s
    while (left := below(runner)) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def test_a_loop_that_catches_everything_times_out_and_keeps_its_output(any_box):
    script = "print('started')\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"
    run = any_box.run(script, wall_s=1.0)
    assert run.status is ExecStatus.TIMEOUT and run.exit_code is None
    assert run.stdout == "started\n" and 1.0 <= run.wall_s < 20
    assert survivors(any_box) == []


def test_processor_time_is_bounded(isolated):
    assert isolated.run("while True: pass", cpu_s=1.0).status is ExecStatus.TIMEOUT


def test_a_grandchild_that_holds_the_output_delays_nothing_and_dies(any_box):
    run = any_box.run(ORPHAN)
    assert run.status is ExecStatus.OK and run.stdout == "main\n"
    assert survivors(any_box) == []


def test_a_grandchild_dies_with_a_timeout(any_box):
    assert any_box.run(ORPHAN + "time.sleep(600)", wall_s=1.0).status is ExecStatus.TIMEOUT
    assert survivors(any_box) == []


def test_a_fork_bomb_is_bounded(isolated):
    run = isolated.run(
        "import os, time\nn = 0\nwhile True:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n    print(n)"
    )
    assert run.status is ExecStatus.PIDS and run.exception in ("BlockingIOError", "")  # "": somebody else counted
    assert int(run.stdout.split()[-1]) < (32 if run.exception else 600)  # refused, or counted now and then
    assert survivors(isolated) == []


def test_endless_forking_ends_at_the_wall_limit(isolated):
    script = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    assert isolated.run(script, wall_s=1.0).status is ExecStatus.TIMEOUT
    assert survivors(isolated) == []


@pytest.mark.parametrize(
    "script",
    [
        "b''.join(bytes(1 << 24) for _ in range(100))",
        "import numpy as np; np.ones(10**11)",
        "kept = []\nwhile True: kept.append(bytearray(b'x' * (1 << 22)))",
    ],
    ids=["join", "array", "loop"],
)
def test_memory_is_bounded(any_box, script):
    run = any_box.run(script)
    assert run.status is ExecStatus.OOM and run.reason.startswith("memory limit of 300 MB")


def test_memory_is_bounded_for_the_whole_tree(any_box):
    script = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        x = b"x" * (90 << 20)
        time.sleep(60)
        os._exit(0)
os.wait()
"""
    run = any_box.run(script)
    assert run.oom_kills > 0 and run.status in (ExecStatus.OOM, ExecStatus.OK)
    assert run.peak_mb < 400 and run.reason.startswith("memory limit of 300 MB")


@pytest.mark.parametrize(
    "script",
    [
        "open('big', 'wb').write(bytes(40 << 20))",
        "for i in range(100): open(f'f{i}', 'wb').write(bytes(1 << 20))",
        "for i in range(10**6): open(f'f{i}', 'wb').close()",
    ],
    ids=["one", "many", "inodes"],
)
def test_disk_is_bounded(isolated, script):
    assert isolated.run(script).status is ExecStatus.DISK


def test_a_flood_is_cut_to_head_and_tail(isolated):
    run = isolated.run("print('first')\nfor _ in range(3000): print('x' * 1000)\nprint('last')")
    assert run.status is ExecStatus.OK and run.truncated
    assert run.stdout.startswith("first\n") and run.stdout.endswith("last\n") and "bytes cut" in run.stdout
    assert len(run.stdout) < 9000


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import os; os.symlink('/etc/passwd', 'submission.csv')", "cannot be opened"),
        ("import os; os.mkfifo('submission.csv')", "not a regular file"),
        ("import os; os.mkdir('submission.csv')", "not a regular file"),
        ("import os; os.link('script.py', 'submission.csv')", "hard link"),
    ],
    ids=["symlink", "fifo", "folder", "hardlink"],
)
def test_only_a_regular_file_is_collected(any_box, script, why):
    run = any_box.run(script)
    assert run.status is ExecStatus.OK and run.files == {} and why in run.stderr


def test_host_files_are_not_there(box):
    answers = box.folder / "answers.csv"
    script = f"""
import os
found = []
for root in ("/", "/proc/1/root", "/proc/2/root"):
    for folder, names, files in os.walk(root):
        names[:] = [n for n in names if n not in ("proc", "lib", "sys")]
        found += [f for f in files if f in ("answers.csv", "embedded.py", "shadow", "server.log")]
print(found, os.path.exists({str(answers)!r}), os.path.exists({isolation.__file__!r}))
"""
    assert box.run(script).stdout == "[] False False\n"


def test_the_other_processes_cannot_be_seen_read_or_killed(box):
    script = """
import os, signal
print(sorted(int(p) for p in os.listdir("/proc") if p.isdigit()))
for path in ("/proc/1/environ", "/proc/1/mem", "/proc/1/fd"):
    try: print(os.listdir(path) if path.endswith("fd") else open(path, "rb").read(1))
    except OSError as error: print(type(error).__name__)
for sign in (signal.SIGKILL, signal.SIGINT):
    try: os.kill(1, sign)
    except PermissionError: pass
print(len(os.listdir("/proc/self/fd")) < 8)
"""
    run = box.run(script)
    assert run.status is ExecStatus.OK, run.stderr
    assert run.stdout == "[1, 2]\n" + "PermissionError\n" * 3 + "True\n"
    assert box.run("import os; os.kill(-1, 9)").exception == "ProcessLookupError"  # it is alone


def test_privileges_are_gone(isolated):
    script = """
import ctypes, os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(int(status["CapEff"], 16), status["NoNewPrivs"], os.getuid() > 0)
libc = ctypes.CDLL(None, use_errno=True)
print([libc.unshare(0x10000000), libc.mount(b"x", b"/tmp", b"tmpfs", 0, None), libc.ptrace(16, 1, 0, 0)])
for path in ("/x", "/usr/lib/x", "/proc/sys/kernel/core_pattern", os.path.dirname(os.__file__) + "/x.py"):
    try: open(path, "a"); print("opened", path)
    except OSError: pass
for drop in (lambda: os.setuid(0), lambda: os.setgid(0)):
    try: drop(); print("became root")
    except OSError: pass
"""
    run = isolated.run(script)
    assert run.stdout == "0 1 True\n[-1, -1, -1]\n", run.stderr


def test_there_is_no_network(any_box):
    script = """
import socket
for family, kind in ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM)):
    try: socket.socket(family, kind).connect(("192.0.2.1", 53)); print("connected")
    except OSError as error: print("no")
try: socket.getaddrinfo("example.org", 80); print("resolved")
except OSError: print("no")
"""
    assert any_box.run(script).stdout == "no\nno\nno\n"


def test_an_abandoned_execution_is_killed(isolated):
    async def abandon():
        task = asyncio.create_task(isolated.sandbox.execute(isolated.job("while True: pass")))
        while not below(isolated):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    isolated.wait(abandon())
    assert survivors(isolated) == []
    assert isolated.run("print(1)").status is ExecStatus.OK


def test_a_script_that_destroys_its_workspace_is_just_a_script(any_box):
    run = any_box.run("import os, shutil\nos.mkdir('d'); os.chmod('d', 0)\nos.chmod('.', 0)\nprint('done')")
    assert run.status is ExecStatus.OK and run.stdout == "done\n"
    assert any_box.run("print(1)").status is ExecStatus.OK
