"""What a well-meant script gets: the semantics of `python script.py`, its files back, its errors as data."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mlexpert.sandbox import client, isolation, owner, processes, runner
from mlexpert.sandbox.api import Job, SandboxError
from mlexpert.sandbox.embedded import EmbeddedSandbox
from mlexpert.types import ExecStatus, Limits


def test_a_submission_comes_back_and_inputs_stay_whole(any_box):
    before = (any_box.inputs / "train.csv").read_text()
    script = """
import os, sys
print(sorted(os.listdir(".")), sys.argv == [__file__], os.path.samefile(os.path.dirname(__file__), "."))
print(open("train.csv").read().count("\\n"), open("images/a.txt").read())
for path in ("train.csv", "images/a.txt"):
    try: open(path, "w").write("spoiled")
    except OSError: pass
if __name__ == "__main__":
    open("submission.csv", "w").write("id,target\\n3,1\\n")
"""
    run = any_box.run(script)
    assert run.status is ExecStatus.OK and run.exit_code == 0 and run.reason == "", run.stderr
    assert run.stdout == "['images', 'script.py', 'train.csv'] True True\n3 cat\n"
    assert run.files["submission.csv"].read_text() == "id,target\n3,1\n"
    assert (any_box.inputs / "train.csv").read_text() == before
    assert (any_box.inputs / "images/a.txt").read_text() == "cat"


def test_inputs_that_others_may_not_read_are_copied(box, tmp_path):
    (tmp_path / "public/deep").mkdir(parents=True)
    for name in ("train.csv", "deep/test.csv"):
        (tmp_path / "public" / name).write_text("id\n1\n")
        (tmp_path / "public" / name).chmod(0o600)
    script = """
for name in ("train.csv", "deep/test.csv"):
    print(open(name).read())
    try: open(name, "w")
    except OSError: pass
"""
    run = box.wait(box.sandbox.execute(Job(script, tmp_path / "public", tmp_path)))
    assert run.stdout == "id\n1\n\nid\n1\n\n", run.stderr
    assert (tmp_path / "public/train.csv").read_text() == "id\n1\n"


def test_a_file_that_the_script_left_open_is_written_at_its_end(box):
    run = box.run("out = open('submission.csv', 'w')\nprint('id,target', file=out)")
    assert run.files["submission.csv"].read_text() == "id,target\n"


def test_nothing_is_left_for_the_next_execution(box):
    box.run("for path in ('/tmp/note', '/dev/shm/note', 'numpy.py'): open(path, 'w').write('1/0')")
    run = box.run(
        "import os, numpy; print(os.path.exists('/tmp/note'), os.listdir('/dev/shm'), sorted(os.listdir('.')))"
    )
    assert run.stdout == "False [] ['images', 'script.py', 'train.csv']\n", run.stderr


def test_an_exception_is_reported_by_name_and_its_traceback_shows_the_script_alone(any_box):
    run = any_box.run("table = {}\nprint('before')\ntable['soil_depth']\n")
    assert (run.status, run.exit_code) == (ExecStatus.ERROR, 1)
    assert (run.exception, run.message) == ("KeyError", "'soil_depth'")
    assert run.stdout == "before\n"
    assert "line 3" in run.stderr and "table['soil_depth']" in run.stderr and "runner.py" not in run.stderr


def test_printed_text_cannot_pass_for_a_report(box):
    fake = '{"exception": "Fake", "message": "", "errno": null, "memory": false}'
    run = box.run(f"import sys\nprint('''{fake}''')\nprint('''{fake}''', file=sys.stderr)\nraise ValueError('real')")
    assert (run.exception, run.message) == ("ValueError", "real")


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ("import sys; sys.exit(0)", ExecStatus.OK, 0),
        ("import sys; sys.exit()", ExecStatus.OK, 0),
        ("import sys; sys.exit(3)", ExecStatus.ERROR, 3),
        ("import sys; sys.exit('no data')", ExecStatus.ERROR, 1),
        ("import os; os._exit(7)", ExecStatus.ERROR, 7),
        ("x = (", ExecStatus.ERROR, 1),
        ("s = '\ud800'", ExecStatus.ERROR, 1),
        ("import os; os.abort()", ExecStatus.KILLED, None),
        ("import os; os.kill(os.getpid(), 9)", ExecStatus.KILLED, None),
    ],
)
def test_how_a_script_ends(box, script, status, code):
    run = box.run(script)
    assert (run.status, run.exit_code) == (status, code), run.stderr
    assert (run.signal is None) == (status is not ExecStatus.KILLED)


def test_exit_functions_and_executors_finish_as_in_python(box):
    script = """
import atexit
from concurrent.futures import ThreadPoolExecutor
atexit.register(print, "bye")
ThreadPoolExecutor(2).submit(print, "from a thread").result()
print("no newline", end="")
"""
    assert box.run(script).stdout == "from a thread\nno newlinebye\n"


def test_the_seed_decides_random_numbers(box):
    script = "import random, numpy as np; print(random.random(), np.random.rand(), hash('a'))"
    first, again, other = (box.run(script, seed=seed).stdout for seed in (1, 1, 2))
    assert first == again != other


def test_stdin_is_empty_and_binary_output_survives(box):
    run = box.run("import sys\nsys.stdout.buffer.write(b'\\xff\\x00\\x89PNG\\n')\ninput('?')")
    assert run.exception == "EOFError" and "PNG" in run.stdout


def test_parallel_libraries_run_after_the_fork(box):
    script = """
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
X = np.random.rand(300, 4); y = (X[:, 0] > 0.5).astype(int)
print(HistGradientBoostingClassifier(max_iter=5).fit(X, y).score(X, y) > 0.8)
print(RandomForestClassifier(5, n_jobs=2).fit(X, y).score(X, y) > 0.8)
print((X.T @ X).shape)
"""
    run = box.run(script, memory_mb=600)
    assert run.stdout == "True\nTrue\n(4, 4)\n", run.stderr


def test_waiting_for_a_slot_is_not_run_time(tmp_path):
    (tmp_path / "public").mkdir()

    async def go():
        async with EmbeddedSandbox(slots=1) as sandbox:
            limits = Limits(wall_s=2.0)
            jobs = [Job("import time; time.sleep(0.7)", tmp_path / "public", tmp_path, limits=limits) for _ in range(4)]
            return await asyncio.gather(*(sandbox.execute(job) for job in jobs))

    runs = asyncio.run(go())
    assert [run.status for run in runs] == [ExecStatus.OK] * 4  # 2.8 s in all under a limit of 2
    assert sum(run.wall_s for run in runs) > 2.7
    assert max(run.queued_s for run in runs) > 2.0


def test_a_dead_server_is_replaced(box):
    before = box.sandbox.restarts
    box.sandbox._server.kill()
    box.sandbox._server.wait()
    assert box.run("print('alive')").stdout == "alive\n"
    assert box.sandbox.restarts == before + 1


def test_an_execution_whose_server_dies_is_tried_again(isolated):
    async def go():
        task = asyncio.create_task(isolated.sandbox.execute(isolated.job("import time; time.sleep(1); print('whole')")))
        await asyncio.sleep(0.4)
        isolated.sandbox._server.kill()
        return await task

    before = isolated.sandbox.restarts
    assert isolated.wait(go()).stdout == "whole\n"
    assert isolated.sandbox.restarts == before + 1


def test_what_the_sandbox_fails_is_not_the_scripts_failure(box):
    run = box.run("print(1)", disk_mb=-1)  # no kernel mounts a file system of that size
    assert run.status is ExecStatus.SETUP_FAILED and run.exit_code is None and "mount" in run.reason
    assert "\n" not in run.reason
    assert box.run("print(1)").status is ExecStatus.OK


def test_results_that_cannot_be_copied_are_the_sandboxs_failure(box):
    job = box.job("open('submission.csv', 'w').write('x' * 100_000)")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))  # this process, as if its disk were full
    try:
        run = box.wait(box.sandbox.execute(job))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert run.status is ExecStatus.SETUP_FAILED and "while copying submission.csv" in run.reason
    assert list(job.into.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("pass", ""),
        ("import time; time.sleep(9)", "wall limit of 1 s"),
        ("1/0", "ZeroDivisionError: division by zero"),
        ("raise ValueError('two\\nlines')", "ValueError: two"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import os; os.abort()", "signal 6, SIGABRT"),
        ("import os; os.write(os.open('x', os.O_CREAT | os.O_WRONLY), bytes(17 << 20)) < 17 << 20 and 1/0", ""),
        ("open('x', 'wb').write(bytes(17 << 20))", "disk limit of 16 MB"),
    ],
)
def test_a_reason_is_one_line_that_names_the_limit(box, script, reason):
    run = box.run(script, wall_s=1.0)
    assert run.reason == reason or (not reason and run.status is ExecStatus.ERROR)


def test_a_child_killed_for_memory_is_told_though_the_script_went_on(box):
    if "looked at" in box.sandbox.isolation.note:
        pytest.skip("without a control group the whole script is stopped")
    script = "import os\nif os.fork() == 0: x = b'x' * (1 << 30)\nelse: os.wait(); print('went on')"
    run = box.run(script)
    assert (run.status, run.oom_kills, run.stdout) == (ExecStatus.OK, 1, "went on\n")
    assert run.reason == "memory limit of 300 MB: a process of the script was killed"


def test_processor_time_of_all_processes_together_is_bounded(any_box):
    script = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        end = time.process_time() + 0.8  # each within the limit
        while time.process_time() < end: pass
        time.sleep(60)
time.sleep(60)
"""
    run = any_box.run(script, cpu_s=1.0)
    assert run.status is ExecStatus.TIMEOUT and run.reason.startswith("CPU limit of 1 s")
    assert run.cpu_s >= 0.9


def test_bytes_are_counted_whatever_is_shown(box):
    run = box.run("import sys\nfor i in range(1000): print(f'\\r{i:4}', end='')\nprint('e' * 9000, file=sys.stderr)")
    assert (run.stdout, run.stdout_bytes) == (" 999", 5000)
    assert run.stderr_bytes == 9001 and run.truncated and len(run.stderr) < 9000


# ---------------------------------------------------------------- cold starts
@pytest.mark.parametrize(
    ("script", "cold"),
    [
        ("import torch", True),
        ("def f():\n    from jax.numpy import ones", True),
        ("import numpy as np, tensorflow.keras as tf", True),
        ("# sandbox: cold\npass", True),
        ("pass\n# sandbox: cold", False),
        ("# import torch", False),
        ("text = 'import torch'", False),
        ("from .torch import x", False),
        ("import torchlike", False),
        ("import torch (", False),
        ("import torch\0", False),
        ("\ud800 import torch", False),
    ],
)
def test_only_scripts_that_need_it_start_cold(script, cold):
    assert runner.wants_cold(script.encode("utf-8", "surrogatepass")) is cold


def test_a_cold_script_runs_as_a_warm_one(any_box):
    body = """
import json, os, random, sys
import numpy as np
print(__name__, sys.argv == [__file__], os.getcwd() == os.path.dirname(__file__), "sklearn" in sys.modules)
print(random.random(), np.random.rand(), hash("a"), sorted(os.listdir(".")))
print("to stderr", file=sys.stderr)
open("submission.csv", "w").write("id\\n")
{}["missing"]
"""
    warm, cold = (any_box.run(first + body, seed=3) for first in ("# warm", "# sandbox: cold"))
    assert cold.stdout == warm.stdout.replace("True True True", "True True False") != warm.stdout
    assert (cold.status, cold.exception, cold.message) == (ExecStatus.ERROR, "KeyError", "'missing'")
    for run in (warm, cold):
        assert "line 8, in <module>" in run.stderr and "runner" not in run.stderr and "exec(" not in run.stderr
        assert run.files["submission.csv"].read_text() == "id\n"


def test_a_cold_script_is_confined_as_a_warm_one(isolated):
    script = f"""# sandbox: cold
import os, resource, socket
print(os.getuid() == 0, resource.getrlimit(resource.RLIMIT_NPROC)[0] > 10_000)
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(int(status["CapEff"], 16), status["NoNewPrivs"], status["Seccomp"])
try: open({str(isolated.folder / "answers.csv")!r}); print("read")
except OSError: print("hidden")
try: socket.create_connection(("192.0.2.1", 9), timeout=0.2); print("connected")
except OSError: print("offline")
"""
    run = isolated.run(script)
    assert run.stdout == "False False\n0 1 2\nhidden\noffline\n", run.stderr
    assert isolated.run("# sandbox: cold\nwhile True: pass", wall_s=1.0).status is ExecStatus.TIMEOUT
    assert isolated.run("# sandbox: cold\nx = b'x' * (1 << 30)").status is ExecStatus.OOM


# ---------------------------------------------------------------- owners and leftovers
OWNER = """
import asyncio, sys, tempfile
from pathlib import Path
from mlexpert.sandbox.api import Job
from mlexpert.sandbox.embedded import EmbeddedSandbox
async def main():
    sandbox = EmbeddedSandbox(1, sys.argv[1])
    await sandbox.start()
    folder = Path(sys.argv[2])
    (folder / "public").mkdir()
    escape = "import os, time\\nif os.fork() == 0:\\n    os.setsid()\\ntime.sleep(600)"
    running = asyncio.create_task(sandbox.execute(Job(escape, folder / "public", folder)))
    await asyncio.sleep(1)
    print(sandbox._scratch, sandbox.server_pid, flush=True)
    await running
asyncio.run(main())
"""


def test_nothing_outlives_a_killed_owner(any_box, tmp_path):
    command = [sys.executable, "-c", OWNER, any_box.sandbox.isolation.kind, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        scratch, pid = owner.stdout.readline().split()
        alive = [int(pid), *processes.processes_below(int(pid))]
        starts = [processes.start_time(pid) for pid in alive]
        assert len(alive) >= 5 and os.path.isdir(scratch)  # server, supervisor, init, main, its child
        owner.send_signal(signal.SIGKILL)
    until = time.monotonic() + 8  # much less than the patience of the server with what does not end
    while time.monotonic() < until:
        now = [processes.read(pid) for pid in alive]
        left = [p for p, start in zip(now, starts, strict=True) if p and p.start == start and p.living]
        if not left and not os.path.exists(scratch):
            break
        time.sleep(0.02)
    assert left == [] and not os.path.exists(scratch)


def test_nothing_outlives_a_killed_supervisor(any_box):
    """Its server goes on, and ends what it can no longer end itself: here a child in a session of its own."""
    sandbox = any_box.sandbox
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\ntime.sleep(600)"
    before = {process.pid for process in processes.below(sandbox.server_pid)}

    def family():
        return [p for p in processes.below(sandbox.server_pid) if p.pid not in before and p.living]

    async def go():
        running = asyncio.create_task(sandbox.execute(any_box.job(script)))
        while len(alive := family()) < 5:  # supervisor, init, main, its child and grandchild
            await asyncio.sleep(0.02)
        os.kill(next(p.pid for p in alive if p.parent == sandbox.server_pid), signal.SIGKILL)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        until = time.monotonic() + 20
        while family() and time.monotonic() < until:
            await asyncio.sleep(0.02)

    server = sandbox.server_pid
    any_box.wait(go())
    assert family() == [] and sandbox.server_pid == server
    assert any_box.run("print(1)").stdout == "1\n"


@pytest.mark.parametrize(
    "command",
    [["pip", "install", "nothing-of-this-name"], ["pip", "download", "-i", "https://192.0.2.1/simple", "numpy"]],
    ids=["install", "from-an-index"],
)
def test_an_installer_fails_at_once(box, command):
    run = box.run(
        "import subprocess, sys\n"
        f"run = subprocess.run([sys.executable, '-m', *{command}], capture_output=True, text=True)\n"
        "print(run.returncode, 'WARNING: Retrying' in run.stderr)"
    )
    assert run.stdout == "1 False\n" and run.wall_s < 15


def test_what_is_still_running_at_a_close_is_killed_and_told(tmp_path):
    (tmp_path / "public").mkdir()

    async def go():
        sandbox = EmbeddedSandbox(1, "plain")
        await sandbox.start()
        server = sandbox.server_pid
        running = asyncio.create_task(sandbox.execute(Job("while True: pass", tmp_path / "public", tmp_path)))
        await asyncio.sleep(0.5)
        folder = sandbox._scratch
        await sandbox.close()
        return await running, server, folder, sandbox.server_pid

    run, server, folder, after = asyncio.run(go())
    assert run.status is ExecStatus.SETUP_FAILED and "closed" in run.reason
    assert after is None and processes.read(server) is None and not os.path.exists(folder)


def test_folders_of_dead_owners_are_removed_at_a_start(tmp_path, monkeypatch):
    place = tmp_path / ("x" * 100)  # also longer than the address of a socket may be
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    boot, namespace, *_ = owner.mark().split("-")
    for name in (f"mlexpert-sandbox-{boot}-{namespace}-{dead.pid}-1-x/runs/deep", "other", "public"):
        (place / name).mkdir(parents=True)

    async def go():
        async with EmbeddedSandbox(1, "plain") as sandbox:
            run = await sandbox.execute(Job("print(1)", place / "public", tmp_path))
            return run, sorted(path.name for path in place.iterdir())

    run, kept = asyncio.run(go())
    assert run.stdout == "1\n"
    assert kept[0].startswith(f"mlexpert-sandbox-{owner.mark()}-") and kept[1:] == ["other", "public"]
    assert sorted(os.listdir(place)) == ["other", "public"]


def test_a_server_has_one_owner_and_no_other_orders(box):
    async def second(message):
        return await client.ask(box.sandbox._socket, message, box.folder, 10.0)

    for message in ({"op": "lifeline"}, {"op": "shutdown"}):
        assert "there is only 'execute'" in box.wait(second(message))["setup_failed"]
    assert box.run("print(1)").status is ExecStatus.OK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users to give")
def test_an_execution_has_another_user_than_the_last_and_its_neighbours(box):
    async def users(count):
        jobs = [box.job("import os, time; time.sleep(0.3); print(os.getuid())") for _ in range(count)]
        return [run.stdout for run in await asyncio.gather(*map(box.sandbox.execute, jobs))]

    first, second = box.wait(users(2)), box.wait(users(2))
    assert len({*first, *second}) == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users to give")
def test_two_servers_never_share_users():
    claims = []
    with contextlib.ExitStack() as stack:
        before = len(isolation._CLAIMS)
        claims = [isolation.claim_uids(), isolation.claim_uids()]
        for claim in isolation._CLAIMS[before:]:
            stack.callback(claim.close)
        del isolation._CLAIMS[before:]
    assert abs(claims[0] - claims[1]) >= 2 * isolation.SLOTS


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize("script", ["print(1)\0", "x = (", "s = '\ud800'", "\n" * 10 + "return 1"])
def test_a_script_that_is_no_python_is_the_scripts_error(any_box, script):
    run = any_box.run(script)
    assert (run.status, run.exit_code) == (ExecStatus.ERROR, 1)
    assert run.exception in ("SyntaxError", "ValueError") and run.exception in run.stderr


def test_a_script_may_be_large(box):
    run = box.run("x = 0\n" + "# ten million characters\n" * 400_000 + "print('end')")
    assert run.stdout == "end\n"


def test_impossible_jobs_are_refused(box, tmp_path):
    def refused(match, job):
        with pytest.raises(ValueError, match=match):
            box.wait(box.sandbox.execute(job))

    (tmp_path / "public").mkdir()
    job = Job("", tmp_path / "public", tmp_path)
    refused("not a folder", replace(job, inputs=tmp_path / "nowhere"))
    refused("not a folder", replace(job, into=tmp_path / "nowhere"))
    refused("plain file names", replace(job, collect=("../answers.csv",)))
    (tmp_path / "public/script.py").touch()
    refused("script's own name", job)
    (tmp_path / "public/script.py").unlink()
    (tmp_path / "public/train.csv").symlink_to("/etc/passwd")
    refused("which may lead to private files", job)
    (tmp_path / "public/train.csv").unlink()
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(0o500)
        refused("cannot be written to", replace(job, into=tmp_path / "closed"))


def test_a_sandbox_that_cannot_be_says_why(tmp_path):
    with pytest.raises(SandboxError, match="not started"):
        asyncio.run(EmbeddedSandbox(1).execute(Job("", tmp_path, tmp_path)))
    with pytest.raises(ValueError, match="one of"):
        EmbeddedSandbox(1, "chroot")
    with pytest.raises(ValueError, match="slots"):
        EmbeddedSandbox(0)
    impossible = "user" if os.geteuid() == 0 else "namespaces"
    with pytest.raises(SandboxError, match=impossible):
        asyncio.run(EmbeddedSandbox(1, impossible).start())


def test_a_server_cannot_offer_files_that_nobody_asked_for(tmp_path):
    async def save(name, size):
        stream = asyncio.StreamReader()
        stream.feed_data(b"x")
        await client._save(stream, name, size, {"collect": ["a"]}, tmp_path)

    for name, size in (("other.csv", 1), ("../x", 1), ("a", 1 << 40), ("a", -1)):
        with pytest.raises(ConnectionError, match="nobody asked for"):
            asyncio.run(save(name, size))
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        asyncio.run(save("a", 1))
    assert not (tmp_path / "elsewhere").exists()


def test_plain_mode_says_what_it_is(plain):
    label = plain.run("pass").isolation
    assert label.kind == "plain" and not label.files and not label.processes and "NOT a security boundary" in label.note
