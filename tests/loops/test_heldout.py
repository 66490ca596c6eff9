import json
from collections import Counter

import pytest

from configs import wirl
from mlexpert.loops import collect, heldout
from mlexpert.types import Credit, Ending, Episode, Medal, Outcome, Verdict, VerdictStatus


def episode(verdict, ending=Ending.DONE):
    credits = (Credit(Outcome.ERROR, -1.0, 0.0), Credit(Outcome.GOLD, 2.0, 0.0))
    return Episode("e", "t", ending, verdict, (), credits, 3, 90, 120, 0, 1, 1.0)


def test_a_line_tells_the_answer_and_nothing_of_other_windows():
    gold = heldout.line_of(episode(Verdict(VerdictStatus.GRADED, score=0.9, medal=Medal.GOLD)), run=1, version=0)
    assert (gold["any_medal"], gold["valid"], gold["gold"], gold["run"]) == (True, True, True, 1)
    plain = heldout.line_of(episode(Verdict(VerdictStatus.GRADED, score=0.1)), run=0, version=0)
    assert (plain["any_medal"], plain["valid"], plain["gold"]) == (False, True, False)
    absent = heldout.line_of(episode(Verdict(VerdictStatus.ABSENT)), run=0, version=0)
    assert (absent["any_medal"], absent["valid"]) == (False, False)


def test_window_rates():
    rates = heldout.window_rates(["error", "no_submission", "valid", "bronze", "gold"], [-1.0, -0.6, -0.4, 1.0, 2.0])
    assert rates["reward"] == pytest.approx(0.2)
    assert (rates["valid_rate"], rates["medal_rate"], rates["gold_rate"]) == (0.6, 0.4, 0.2)


def test_a_torn_last_line_is_played_again(tmp_path):
    path = tmp_path / "sft.jsonl"
    path.write_text(json.dumps({"run": 0, "task": "a"}) + "\n" + '{"run": 0, "ta')
    assert heldout.read(path) == [{"run": 0, "task": "a"}]
    assert path.read_text().endswith("}\n")


def test_no_lines_of_a_fresh_evaluation(tmp_path):
    assert heldout.read(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize(
    ("folder", "train_folder", "said"),
    [
        ("", "", "64 held-out tasks (seed 20261129);"),
        ("theirs", "", "the tasks of theirs;"),
        ("theirs", "ours", "the tasks of theirs;"),
        ("", "ours", "the tasks of ours whose sources are held out;"),
        ("ours/", "ours", "the tasks of ours whose sources are held out;"),
    ],
)
def test_the_protocol_names_the_tasks_that_are_played(folder, train_folder, said):
    config = wirl.laptop()
    config.tasks.update(folder=folder, train_folder=train_folder)
    assert heldout.protocol(config).startswith(f"3 runs of {said}")


def test_what_to_do_when_nothing_is_executed():
    assert "episode.context_tokens" in collect._remedy(Counter(context=40, done=24))
    assert "sft.steps" in collect._remedy(Counter(malformed=40, done=24))
