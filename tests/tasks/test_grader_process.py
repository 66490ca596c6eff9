"""Grading in a process of its own: the same verdicts, and whatever goes wrong there is never the submission's fault."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from mlexpert.tasks.grader_process import GraderError, GraderLimits, ProcessGrader
from mlexpert.tasks.grading import Grader
from mlexpert.tasks.reasons import Reason
from mlexpert.tasks.tables import TaskError
from mlexpert.types import Verdict, VerdictStatus

FILES = ["id,target\nr0,1\nr1,2\n", "id,target\nr0,1\n", "", "id,target\nr0,1.25\nr1,nan\n", 'id,target\nr0,"', "é"]


@pytest.fixture(scope="module")
def processes():
    grader = ProcessGrader()
    yield grader
    grader.close()


def hand_in(folder, text, name="submission.csv"):
    path = folder / name
    path.write_text(text)
    return path


def test_verdicts_are_those_of_a_grader_in_this_process(processes, make_task, tmp_path):
    task = make_task("mae", [1.0, 2.5])
    own = Grader(task)
    for text in FILES:
        path = hand_in(tmp_path, text)
        assert processes.grade(task, path) == own.grade(path)
    assert processes.grade(task, tmp_path / "nothing.csv").status is VerdictStatus.ABSENT
    assert processes.grade(task, None) == Verdict(VerdictStatus.ABSENT, lower_is_better=True)
    assert processes.grader(task)(hand_in(tmp_path, FILES[0])) == own.grade(tmp_path / "submission.csv")


def test_a_report_tells_the_reason_and_the_error_of_the_score(processes, make_task, tmp_path):
    task = make_task("mae", [1.0, 2.5])
    told = processes.report(task, hand_in(tmp_path, FILES[3]))
    assert told.refusal.code is Reason.NOT_FINITE and (told.refusal.line, told.refusal.count) == (3, 1)
    graded = processes.report(task, hand_in(tmp_path, FILES[0]))
    assert graded.refusal is None and graded.verdict.score == 0.25 and 0.0 < graded.standard_error < 0.5


def test_a_task_that_was_made_again_is_read_again(processes, make_task, tmp_path):
    path = hand_in(tmp_path, "id,target\nr0,1\nr1,2\n")
    assert processes.grade(make_task("mae", [1.0, 2.0]), path).score == 0.0
    assert processes.grade(make_task("mae", [2.0, 3.0]), path).score == 1.0


def test_several_threads_get_their_own_answers(processes, make_task, tmp_path):
    task = make_task("mae", [0.0, 0.0])
    paths = [hand_in(tmp_path, f"id,target\nr0,{at}\nr1,{at}\n", f"{at}.csv") for at in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert [verdict.score for verdict in pool.map(processes.grader(task), paths)] == list(range(40))


def test_a_broken_task_is_the_tasks_fault(processes, make_task, tmp_path):
    task = make_task("mae", [5.0, 7.0])
    (task.private / "answers.csv").write_text("id,target\nr0,1\nr1,2\n")
    with pytest.raises(TaskError, match=r"answers\.csv: altered"):
        processes.grade(task, hand_in(tmp_path, FILES[0]))


def test_a_grader_that_is_killed_is_replaced(processes, make_task, tmp_path):
    task, path = make_task("mae", [1.0, 2.5]), hand_in(tmp_path, FILES[0])
    processes.grade(task, path)
    os.kill(processes._child[0].pid, signal.SIGKILL)
    with pytest.raises(GraderError, match="the grader ended"):
        processes.grade(task, path)
    assert processes.grade(task, path).score == 0.25


def test_a_slow_grader_ends_at_its_limit_and_its_late_answer_is_never_taken(make_task, tmp_path):
    slow = ProcessGrader(GraderLimits(wall_s=0.01))  # it has to start first
    task, path = make_task("mae", [1.0, 2.5]), hand_in(tmp_path, FILES[0])
    with pytest.raises(GraderError, match=r"no answer from the grader within 0\.01 s"):
        slow.grade(task, path)
    assert slow._child is None
    slow.close()


def test_memory_is_limited(make_task, tmp_path):
    small = ProcessGrader(GraderLimits(memory_mb=64))  # less than it has already: nothing more is to be had
    with pytest.raises(GraderError, match=r"MemoryError|the grader ended"):
        small.grade(make_task("mae", [1.0, 2.5]), hand_in(tmp_path, "id,target\n" + "r0,1\n" * 300_000))
    small.close()
