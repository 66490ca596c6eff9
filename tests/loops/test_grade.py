"""A file, a folder or a list against a task or a set; whatever is wrong with one submission, the others are graded."""

import json
import shutil
from types import SimpleNamespace

import pandas as pd
import pytest

from mlexpert.loops import grade
from mlexpert.loops.settings import ConfigError
from mlexpert.tasks.report import from_json
from mlexpert.tasks.seal import write
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import Facts, Provenance, Split, Thresholds

GOOD, BAD = "id,y\na,1\nb,2\n", "id,y\na,1\nb,nan\n"


def make(folder, id):
    facts = Facts(
        id=id, modality="tabular", domain="test", metric="mae", id_column="id", target_columns=("y",),
        provenance=Provenance("test", "", "none", True, id), split=Split("generated", 0, 0.5),
        thresholds_from="reference solutions",
    )  # fmt: skip
    table = pd.DataFrame({"id": ["a", "b"], "y": [1, 2]})
    return write(
        folder, facts, Thresholds(0.1, 0.2, 0.3, 0.4, 1.5), description="# Demo\n", train=table,
        test=table[["id"]], sample=table.assign(y=0), answers=table,
    )  # fmt: skip


@pytest.fixture
def tasks(tmp_path):
    for id in ("one", "two"):
        make(tmp_path / "set", id)
    return tmp_path / "set"


def graded(task, submission, folder, capsys):
    """Report, exit code, what was printed."""
    code = 0
    try:
        grade.run(SimpleNamespace(task=str(task), submission=str(submission)), folder / "out")
    except SystemExit as stop:
        code = stop.code
    return json.loads((folder / "out" / "report.json").read_text()), code, capsys.readouterr().out


def test_a_folder_against_a_set(tasks, tmp_path, capsys):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "one.csv").write_text(GOOD)
    whole, code, shown = graded(tasks, folder, tmp_path, capsys)
    one, two = (from_json(each) for each in whole["competition_reports"])
    assert code == 0 and (one.score, one.gold_medal, two.status) == (0.0, True, "absent")
    assert whole["any_medal_percentage"]["mean"] == 50.0 and whole["problems"] == []
    assert "one" in shown and "gold" in shown and "any medal: 50.0 % of 2 tasks" in shown


def test_a_list_with_everything_wrong_goes_on_to_its_end(tasks, tmp_path, capsys):
    (tmp_path / "good.csv").write_text(GOOD)
    (tmp_path / "bad.csv").write_text(BAD)
    lines = [
        {"competition_id": "one", "submission_path": "good.csv"},
        {"competition_id": "one", "submission_path": str(tmp_path / "bad.csv")},
        "not json",
        [1, 2],
        {"competition_id": "three", "submission_path": "good.csv"},
        {"task": "two", "submission_path": "nowhere.csv", "run": "1"},
        {"task": "two", "submission_path": "good.csv", "run": "1"},
        {"task": "two", "submission_path": "good.csv", "run": "2"},
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n\n")
    broken = make(tasks, "zbroken")
    (broken.root / "task.json").write_text("{}")
    whole, code, shown = graded(tasks, path, tmp_path, capsys)
    found = [(one["competition_id"], one["run"], one["status"]) for one in whole["competition_reports"]]
    assert found == [("one", "1", "graded"), ("one", "2", "invalid"), ("two", "1", "absent"), ("two", "2", "graded")]
    assert code == 1 and len(whole["problems"]) == 5 and shown.count("NOT GRADED") == 5
    for word in ("line 3: not JSON", "no task None", "no task 'three'", "second submission of task two", "zbroken"):
        assert any(word in problem for problem in whole["problems"]), word
    assert whole["any_medal_percentage"]["runs"] == {"1": 1, "2": 1}


def test_one_file_against_one_task(tasks, tmp_path, capsys):
    (tmp_path / "bad.csv").write_text(BAD)
    whole, code, shown = graded(tasks / "one", tmp_path / "bad.csv", tmp_path, capsys)
    assert code == 0 and whole["total_valid_submissions"] == 0
    assert "NaN or infinite values: 1, first in line 3" in shown


def test_what_cannot_be_started_says_why(tasks, tmp_path):
    (tmp_path / "s.csv").write_text(GOOD)
    for task, submission, error, message in (
        (tasks, tmp_path / "s.csv", ConfigError, "names 2 tasks"),
        (tasks, tmp_path / "none.csv", ConfigError, "no such file"),
        ("", "", ConfigError, "name both"),
        (tmp_path / "nothing", tmp_path / "s.csv", TaskError, "neither a task nor a set"),
    ):
        with pytest.raises(error, match=message):
            grade.run(SimpleNamespace(task=str(task), submission=str(submission)), tmp_path / "out")
    shutil.rmtree(tasks / "one" / "private")
    with pytest.raises(TaskError, match="missing"):
        grade.run(SimpleNamespace(task=str(tasks / "one"), submission=str(tmp_path / "s.csv")), tmp_path / "out")
