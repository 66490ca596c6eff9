import json
import shutil

import pandas as pd
import pytest

from mlexpert.tasks.task import TaskError, Thresholds, description, load, load_set, notes

BINARY = ("auc", [0, 1, 1, 0], ("0", "1"))


def test_a_written_task_loads_the_same(make_task):
    task = make_task(*BINARY)
    assert load(task.root) == task
    assert (task.labels, task.lower_is_better, task.seed, task.family) == (("0", "1"), False, 3, "secret-family")
    assert description(task) == "# Demo\n" and notes(task) == {"rule": "secret-rule"}
    assert sorted(path.name for path in task.public.iterdir()) == [
        "description.md", "sample_submission.csv", "test.csv", "train.csv",
    ]  # fmt: skip


def test_nothing_hidden_outside_the_private_folder(make_task):
    task = make_task(*BINARY)
    seen = [path.read_text() for path in [task.root / "task.json", *task.public.iterdir()]]
    assert not [text for text in seen if "secret" in text or "gold" in text or "seed" in text]


def test_writing_again_replaces_and_leaves_nothing_aside(make_task):
    make_task(*BINARY)
    task = make_task("rmse", [1.0, 2.0])
    assert load(task.root).metric == "rmse"
    assert [path.name for path in task.root.parent.iterdir()] == ["demo"]


def test_same_input_same_bytes(make_task):
    first = make_task(*BINARY)
    second = make_task(*BINARY)
    assert first.checksums == second.checksums


@pytest.mark.parametrize("name", ["task.json", "public/train.csv", "private/answers.csv", "private/task-private.json"])
def test_a_missing_file_is_named(make_task, name):
    task = make_task(*BINARY)
    (task.root / name).unlink()
    with pytest.raises(TaskError, match=rf"{name}: missing; make the task again"):
        load(task.root)


@pytest.mark.parametrize("name", ["public/description.md", "public/train.csv", "private/answers.csv"])
def test_an_altered_file_is_named(make_task, name):
    task = make_task(*BINARY)
    (task.root / name).write_text((task.root / name).read_text() + " ")
    with pytest.raises(TaskError, match=rf"{name}: altered"):
        load(task.root)


def test_a_stray_public_file_is_an_error(make_task):
    task = make_task(*BINARY)
    shutil.copy(task.private / "answers.csv", task.public / "helper.csv")
    with pytest.raises(TaskError, match=r"helper\.csv: unexpected"):
        load(task.root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "format 99"),
        ({"lower_is_better": True}, "lower_is_better=True"),
        ({"metric": "luck"}, "'luck'"),
        ({"id": "other"}, "rename"),
        ({"checksums": {}}, "no checksum"),
    ],
)
def test_bad_metadata(make_task, change, message):
    path = make_task(*BINARY).root / "task.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(TaskError, match=message):
        load(path.parent)


def test_metadata_that_is_not_json(make_task):
    path = make_task(*BINARY).root / "task.json"
    path.write_text("{")
    with pytest.raises(TaskError, match=r"task\.json: not JSON"):
        load(path.parent)


def test_a_set_is_sorted_and_skips_what_is_still_being_written(make_task):
    folder = make_task(*BINARY, id="b").root.parent
    make_task(*BINARY, id="a")
    (folder / ".c.123").mkdir()
    assert [task.id for task in load_set(folder)] == ["a", "b"]


def test_a_set_with_a_broken_task_or_none_is_an_error(make_task, tmp_path):
    with pytest.raises(TaskError, match="no such folder"):
        load_set(tmp_path / "absent")
    task = make_task(*BINARY)
    shutil.rmtree(task.private)
    with pytest.raises(TaskError, match="missing"):
        load_set(task.root.parent)
    shutil.rmtree(task.root)
    with pytest.raises(TaskError, match="holds no task"):
        load_set(task.root.parent)


IDS = ["r0", "r1", "r2", "r3"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test": pd.DataFrame({"id": IDS, "target": 1})}, "contains the target"),
        ({"test": pd.DataFrame({"id": ["r0", "r1", "r2", "r2"]})}, "repeated"),
        ({"test": pd.DataFrame({"id": ["r0", "r1", "r2", None]})}, "empty"),
        ({"sample": pd.DataFrame({"id": IDS[::-1][1:], "target": 0.5})}, "ids of sample_submission.csv"),
        ({"sample": pd.DataFrame({"id": IDS, "guess": 0.5})}, "asks for"),
        ({"answers": pd.DataFrame({"id": ["r0", "r1", "r2", "x"], "target": [0, 1, 0, 1]})}, "ids of answers.csv"),
        ({"answers": pd.DataFrame({"id": IDS, "target": [1, 1, 1, 1]})}, "auc needs"),
        ({"answers": pd.DataFrame({"id": IDS, "target": [0, 1, 1, 7]})}, "not one of the labels"),
        ({"train": pd.DataFrame({"x": [1.0]})}, "train.csv has no column 'target'"),
        ({"id": "../up"}, "task id"),
        ({"metric": "luck"}, "unknown metric"),
        ({"labels": ("0", "0")}, "distinct"),
        ({"thresholds": Thresholds(0.6, 0.7, 0.8, 0.9, 0.5)}, "do not run"),
        ({"thresholds": Thresholds(0.9, 0.8, 0.7, 0.6, float("nan"))}, "not finite"),
    ],
)
def test_parts_that_do_not_fit_are_never_written(make_task, tmp_path, change, message):
    with pytest.raises(TaskError, match=message):
        make_task(*BINARY, **change)
    assert not (tmp_path / "set").exists() or not list((tmp_path / "set").iterdir())
