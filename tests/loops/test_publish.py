"""The command: what is left out is said, and a reviewer's no counts."""

import json

import pytest

from configs import tasks as configs
from mlexpert.loops import publish
from mlexpert.loops.settings import ConfigError
from mlexpert.sandmle import make
from mlexpert.tasks.task import sha256


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("publish") / "micro"
    make.make_set(folder, 2, "train", 11, workers=0)
    return folder


def test_a_set_is_published_without_what_was_rejected(folder, tmp_path, capsys):
    config = configs.get_config("export")
    with pytest.raises(ConfigError, match="both are needed"):
        publish.run(config, tmp_path)
    config.folder, config.archive = str(folder), str(tmp_path / "micro.zip")
    publish.run(config, tmp_path)
    assert "2 tasks, without answers" in capsys.readouterr().out
    first = sorted(path.name for path in folder.iterdir() if path.is_dir())[0]
    decision = dict(task=first, digest="x", decision="rejected", who="me", when="2026-01-01T00:00:00Z", why="dull")
    (folder / "review.json").write_text(json.dumps({"decisions": [decision]}))
    publish.run(config, tmp_path)
    told = capsys.readouterr().out
    assert f"left out {first}: rejected by a review: dull" in told and "1 tasks, without answers" in told


def test_a_yes_to_another_version_does_not_publish_this_one(folder):
    first = sorted(path.name for path in folder.iterdir() if path.is_dir())[0]
    told = dict(task=first, who="me", when="2026-01-01T00:00:00Z")
    no = told | dict(digest=sha256(folder / first / "task.json"), decision="rejected", why="dull")
    yes = told | dict(digest="another version", decision="accepted")
    (folder / "review.json").write_text(json.dumps({"decisions": [no, yes]}))
    assert publish.rejected(folder) == {first: "dull"}
    (folder / "review.json").write_text(json.dumps({"decisions": [no, no | yes | {"digest": no["digest"]}]}))
    assert publish.rejected(folder) == {}
