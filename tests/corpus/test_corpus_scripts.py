"""Scripts run, score what the ladder scored, and break exactly when a bug is planted."""

import dataclasses
import json

import numpy as np
import pytest

from mlexpert.corpus import bugs, facts, scripts
from mlexpert.sandmle import make
from mlexpert.tasks.grading import Grader
from mlexpert.tasks.task import PRIVATE_FACTS, description, load_set


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    make.make_set(folder, 4, "train", 23, workers=0)
    return load_set(folder)


def run(lines, task, tmp_path, monkeypatch, capsys):
    """Submission's path and what was printed; the script runs in a copy of the public folder."""
    for path in task.public.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(lines), "script.py", "exec"), {"__name__": "__main__"})
    return tmp_path / "submission.csv", capsys.readouterr().out


def called_for(task):
    read = facts.read(description(task))
    notes = json.loads((task.private / PRIVATE_FACTS).read_text())["notes"]
    plan = scripts.plan(np.random.default_rng(0), read, notes["called_for"])
    return read, dataclasses.replace(plan, variant=0), notes


def test_the_script_that_the_note_calls_for_wins_a_medal(tasks, tmp_path, monkeypatch, capsys):
    for task in tasks:
        read, plan, notes = called_for(task)
        if not read.called_for:
            continue
        assert read.called_for == notes["called_for"]
        path, printed = run(scripts.write(read, plan), task, tmp_path, monkeypatch, capsys)
        verdict = Grader(task).grade(path)
        assert verdict.score == pytest.approx(notes["ladder"][f"{plan.approach}.0"], rel=1e-6)
        assert verdict.medal > 0
        assert printed.startswith("cv ") and float(printed.split()[1]) > 0


def test_every_approach_runs_on_every_metric_it_applies_to(tasks, tmp_path, monkeypatch, capsys):
    for task in tasks[:2]:
        read = facts.read(description(task))
        for approach in scripts.applicable(read):
            lines = scripts.write(read, scripts.plan(np.random.default_rng(1), read, approach))
            path, _ = run(lines, task, tmp_path, monkeypatch, capsys)
            assert Grader(task).grade(path).status == "graded" and 15 <= len(lines) <= 21
            path.unlink()


def test_every_bug_loses_the_submission(tasks, tmp_path, monkeypatch, capsys):
    for task in tasks[:2]:
        read, plan, _ = called_for(task)
        for kind in bugs.possible(read, plan):
            lines = bugs.plant(np.random.default_rng(2), kind, scripts.write(read, plan))
            try:
                path, _ = run(lines, task, tmp_path, monkeypatch, capsys)
                assert not path.exists(), kind
            except Exception as error:
                assert isinstance(error, (KeyError, ValueError, TypeError, NameError, SyntaxError, OSError)), kind


def test_an_unknown_bug_is_an_error():
    with pytest.raises(ValueError, match="known: target"):
        bugs.plant(np.random.default_rng(0), "typo", [])


def test_a_description_without_a_target_is_an_error():
    with pytest.raises(ValueError, match="no line 'Target"):
        facts.read("Numeric: `a_b`.\nMetric: rmse, lower is better.\nNote: x\n")
