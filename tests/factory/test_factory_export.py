"""What may be given away: only data whose licence says so, answers only on request, and nothing that tells of them."""

import dataclasses
import json
import zipfile

import pandas as pd
import pytest

from mlexpert.factory import export as exports
from mlexpert.factory.archive import unpack
from mlexpert.factory.export import ExportError, export
from mlexpert.tasks.seal import write
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import Facts, Provenance, Split, Thresholds, load_set

SECRET = "the-hidden-answer"


def make(folder, id, redistributable=True, boards=None):
    ids = ["a", "b", "c"]
    facts = Facts(
        id=id, modality="text", domain="words", metric="exact_match", id_column="id", target_columns=("word",),
        provenance=Provenance("pypi", "https://example.org/words", "CC BY 4.0", redistributable, "words"),
        split=Split("random", 0, 0.5), thresholds_from="reference solutions",
    )  # fmt: skip
    sample = pd.DataFrame({"id": ids, "word": "x"})
    return write(
        folder, facts, Thresholds(0.9, 0.8, 0.7, 0.6, 0.0), description="# Words", sample=sample,
        train=pd.DataFrame({"id": ["t"], "word": ["y"]}), test=sample[["id"]], boards=boards,
        answers=sample.assign(word=[SECRET, "y", "z"]), notes={"rule": SECRET},
    )  # fmt: skip


@pytest.fixture
def tasks(tmp_path):
    make(tmp_path / "set", "free")
    make(tmp_path / "set", "bound", redistributable=False)
    return tmp_path / "set"


def names(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name.partition("/")[2] for name in archive.namelist()}


def whole(path):
    with zipfile.ZipFile(path) as archive:
        return b"".join(archive.read(name) for name in archive.namelist()).decode()


def test_answers_stay_here_and_so_does_all_that_tells_of_them(tasks, tmp_path):
    done = export(tasks, tmp_path / "out" / "set.zip")
    assert done.kept == ("free",)
    assert names(done.path) == {
        "README.md", "manifest.json", "free/task.json", "free/public/description.md", "free/public/train.csv",
        "free/public/test.csv", "free/public/sample_submission.csv",
    }  # fmt: skip
    text = whole(done.path)
    (task,) = [task for task in load_set(tasks) if task.id == "free"]
    hidden = [task.checksums[path] for path in task.checksums if path.startswith("private/")]
    assert hidden and not [told for told in (SECRET, "0.9", "private/", *hidden) if told in text]


def test_with_private_parts_it_is_the_same_set(tasks, tmp_path):
    done = export(tasks, tmp_path / "set.zip", private=True)
    (copy,) = load_set(unpack(done.path, tmp_path / "copy").folder / "set")
    (task,) = [task for task in load_set(tasks) if task.id == "free"]
    assert dataclasses.replace(copy, root=task.root) == task and copy.checksums == task.checksums
    assert "with answers" in whole(done.path)


def test_restricted_data_are_refused_with_the_reason_whatever_is_asked_for(tasks, tmp_path):
    for private in (False, True):
        done = export(tasks, tmp_path / "set.zip", private=private)
        assert "may not be passed on (CC BY 4.0)" in done.refused["bound"]
        assert not [name for name in names(done.path) if "bound" in name]
        with zipfile.ZipFile(done.path) as archive:
            manifest = json.loads(archive.read("set/manifest.json"))
        assert manifest["left_out"] == done.refused
        assert [task["provenance"]["licence"] for task in manifest["tasks"]] == ["CC BY 4.0"]


def test_rejected_broken_and_boards_are_left_out(tasks, tmp_path):
    make(tasks, "ranked", boards={"private": [1.0, 0.5]})
    (make(tasks, "altered").public / "train.csv").write_text("id,word\n")
    with pytest.raises(ExportError) as caught:
        export(tasks, tmp_path / "set.zip", private=True, rejected={"free": "too easy"})
    for told in ("free: rejected by a review: too easy", "altered: not whole", "ranked: its private part holds",
                 "bound: its data may not"):  # fmt: skip
        assert told in str(caught.value)
    assert not (tmp_path / "set.zip").exists()
    assert export(tasks, tmp_path / "set.zip").kept == ("free", "ranked")


def test_the_same_set_gives_the_same_bytes_and_an_archive_is_whole_or_not_there(tasks, tmp_path, monkeypatch):
    first, second = (export(tasks, tmp_path / name).path.read_bytes() for name in ("one.zip", "two.zip"))
    assert first == second

    def fails(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(exports.shutil, "copyfileobj", fails)
    with pytest.raises(OSError):
        export(tasks, tmp_path / "one.zip")
    assert (tmp_path / "one.zip").read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.zip", "set", "two.zip"]


def test_no_set(tmp_path):
    with pytest.raises(TaskError, match="no such folder"):
        export(tmp_path / "none", tmp_path / "x.zip")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="holds no task"):
        export(tmp_path / "empty", tmp_path / "x.zip")
