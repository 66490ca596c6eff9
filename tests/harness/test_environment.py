"""Budget, endings, answer, infrastructure, and an episode that goes on where its journal ends."""

import asyncio
from pathlib import Path

import pytest

from mlexpert.harness.environment import Environment
from mlexpert.harness.journal import Journal, JournalError
from mlexpert.harness.state import Budget
from mlexpert.sandbox.embedded import EmbeddedSandbox
from mlexpert.tasks.grader_process import GraderError
from mlexpert.tasks.grading import Grader
from mlexpert.types import Ending, ExecStatus, Limits, Malformed, Medal, ToolCall, Verdict, VerdictStatus


def run(environment, *actions):
    async def steps():
        return [await environment.step(action) for action in actions]

    return asyncio.run(steps())


def test_an_execution_becomes_a_result_and_a_short_observation(play, make, say):
    game = play([make.execution("fit\ncv 0.83\n")], [make.graded(0.2, Medal.SILVER)])
    (reply,) = run(game.environment, say.run())
    assert reply.text == "node 1: ok\nfit\ncv 0.83\nsubmission valid\n4 executions left"
    assert (reply.kind, reply.result.verdict.medal, reply.ending) == ("observation", Medal.SILVER, None)
    assert game.environment.tree.nodes[0].own_score == 0.83


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"status": ExecStatus.ERROR, "exception": "KeyError", "message": "'soil_depth'"}, "KeyError: 'soil_depth'"),
        ({"status": ExecStatus.ERROR, "exception": "E", "message": "a\n" * 99}, "E: " + "a " * 27 + "..."),
        ({"status": ExecStatus.ERROR, "exit_code": 3}, "exit code 3"),
        ({"status": ExecStatus.TIMEOUT}, "timeout: the script ran too long"),
        ({"status": ExecStatus.OOM}, "out of memory"),
        ({"status": ExecStatus.KILLED, "signal": 11}, "killed by signal 11"),
        ({"status": ExecStatus.PIDS}, "too many processes"),
        ({"status": ExecStatus.DISK}, "too much disk used"),
        ({"status": ExecStatus.OOM, "reason": "memory limit of 300 MB", "oom_kills": 3}, "out of memory"),
        ({"status": ExecStatus.ERROR, "exit_code": 3, "oom_kills": 1, "truncated": True}, "exit code 3"),
    ],
)
def test_a_failure_is_named_and_hands_in_nothing(play, make, say, fields, line):
    game = play([make.execution("printed before\n", **fields)])
    (reply,) = run(game.environment, say.run())
    assert reply.text.split("\n") == ["node 1: error", line, "no submission", "4 executions left"]
    assert len(line) <= 60
    assert game.graded_paths == [None], "the file that a failed script left must not be graded"


def test_an_invalid_file_is_told_with_its_reason(play, make, say):
    game = play([make.execution()], [Verdict(VerdictStatus.INVALID, reason="2 ids are missing")])
    (reply,) = run(game.environment, say.run())
    assert reply.text == "node 1: ok\nsubmission invalid: 2 ids are missing\n4 executions left"


def test_the_sandbox_gets_the_public_folder_and_nothing_else(play, make, say, task):
    game = play([make.execution()], [make.graded(0.5)])
    run(game.environment, say.run("print('x')"))
    (job,) = game.sandbox.jobs
    assert job.inputs == task.public and job.script == "print('x')" and job.collect == ("submission.csv",)
    assert not job.into.is_relative_to(task.root) and not game.journal.path.is_relative_to(job.into)


# ---------------------------------------------------------------- the answer
def test_the_answer_is_the_chosen_node_else_the_last_valid_one(play, make, say):
    outputs = [make.execution(), make.execution(), make.execution(status=ExecStatus.ERROR, exception="E")]
    game = play(outputs, [make.graded(0.1), make.graded(0.2)])
    environment = game.environment
    assert environment.answer().status is VerdictStatus.ABSENT and environment.answer().lower_is_better
    run(environment, say.run(), say.run(), say.run())
    assert environment.answer().score == 0.2
    (reply,) = run(environment, say.answer(1))
    assert (reply.text, environment.answer().score) == ("answer: node 1", 0.1)
    (reply,) = run(environment, say.invalidate(1))
    assert (reply.text, environment.answer().score) == ("invalidated: node 1", 0.2)


def test_a_node_without_a_valid_submission_cannot_be_the_answer(play, make, say):
    game = play([make.execution()], files=False)
    _, reply = run(game.environment, say.run(), say.answer(1))
    assert (reply.kind, game.environment.answer_node()) == ("correction", None)


# ---------------------------------------------------------------- budget and endings
def test_the_policy_may_still_choose_after_its_last_execution_but_not_run(play, make, say):
    budget = Budget(executions=1, steps=9, malformed=2, wall_s=1.0)
    game = play([make.execution()], [make.graded(0.5)], budget=budget)
    replies = run(game.environment, say.run(), say.answer(1), say.run())
    assert [reply.kind for reply in replies] == ["observation", "observation", "end"]
    assert replies[0].text.endswith("0 executions left")
    assert (replies[2].text, replies[2].ending, replies[2].result) == ("no executions left", Ending.STEPS, None)
    with pytest.raises(RuntimeError, match="ended"):
        run(game.environment, say.finish)


def test_a_last_step_that_executes_ends_with_its_result(play, make, say):
    game = play([make.execution()], [make.graded(0.5)], budget=Budget(1, 1, 1, 1.0))
    (reply,) = run(game.environment, say.run())
    assert (reply.kind, reply.ending, reply.result.verdict.score) == ("end", Ending.STEPS, 0.5)
    assert reply.text.startswith("node 1: ok")


def test_finishing_ends_the_episode(play, say):
    (reply,) = run(play().environment, say.finish)
    assert (reply.kind, reply.ending, reply.text) == ("end", Ending.DONE, "")


def test_malformed_turns_in_a_row_end_it_and_a_good_turn_starts_the_count_anew(play, say):
    bad = Malformed("x" * 200)
    environment = play().environment
    replies = run(environment, bad, say.analyze(), ToolCall("rm", {}), bad)
    assert [reply.kind for reply in replies] == ["correction", "observation", "correction", "end"]
    assert all(len(reply.text) <= 80 for reply in replies)
    assert (replies[-1].ending, environment.n_malformed) == (Ending.MALFORMED, 3)


def test_the_wall_ends_the_episode_and_no_script_starts_after_it(play, make, say):
    now = [0.0]
    game = play([make.execution()], [make.graded(0.5)], clock=lambda: now[0])
    run(game.environment, say.run())
    now[0] = 101.0
    (reply,) = run(game.environment, say.run())
    assert (reply.ending, reply.text, len(game.sandbox.jobs)) == (Ending.WALL, "no time left", 1)


def test_waiting_for_a_sandbox_costs_no_time_of_the_episode(play, make, say):
    now = [0.0]
    outputs = [make.execution(queued_s=500.0), make.execution(status=ExecStatus.SETUP_FAILED, queued_s=50.0)]
    game = play([*outputs, make.execution()], [make.graded(0.5)] * 2, clock=lambda: now[0])
    execute = game.sandbox.execute

    async def busy(job):
        execution = await execute(job)
        now[0] += execution.queued_s + 10.0
        return execution

    game.sandbox.execute = busy
    run(game.environment, say.run(), say.run(), say.run())
    assert (game.environment.elapsed_s, game.environment.ending) == (30.0, None)
    assert play(clock=lambda: 1e9).environment.elapsed_s == 30.0, "nor after a resumption"


def test_no_execution_may_run_longer_than_the_episode(play, make, say):
    now = [0.0]
    game = play([make.execution()] * 3, [make.graded(0.5)] * 3, clock=lambda: now[0])  # 100 s in all
    for then in (0.0, 85.0, 92.5):
        now[0] = then
        run(game.environment, say.run())
    assert [job.limits for job in game.sandbox.jobs] == [Limits(wall_s=10.0), Limits(wall_s=10.0), Limits(wall_s=7.5)]


def test_an_infrastructure_failure_costs_nothing_and_two_in_a_row_end_it(play, make, say):
    broken = make.execution(status=ExecStatus.SETUP_FAILED, reason="no slot")
    game = play([broken, make.execution(), broken, broken], [make.graded(0.5)])
    environment = game.environment
    first, second, third, fourth = run(environment, say.run(), say.run(), say.run(), say.run())
    assert (first.text, first.kind) == ("infrastructure failure, not counted", "observation")
    assert first.infrastructure and not second.infrastructure
    assert first.result is None and second.text.endswith("4 executions left"), "the failed one was not counted"
    assert (third.ending, fourth.ending) == (None, Ending.INFRASTRUCTURE)
    assert len(environment.tree.nodes) == len(environment.results) == 1 and environment.n_infrastructure == 3
    assert [event.get("message") for event in game.journal.events()[1:]] == ["no slot", None, "no slot", "no slot"]


def test_a_grader_that_fails_is_asked_once_more_and_is_never_an_outcome(play, make, say):
    game = play([make.execution()] * 3, [make.graded(0.5), make.graded(0.25)])
    environment, grade, faults = game.environment, game.environment._grade, [True, False, True, True, False]

    def faulty(path):
        if faults.pop(0):
            raise GraderError("out of memory")
        return grade(path)

    environment._grade = faulty
    first, second, third = run(environment, say.run(), say.run(), say.run())
    assert first.result.verdict.score == 0.5, "the second try counts"
    assert second.infrastructure and second.result is None and second.text == "infrastructure failure, not counted"
    assert third.result.verdict.score == 0.25 and environment.n_infrastructure == 1
    assert game.journal.events()[2]["message"] == "out of memory"


def test_a_sandbox_that_raises_is_not_swallowed_and_leaves_no_trace(play, say):
    game = play([])  # the fake has nothing to return and raises
    with pytest.raises(IndexError):
        run(game.environment, say.run())
    assert len(game.journal) == 1 and game.environment.replies == ()


# ---------------------------------------------------------------- resuming
def every_kind_of_step(make, say):
    outputs = [
        make.execution("cv 0.1\n"),
        make.execution(status=ExecStatus.ERROR, exception="KeyError", message="'a'"),
        make.execution(status=ExecStatus.SETUP_FAILED),
        make.execution("\ud800 cv 0.3 \x00"),
    ]
    verdicts = [make.graded(0.1 + 0.2, Medal.GOLD), make.graded(1e-17)]
    actions = [say.run(), say.run(parent="1"), Malformed("no"), say.run(), say.run(parent="2"), say.answer(1)]
    return outputs, verdicts, [*actions, say.invalidate(2), say.analyze(node="1"), say.analyze(), say.finish]


def test_rebuilding_at_any_event_gives_the_state_of_that_moment(play, make, say, tmp_path):
    outputs, verdicts, actions = every_kind_of_step(make, say)
    game = play(outputs, verdicts, name="whole")
    moments = [(game.environment.tree, game.environment.results, game.environment.replies)]
    for action in actions:
        run(game.environment, action)
        moments.append((game.environment.tree, game.environment.results, game.environment.replies))
    whole = game.journal.path.read_bytes()
    for n, moment in enumerate(moments, start=1):
        (tmp_path / f"part{n}.jsonl").write_bytes(whole)
        Journal(tmp_path / f"part{n}.jsonl").truncate(n)
        again = play(name=f"part{n}").environment
        assert (again.tree, again.results, again.replies) == moment
    assert again.ending is Ending.DONE and again.answer() == game.environment.answer()


def test_a_killed_episode_goes_on_as_if_it_had_not_stopped(play, make, say, tmp_path):
    outputs, verdicts, actions = every_kind_of_step(make, say)
    straight = play(outputs, verdicts, name="straight")
    run(straight.environment, *actions)
    outputs, verdicts, actions = every_kind_of_step(make, say)
    run(play(outputs[:2], verdicts[:1], name="killed").environment, *actions[:2])
    with (tmp_path / "killed.jsonl").open("ab") as file:
        file.write(b'{"event":"turn","ids":[1,2]}\n{"event":"step","tool":"exec')  # killed while writing
    resumed = play(outputs[2:], verdicts[1:], name="killed")
    run(resumed.environment, *actions[2:])
    assert resumed.environment.tree == straight.environment.tree
    assert [reply.text for reply in resumed.environment.replies] == [r.text for r in straight.environment.replies]
    assert resumed.environment.answer() == straight.environment.answer()


def test_the_wall_clock_goes_on_from_the_journal_and_not_over_the_gap(play, make, say):
    now = [1000.0]
    game = play([make.execution()], [make.graded(0.5)], clock=lambda: now[0])
    now[0] += 60.0
    run(game.environment, say.run())
    resumed = play(clock=lambda: now[0] + 1e6).environment
    assert resumed.elapsed_s == 60.0 and resumed.ending is None


def test_a_journal_of_another_episode_is_refused(play):
    play(seed=1)
    with pytest.raises(JournalError, match=r"feedback, seed differ"):
        play(seed=2, feedback="score")


def test_summary_repeats_the_best_script_by_its_own_score(play, make, say):
    outputs = [make.execution("cv 0.2"), make.execution("cv 0.9")]  # rmse: lower is better
    game = play(outputs, [make.graded(0.7), make.graded(0.1)])
    run(game.environment, say.run("first = 1"), say.run("second = 2", parent="1"))
    assert game.environment.summary().split("\n") == [
        "so far:",
        "node 1: ok, cv 0.2, submission valid",
        "node 2: ok, cv 0.9, submission valid, from node 1",
        "answer: node 2",
        "script of node 1:",
        "first = 1",
        "3 executions left",
    ]


def test_the_real_sandbox_and_the_real_grader(task, tmp_path: Path, say):
    code = "import csv\nrows = list(csv.DictReader(open('test.csv')))\nout = open('submission.csv', 'w')\n"
    code += "print('id,y', file=out)\nfor r in rows: print(f\"{r['id']},{r['soil_depth']}\", file=out)\nout.close()"

    async def episode():
        async with EmbeddedSandbox(slots=1) as sandbox:
            journal, budget, grade = Journal(tmp_path / "j"), Budget(2, 4, 1, 60.0), Grader(task).grade
            environment = Environment(task, sandbox, grade, budget, journal, tmp_path / "w", Limits())
            actions = (say.run(code + "\nprint('cv 0.5')"), say.run("1/0"), say.finish)
            return [await environment.step(action) for action in actions], environment

    replies, environment = asyncio.run(episode())
    assert replies[0].text == "node 1: ok\ncv 0.5\nsubmission valid\n1 execution left"
    assert replies[1].text == "node 2: error\nZeroDivisionError: division by zero\nno submission\n0 executions left"
    expected = (sum(d * d for d in (0.125, 0.25, 0.375, 0.5)) / 4) ** 0.5
    assert environment.answer().score == pytest.approx(expected, rel=1e-12)
