"""What a well-meant script gets: the semantics of `python script.py`, its files back, its errors as data."""

import asyncio

import pytest

from mlexpert.sandbox.api import Job
from mlexpert.sandbox.warm import SandboxError, WarmSandbox
from mlexpert.types import ExecStatus, Limits


def test_a_submission_comes_back_and_inputs_stay_whole(any_box):
    before = (any_box.inputs / "train.csv").read_text()
    script = """
import os, sys
print(sorted(os.listdir(".")), sys.argv == [__file__], os.path.samefile(os.path.dirname(__file__), "."))
open("train.csv", "w").write("spoiled")
if __name__ == "__main__":
    open("submission.csv", "w").write("id,target\\n3,1\\n")
"""
    run = any_box.run(script)
    assert run.status is ExecStatus.OK and run.exit_code == 0, run.stderr
    assert run.stdout == "['script.py', 'train.csv'] True True\n"
    assert run.files["submission.csv"].read_text() == "id,target\n3,1\n"
    assert (any_box.inputs / "train.csv").read_text() == before


def test_a_file_that_the_script_left_open_is_written_at_its_end(box):
    run = box.run("out = open('submission.csv', 'w')\nprint('id,target', file=out)")
    assert run.files["submission.csv"].read_text() == "id,target\n"


def test_nothing_is_left_for_the_next_execution(box):
    box.run("for path in ('/tmp/note', '/dev/shm/note', 'numpy.py'): open(path, 'w').write('1/0')")
    run = box.run("import os, numpy; print(os.path.exists('/tmp/note'), os.listdir('/dev/shm'), os.listdir('.'))")
    assert run.stdout == "False [] ['script.py', 'train.csv']\n", run.stderr


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
        async with WarmSandbox(slots=1) as sandbox:
            limits = Limits(wall_s=2.0)
            jobs = [Job("import time; time.sleep(0.7)", tmp_path / "public", tmp_path, limits=limits) for _ in range(4)]
            return await asyncio.gather(*(sandbox.execute(job) for job in jobs))

    runs = asyncio.run(go())
    assert [run.status for run in runs] == [ExecStatus.OK] * 4  # 2.8 s in all under a limit of 2
    assert sum(run.wall_s for run in runs) > 2.7


def test_a_dead_server_is_replaced(box):
    before = box.sandbox.restarts
    box.sandbox._server.kill()
    box.sandbox._server.wait()
    assert box.run("print('alive')").stdout == "alive\n"
    assert box.sandbox.restarts == before + 1


def test_what_the_sandbox_fails_is_not_the_scripts_failure(box):
    run = box.run("print(1)", disk_mb=-1)  # no kernel mounts a file system of that size
    assert run.status is ExecStatus.SETUP_FAILED and run.exit_code is None and "mount" in run.stderr
    assert box.run("print(1)").status is ExecStatus.OK


def test_impossible_jobs_are_refused(box, tmp_path):
    with pytest.raises(ValueError, match="not a folder"):
        box.wait(box.sandbox.execute(Job("", tmp_path / "nowhere", tmp_path)))
    with pytest.raises(ValueError, match="plain file names"):
        box.wait(box.sandbox.execute(Job("", tmp_path, tmp_path, collect=("../answers.csv",))))
    with pytest.raises(SandboxError, match="not started"):
        box.wait(WarmSandbox(1).execute(Job("", tmp_path, tmp_path)))


def test_plain_mode_says_what_it_is(plain):
    label = plain.run("pass").isolation
    assert label.kind == "plain" and not label.files and not label.processes and "NOT a security boundary" in label.note
