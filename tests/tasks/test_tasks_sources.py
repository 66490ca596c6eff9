"""Training and held-out tasks never share a source, whatever it is called and whatever else is in the set."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlexpert.tasks.sources import Sources, assign, name, record, recorded, refuse_held_out
from mlexpert.tasks.tables import TaskError

names = st.text("abcdefgh", min_size=1, max_size=3)


def tasks(*sources):
    return [
        SimpleNamespace(id=f"task{at}", provenance=SimpleNamespace(source_dataset=source))
        for at, source in enumerate(sources)
    ]


def test_names_have_one_spelling():
    assert name("Ames Housing") == name("ames_housing") == name(" AMES-housing ") == "ames-housing"
    assert name("sandmle:train-1-00001") == "sandmle:train-1-00001"


@given(st.lists(names, min_size=2, max_size=30, unique=True), st.integers(0, 5))
def test_every_source_is_on_one_side_and_both_sides_have_one(sources, seed):
    split = assign(tasks(*sources, *sources[:3]), 0.3, seed)
    assert sorted((*split.train, *split.held_out)) == sorted(sources)
    assert split.train and split.held_out


@given(st.lists(names, min_size=3, max_size=20, unique=True), st.integers(0, 5))
def test_what_was_assigned_stays_when_tasks_are_added(sources, seed):
    first = assign(tasks(*sources[:2]), 0.4, seed)
    later = assign(tasks(*sources), 0.4, seed, first)
    assert set(first.train) <= set(later.train) and set(first.held_out) <= set(later.held_out)
    assert assign(tasks(*sources), 0.4, seed, later) == later


def test_shares_come_out_about_right():
    split = assign(tasks(*(f"source{at}" for at in range(2000))), 0.25, 0)
    assert abs(len(split.held_out) / 2000 - 0.25) < 0.03
    assert assign(tasks("a", "b"), 0.0, 0).held_out == () and assign(tasks("a", "b"), 1.0, 0).train == ()
    with pytest.raises(ValueError, match="between 0 and 1"):
        assign(tasks("a"), 1.5, 0)


def test_a_training_run_that_touches_a_held_out_source_is_refused():
    split = Sources(train=("adult",), held_out=("ames-housing",), share=0.5, seed=0)
    refuse_held_out(tasks("Adult", "adult"), split)
    with pytest.raises(TaskError, match="'ames-housing', which is held out"):
        refuse_held_out(tasks("adult", "Ames Housing"), split)
    with pytest.raises(TaskError, match="on no side yet"):
        refuse_held_out(tasks("iris"), split)


def test_the_split_is_recorded_with_the_set(tmp_path):
    assert recorded(tmp_path) is None
    split = assign(tasks("a", "b", "c"), 0.5, 3)
    record(tmp_path, split)
    assert recorded(tmp_path) == split and [path.name for path in tmp_path.iterdir()] == ["sources.json"]
    (tmp_path / "sources.json").write_text('{"train": []}')
    with pytest.raises(TaskError, match="bad field 'held_out'"):
        recorded(tmp_path)
