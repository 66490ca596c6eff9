import errno
import json
import math
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest

from mlexpert.tasks.seal import TIME, seal
from mlexpert.tasks.tables import TaskError, read_table
from mlexpert.tasks.task import (
    Facts,
    Provenance,
    Split,
    Thresholds,
    boards,
    description,
    digest,
    load,
    load_set,
    notes,
)

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
    assert not [text for text in seen if "secret" in text or "gold" in text]
    assert not [path.name for path in task.public.iterdir() if "seed" in path.read_text()]


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
        ({"facts": {"metric": "luck"}}, "'luck'"),
        ({"facts": {"id": "other"}}, "rename"),
        ({"checksums": {}}, "no checksum"),
    ],
)
def test_bad_metadata(make_task, change, message):
    path = make_task(*BINARY).root / "task.json"
    written = json.loads(path.read_text())
    written["facts"] |= change.pop("facts", {})
    path.write_text(json.dumps(written | change))
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
        ({"test": pd.DataFrame({"id": ["r0", "r1", "r2", "r2"]})}, "not those of test.csv"),
        ({"sample": pd.DataFrame({"id": ["r0", "r1", "r2", "r2"], "target": 0.5})}, "repeated"),
        ({"sample": pd.DataFrame({"id": ["r0", "r1", "r2", None], "target": 0.5})}, "empty"),
        (
            {"sample": pd.DataFrame({"id": IDS[::-1][1:], "target": 0.5})},
            "ids of sample_submission.csv are not those of test.csv",
        ),
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"beta": 1}}, "has no setting 'beta'"),
        ({"target_columns": ("id",)}, "named and distinct"),
        ({"target_columns": ()}, "named and distinct"),
        ({"columns": {"x": "float"}}, "column 'x' is 'float'"),
        ({"provenance": Provenance("test", "", " ", True, "demo")}, "provenance.licence is empty"),
        ({"provenance": Provenance("test", "", "none", True, "")}, "provenance.source_dataset is empty"),
        ({"split": Split("by eye", 0, 0.5)}, "'by eye' is none of"),
        ({"split": Split("random", 0, 1.5)}, "test_share 1.5"),
        ({"boards": {"private": [math.nan]}}, "no row of the leaderboard has a finite score"),
        ({"boards": {"secret": [1.0]}}, "a board called 'secret'"),
        ({"answers": pd.DataFrame({"id": IDS, "target": [0, 1, 1, 0], "luck": 1})}, "reads no 'luck' column"),
        ({"notes": {"x": math.nan}}, "not JSON compliant"),
    ],
)
def test_facts_that_cannot_be_are_named(make_task, tmp_path, change, message):
    with pytest.raises(TaskError, match=message):
        make_task(*BINARY, **change)
    assert not (tmp_path / "set").exists() or not list((tmp_path / "set").iterdir())


def test_facts_and_boards_come_back(make_task):
    task = make_task(
        *BINARY, columns={"x": "number"}, budget={"hours": 2.0},
        boards={"private": [0.5, math.inf, 0.9], "public": [1]},
        split=Split("grouped", 7, 0.25, by="owner", drift={"auc": 0.52}),
    )  # fmt: skip
    again = load(task.root)
    assert again == task and hash(again) == hash(task)
    assert (again.columns, again.budget, again.split.drift) == ({"x": "number"}, {"hours": 2.0}, {"auc": 0.52})
    assert boards(again) == {"private": [0.9, 0.5], "public": [1.0]} and boards(make_task(*BINARY)) == {}


def test_a_changed_task_has_another_digest(make_task):
    first = digest(make_task(*BINARY))
    assert digest(make_task(*BINARY)) == first
    assert digest(make_task(*BINARY, domain="other")) != first
    assert digest(make_task(*BINARY, notes={"rule": "other"})) != first


# ---------------------------------------------------------------- a finished public folder
@pytest.fixture
def finished(make_task, tmp_path):
    """Facts, thresholds, a public folder with pictures, and answers, of a task that is sealed elsewhere."""
    task = make_task(*BINARY)
    public = tmp_path / "public"
    shutil.copytree(task.public, public)
    (public / "images" / "deep").mkdir(parents=True)
    (public / "images" / "deep" / "r0.png").write_bytes(b"\x89PNG")
    facts = Facts(**{each.name: getattr(task, each.name) for each in fields(Facts)})
    return facts, task.thresholds, public, read_table(task.private / "answers.csv")


def test_a_finished_folder_is_copied_with_what_lies_in_it(finished, tmp_path):
    facts, lines, public, answers = finished
    task = seal(tmp_path / "sealed", replace(facts, train=""), lines, public=public, answers=answers)
    assert (task.public / "images" / "deep" / "r0.png").read_bytes() == b"\x89PNG" and load(task.root) == task
    assert {path.stat().st_mtime for path in task.public.rglob("*") if path.is_file()} == {float(TIME)}
    (task.public / "images" / "deep" / "r1.png").touch()
    with pytest.raises(TaskError, match=r"r1\.png: unexpected"):
        load(task.root)


def test_for_grading_only_what_it_reads_is_verified(finished, tmp_path):
    facts, lines, public, answers = finished
    task = seal(tmp_path / "sealed", facts, lines, public=public, answers=answers)
    (task.public / "images" / "deep" / "r0.png").write_bytes(b"another")
    assert load(task.root, whole=False) == task
    with pytest.raises(TaskError, match=r"r0\.png: altered"):
        load(task.root)
    (task.public / "sample_submission.csv").write_text("id,target\n")
    with pytest.raises(TaskError, match=r"sample_submission\.csv: altered"):
        load(task.root, whole=False)


@pytest.mark.parametrize("name", ["sample_submission.csv", "description.md", "test.csv", "train.csv"])
def test_a_public_part_that_lacks_a_file_is_never_sealed(finished, tmp_path, name):
    facts, lines, public, answers = finished
    (public / name).unlink()
    with pytest.raises(TaskError, match=rf"{name} is not in the public folder"):
        seal(tmp_path / "sealed", facts, lines, public=public, answers=answers)
    assert not list((tmp_path / "sealed").iterdir())


def test_links_are_never_sealed(finished, tmp_path):
    facts, lines, public, answers = finished
    (public / "images" / "answers.csv").symlink_to(tmp_path / "set" / "demo" / "private" / "answers.csv")
    with pytest.raises(TaskError, match="is a link"):
        seal(tmp_path / "sealed", facts, lines, public=public, answers=answers)


def test_an_older_task_stays_when_it_cannot_be_replaced(make_task, monkeypatch):
    task = make_task(*BINARY)
    real = Path.rename

    def failing(self, target):
        if Path(target) == task.root and not self.name.endswith(".old"):
            raise OSError(errno.ENOSPC, "no space")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no space"):
        make_task("rmse", [1.0, 2.0])
    assert load(task.root) == task and [path.name for path in task.root.parent.iterdir()] == ["demo"]


def test_one_target_is_asked_for_by_its_name_only_where_there_is_one(make_task):
    assert make_task(*BINARY).target_column == "target"
    table = pd.DataFrame({"id": ["r0", "r1"], "a": 1.0, "b": 2.0})
    several = make_task("rmse", [1, 2], target_columns=("a", "b"), train=table, sample=table, answers=table)
    with pytest.raises(TaskError, match="2 target columns"):
        _ = several.target_column
