"""Sets: deterministic, resumable, never half a task."""

import pytest

from mlexpert.sandmle import gate, make
from mlexpert.tasks.task import load, load_set


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    return folder, make.make_set(folder, 3, "train", 11, workers=0)


def test_the_set_holds_exactly_the_kept_tasks(made):
    folder, report = made
    assert [task.id for task in load_set(folder)] == report.kept
    assert report.drawn == 3 + sum(report.drops.values()) and set(report.drops) <= set(gate.REASONS)


def test_finished_tasks_are_found_and_a_broken_one_is_made_again_the_same(made):
    folder, report = made
    victim = folder / report.kept[1]
    checksums = load(victim).checksums
    (victim / "public" / "test.csv").write_text("half a fi")
    (folder / f".{report.kept[2]}.123").mkdir()
    again = make.make_set(folder, 3, "train", 11, workers=0)
    assert (again.kept, again.drops, again.found) == (report.kept, report.drops, 2)
    assert load(victim).checksums == checksums
    assert not list(folder.glob(".*"))


def test_a_smaller_set_is_a_prefix_and_other_sets_in_the_folder_stay(made, tmp_path):
    _, report = made
    stranger = tmp_path / "held_out-1-00000"
    stranger.mkdir()
    assert make.make_set(tmp_path, 2, "train", 11, workers=0).kept == report.kept[:2]
    assert stranger.exists()


def test_progress_sees_every_candidate(tmp_path, made):
    seen = []
    report = make.make_set(tmp_path, 1, "train", 11, workers=0, progress=lambda report: seen.append(report.drawn))
    assert seen == list(range(1, report.drawn + 1))


def test_a_gate_that_drops_everything_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "reason", lambda ladder: "spread too small")
    with pytest.raises(make.FunnelError, match=r"0 of 5 .*spread too small"):
        make.make_set(tmp_path, 1, "train", 11, workers=0)


def test_workers_make_the_same_set(made, tmp_path):
    folder, report = made
    assert make.make_set(tmp_path, 3, "train", 11, workers=1).kept == report.kept
    for id in report.kept:
        assert load(tmp_path / id).checksums == load(folder / id).checksums


def test_balance_counts_the_called_for_approach_on_every_kept_task(made):
    rates = gate.balance(load_set(made[0]))
    assert rates["called for"] == 1.0 and rates["constant"] == 0.0
