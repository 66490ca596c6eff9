"""Scripts in containers: what they get, what holds them, what happens when container, engine or owner dies."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from docker.errors import APIError

from mlexpert.sandbox import images, scratch
from mlexpert.sandbox.api import Job, SandboxError
from mlexpert.sandbox.containers import DockerSandbox
from mlexpert.sandbox.processes import processes_below
from mlexpert.types import ExecStatus, Limits
from tests.sandbox.engine_proxy import Proxy

pytestmark = pytest.mark.docker
ENGINE = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")


def names(engine, pid=None):
    """Containers of an owner, by default of this process."""
    return {name for name, owner in images.owned(engine).items() if owner.split("-")[2] == str(pid or os.getpid())}


def gone(engine, wanted, patience_s=60):
    until = time.monotonic() + patience_s
    while (left := wanted & set(images.owned(engine))) and time.monotonic() < until:
        time.sleep(0.05)
    return not left


def job(folder, script, **limits):
    for part in ("public", "into"):
        (folder / part).mkdir(exist_ok=True)
    return Job(script, folder / "public", folder / "into", limits=replace(Limits(wall_s=20.0), **limits))


# ---------------------------------------------------------------- what a script gets
def test_files_go_in_read_only_and_come_back(docker_box):
    script = """
import os
print(sorted(os.listdir(".")), open("images/a.txt").read(), end="; ")
for spoil in (lambda: open("train.csv", "w"), lambda: os.truncate("train.csv", 0), lambda: os.mkdir("/inputs/x")):
    try: spoil(); print("spoiled")
    except OSError as error: pass
open("submission.csv", "w").write(open("train.csv").read())
"""
    run = docker_box.run(script)
    assert run.status is ExecStatus.OK, run.reason
    assert run.stdout == "['images', 'script.py', 'train.csv'] cat; "
    assert run.files["submission.csv"].read_text() == (docker_box.inputs / "train.csv").read_text()
    assert run.files["submission.csv"].stat().st_uid == os.getuid()


def test_what_changes_in_the_public_folder_is_seen(docker_box):
    extra = docker_box.inputs / "extra.csv"
    script = "import os; print(open('extra.csv').read() if os.path.exists('extra.csv') else 'absent', end='')"
    seen = []
    for text in (None, "one", "two"):
        if text:
            extra.write_text(text)
            extra.chmod(0o600)  # private: copied
        seen.append(docker_box.run(script).stdout)
    extra.unlink()
    assert [*seen, docker_box.run(script).stdout] == ["absent", "one", "two", "absent"]


def test_nothing_is_left_for_the_next_execution(docker_box):
    folders = "('.', '/tmp', '/dev/shm')"
    leave = (
        f"import os\nfor f in {folders}: os.mkdir(f + '/d'); open(f + '/d/x', 'w').write('1'); os.chmod(f + '/d', 0)"
    )
    look = f"import os; print([sorted(os.listdir(f)) for f in {folders}], end='')"
    for _ in range(2):  # both slots
        assert docker_box.run(leave).status is ExecStatus.OK
    for _ in range(2):
        assert docker_box.run(look).stdout == "[['images', 'script.py', 'train.csv'], [], []]"


def test_the_label_says_what_it_is(docker_box):
    label = docker_box.run("pass").isolation
    assert label.kind == "docker" and "mlexpert-sandbox:latest (Python 3." in label.note and "kernel" in label.note
    assert all((label.files, label.network, label.processes, label.memory, label.cpu, label.disk))


def test_the_environment_holds_nothing_of_the_owner(docker_box, monkeypatch):
    monkeypatch.setenv("MLEXPERT_PLANTED", "a secret")
    script = "import os; print(dict(os.environ), open('/proc/self/environ').read(), os.uname().nodename)"
    run = docker_box.run(script)
    assert "a secret" not in run.stdout and os.uname().nodename not in run.stdout and "/tmp" in run.stdout


# ---------------------------------------------------------------- limits
HOG = "kept = []\nwhile True: kept.append(bytearray(b'x' * (1 << 22)))"


def test_a_hog_is_out_of_memory(docker_box):
    run = docker_box.run(HOG)
    assert run.status is ExecStatus.OOM and run.oom_kills >= 1 and "300 MB" in run.reason


def test_a_hog_in_a_child_is_told_too(docker_box):
    script = f"import os\nif os.fork() == 0:\n    {HOG.replace(chr(10), chr(10) + '    ')}\nprint(os.wait()[1])"
    run = docker_box.run(script)
    assert run.oom_kills == 1 and "300 MB" in run.reason
    assert run.status is ExecStatus.OK and run.stdout == "9\n"
    assert docker_box.run("print(1)").status is ExecStatus.OK


@pytest.mark.parametrize("folder", [".", "/tmp", "/dev/shm"])
@pytest.mark.parametrize(
    "fill",
    [
        "open(folder + '/big', 'wb').write(bytes(40 << 20))",
        "for i in range(100): open(f'{folder}/f{i}', 'wb').write(bytes(1 << 20))",
        "for i in range(10**5): open(f'{folder}/f{i}', 'wb').close()",
    ],
    ids=["one", "many", "inodes"],
)
def test_every_writable_folder_is_bounded(docker_box, folder, fill):
    run = docker_box.run(f"folder = {folder!r}\n{fill}")
    assert run.status is ExecStatus.DISK and "16 MB" in run.reason


def test_nothing_else_is_writable(docker_box):
    script = """
import os, stat
for root, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if root + f not in ("/proc", "/sys", "/tmp", "/workspace")]
    try:
        open(root + "/x", "w").close(); print("wrote", root); os.unlink(root + "/x")
    except OSError: pass
"""
    assert set(docker_box.run(script).stdout.splitlines()) <= {"wrote /dev/shm"}


def test_a_fork_bomb_is_bounded(docker_box):
    script = "import os, time\nn = 0\nwhile True:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n    print(n)"
    run = docker_box.run(script)
    assert run.status is ExecStatus.PIDS and int(run.stdout.split()[-1]) < 32
    assert docker_box.run("print(1)").status is ExecStatus.OK


def test_a_log_flood_is_cut(docker_box):
    run = docker_box.run("print('first')\nfor _ in range(30000): print('x' * 1000)\nprint('last')")
    assert run.status is ExecStatus.OK and run.truncated and run.stdout_bytes > 30_000_000
    assert run.stdout.startswith("first\n") and run.stdout.endswith("last\n") and len(run.stdout) < 9000


def test_other_limits_get_another_container(docker_engine, docker_box):
    script = "open('/tmp/x', 'wb').write(bytes(24 << 20)); print('fits')"
    before = names(docker_engine)
    runs = [docker_box.run(script, disk_mb=size) for size in (16, 16, 32, 32)]
    assert [run.status for run in runs] == [ExecStatus.DISK] * 2 + [ExecStatus.OK] * 2
    assert len(names(docker_engine)) == 2 and not before & names(docker_engine)
    for _ in range(2):  # the limits of a clock belong to an execution
        docker_box.run("pass")
    same = names(docker_engine)
    assert docker_box.run("while True: pass", wall_s=0.5).status is ExecStatus.TIMEOUT
    assert docker_box.run("while True: pass", cpu_s=1.0).status is ExecStatus.TIMEOUT
    assert names(docker_engine) == same


def test_users_of_scripts_are_claimed_on_the_host(docker_box):
    """A uid inside is the same user outside: another sandbox on the host that ends its user's processes ends these."""
    used = {int(docker_box.run("import os; print(os.getuid())").stdout) for _ in range(4)}
    assert len(used) == 4  # two slots, and never the user of the execution before
    names = Path("/proc/net/unix").read_text()
    claims = [int(number) for number in re.findall(r"@mlexpert-sandbox-uids-(\d+)", names)]
    assert all(any(first <= uid < first + 128 for first in claims) for uid in used)


# ---------------------------------------------------------------- doors
def test_killing_everybody_kills_nobody_else(docker_box):
    server = docker_box.sandbox.server_pid
    for number in (9, 15, 19):
        script = (
            f"import os\nfor pid in (-1, 1, os.getppid()):\n    try: os.kill(pid, {number})\n    except OSError: pass"
        )
        assert docker_box.run(script).status is ExecStatus.OK
    assert docker_box.run("print(1)").status is ExecStatus.OK
    assert docker_box.sandbox.server_pid == server


def test_calls_that_escapes_have_used_are_refused(docker_box):
    script = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, call in {
    "ptrace init": lambda: libc.ptrace(16, 1, 0, 0),
    "ptrace server": lambda: libc.ptrace(16, os.getppid(), 0, 0),
    "io_uring": lambda: libc.syscall(425, 8, ctypes.create_string_buffer(120)),
    "unshare user": lambda: libc.unshare(0x10000000),
    "mount": lambda: libc.mount(b"x", b"/tmp", b"tmpfs", 0, None),
    "setuid": lambda: libc.setuid(0),
    "bpf": lambda: libc.syscall(321, 0, 0, 0),
    "socket": lambda: libc.socket(2, 1, 0),
}.items():
    print(name, call(), ctypes.get_errno())
status = open("/proc/self/status").read()
print([line.split()[1] for line in status.splitlines() if line.startswith(("CapEff", "CapPrm", "NoNewPrivs"))])
"""
    lines = docker_box.run(script).stdout.splitlines()
    assert len(lines) == 9 and all(line.endswith(" -1 1") for line in lines[:8]), lines
    assert lines[8] == "['0000000000000000', '0000000000000000', '1']"


def test_the_socket_and_the_server_are_out_of_reach(docker_box):
    script = """
import os, socket
for path in ("/run/owner", "/run/owner/socket", "/proc/1/environ", f"/proc/{os.getppid()}/environ", "/run/server"):
    try: print("read", path, os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(9))
    except OSError: pass
with socket.socket(socket.AF_UNIX) as door:
    try: door.connect("/run/owner/socket"); print("connected")
    except OSError: pass
"""
    assert docker_box.run(script).stdout == ""


# ---------------------------------------------------------------- owners
PLAIN_USER = """
import asyncio, os, sys, tempfile
from pathlib import Path
from mlexpert.sandbox.api import Job
from mlexpert.sandbox.containers import DockerSandbox

async def main():
    folder = Path(tempfile.mkdtemp())
    for part in ("public", "into"):
        (folder / part).mkdir()
    (folder / "public/x.csv").write_text("private")
    (folder / "public/x.csv").chmod(0o600)
    async with DockerSandbox(1) as sandbox:
        script = "open('submission.csv', 'w').write(open('x.csv').read())"
        run = await sandbox.execute(Job(script, folder / "public", folder / "into"))
        file = run.files["submission.csv"]
        print(run.status, file.read_text(), file.stat().st_uid == os.getuid() > 0)

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_owner_need_not_be_root(docker_engine):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        proxy = Proxy(Path(folder, "docker.sock"), ENGINE)
        source = Path(__file__).parents[2]
        command = [sys.executable, "tests/sandbox/as_user.py", "1234", sys.executable, "-c", PLAIN_USER]
        environment = {**os.environ, "DOCKER_HOST": proxy.host, "PYTHONPATH": str(source)}
        run = subprocess.run(command, check=False, cwd=source, env=environment, capture_output=True, text=True)
        proxy.vanish()
    assert run.stdout == "ok private True\n", run.stderr[-2000:]


# ---------------------------------------------------------------- what dies
async def kill_in_the_middle(engine, sandbox, others, times):
    """Kill the sandbox's container while it runs a script; after it is replaced, again."""
    last = None
    for _ in range(times):
        while sandbox.server_pid in (None, last) or len(processes_below(sandbox.server_pid)) < 4:
            await asyncio.sleep(0.02)  # the server, a supervisor, the first process inside, the script
        last = sandbox.server_pid
        for name in names(engine) - others:
            with contextlib.suppress(APIError):  # it is gone already
                await asyncio.to_thread(engine.api.kill, name)


def survive(docker_engine, tmp_path, times):
    others = names(docker_engine)

    async def go():
        async with DockerSandbox(1) as sandbox:
            await sandbox.execute(job(tmp_path, "pass"))
            killing = asyncio.create_task(kill_in_the_middle(docker_engine, sandbox, others, times))
            run = await sandbox.execute(job(tmp_path, "import time; time.sleep(3); print('slept')"))
            await killing
            return run, await sandbox.execute(job(tmp_path, "print('again')")), sandbox.restarts

    run, after, restarts = asyncio.run(go())
    assert after.stdout == "again\n" and restarts == times
    assert names(docker_engine) == others
    return run


def test_a_container_killed_in_the_middle_is_replaced(docker_engine, tmp_path):
    run = survive(docker_engine, tmp_path, times=1)
    assert run.status is ExecStatus.OK and run.stdout == "slept\n"


def test_a_container_killed_twice_is_a_failed_setup_and_no_outcome(docker_engine, tmp_path):
    run = survive(docker_engine, tmp_path, times=2)
    assert run.status is ExecStatus.SETUP_FAILED and run.exit_code is None and run.stdout == ""
    assert "container mlexpert-sandbox-" in run.reason and "the server hung up" in run.reason and "\n" not in run.reason


def test_limits_that_no_container_can_have_are_a_failed_setup(docker_box):
    run = docker_box.run("print(1)", disk_mb=-1)
    assert run.status is ExecStatus.SETUP_FAILED and "cannot be started" in run.reason
    assert docker_box.run("print(1)").status is ExecStatus.OK


def test_an_engine_that_vanishes_is_a_failed_setup(docker_engine, tmp_path, monkeypatch):
    proxy = Proxy(tmp_path / "docker.sock", ENGINE)
    monkeypatch.setenv("DOCKER_HOST", proxy.host)
    others = names(docker_engine)

    async def go():
        sandbox = DockerSandbox(1)
        await sandbox.start()
        mine = names(docker_engine) - others
        proxy.vanish()
        run = await sandbox.execute(job(tmp_path, "print(1)", memory_mb=333))  # needs another container
        with pytest.raises(SandboxError, match="does not list its containers"):
            await sandbox.close()
        return mine, run

    mine, run = asyncio.run(go())
    assert run.status is ExecStatus.SETUP_FAILED and "docker:" in run.reason and "\n" not in run.reason
    assert mine and gone(docker_engine, mine)  # they leave by themselves, with their lifelines


OWNER = """
import asyncio, sys
from pathlib import Path
from mlexpert.sandbox.api import Job
from mlexpert.sandbox.containers import DockerSandbox

async def main():
    folder = Path(sys.argv[1])
    sandbox = DockerSandbox(2)
    await sandbox.start()
    for seconds in (0.5, 600):  # first of all both containers are there
        script = f"import time; time.sleep({seconds})"
        runs = [sandbox.execute(Job(script, folder / "public", folder / "into")) for _ in range(2)]
        running = asyncio.gather(*runs)
        if seconds > 1:
            await asyncio.sleep(1.0)
            print(sandbox.server_pid, flush=True)
        await running

asyncio.run(main())
"""


def test_nothing_outlives_a_killed_owner(docker_engine, tmp_path, monkeypatch):
    job(tmp_path, "")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout
        server = int(owner.stdout.readline())
        mine = names(docker_engine, owner.pid)
        owner.send_signal(signal.SIGKILL)
    assert len(mine) == 2 and gone(docker_engine, mine)
    assert not Path(f"/proc/{server}").exists()
    (left,) = tmp_path.glob("mlexpert-sandbox-*")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch.sweep()
    assert not left.exists()


def test_an_abandoned_execution_ends_and_its_slot_works_on(docker_box):
    async def abandon():
        task = asyncio.create_task(docker_box.sandbox.execute(docker_box.job("while True: pass")))
        await asyncio.sleep(1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    docker_box.wait(abandon())
    assert [docker_box.run("print(1)").stdout for _ in range(2)] == ["1\n"] * 2


def test_waiting_for_a_slot_is_not_run_time(docker_engine, tmp_path):
    async def go():
        async with DockerSandbox(1) as sandbox:
            jobs = [job(tmp_path, "import time; time.sleep(0.5)", wall_s=5.0) for _ in range(3)]
            return await asyncio.gather(*(sandbox.execute(job) for job in jobs))

    runs = asyncio.run(go())
    assert [run.status for run in runs] == [ExecStatus.OK] * 3
    assert max(run.queued_s for run in runs) >= 1.0 and runs[0].queued_s < runs[2].queued_s


def test_a_closed_sandbox_leaves_nothing_and_says_that_it_is_closed(docker_engine, tmp_path):
    others = names(docker_engine)

    async def go():
        sandbox = DockerSandbox(1)
        async with sandbox:
            inside = names(docker_engine) - others
        with pytest.raises(SandboxError, match="not started, or is closed"):
            await sandbox.execute(job(tmp_path, "pass"))
        return inside

    assert len(asyncio.run(go())) == 1 and names(docker_engine) == others
