"""Splits: what each recipe promises, on tables made to break it."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources import frame, plan

from mlexpert.factory.records import Quarantine
from mlexpert.factory.split import cut, fewer, strata


def table(**columns) -> pd.DataFrame:
    return pd.DataFrame({name: [str(value) for value in values] for name, values in columns.items()})


@given(
    st.lists(st.sampled_from("abcdefghijklmn"), min_size=2, max_size=60).filter(lambda groups: len(set(groups)) > 1),
    st.sampled_from(["random", "stratified", "grouped", "source", "temporal"]),
    st.floats(0.05, 0.95),
    st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_every_recipe_puts_every_row_on_one_side_and_neither_side_is_empty(groups, recipe, share, seed):
    rows = table(y=groups, g=groups, t=[ord(group) for group in groups])
    how = plan(recipe=recipe, group_column="g", time_column="t", test_share=share, seed=seed, metric="accuracy")
    train, test = cut(rows, how)
    assert sorted([*train, *test]) == list(range(len(rows)))
    if recipe != "random" or len(rows) > 10:  # a stratum of one row stays in training
        assert len(train)
    again = cut(rows, how)
    assert np.array_equal(train, again.train_N) and np.array_equal(test, again.test_M)
    if recipe in ("grouped", "source"):
        assert len(test) and not set(rows["g"].iloc[train]) & set(rows["g"].iloc[test])
    if recipe == "temporal":
        assert len(test) and rows["t"].astype(int).iloc[train].max() < rows["t"].astype(int).iloc[test].min()


def test_stratified_holds_out_the_same_share_of_every_class_and_one_of_a_pair():
    rows = table(y=["a"] * 100 + ["b"] * 20 + ["c"] * 2 + ["d"])
    test = cut(rows, plan(recipe="stratified", metric="accuracy", test_share=0.2)).test_M
    assert Counter(rows["y"].iloc[test]) == {"a": 20, "b": 4, "c": 1}


def test_random_holds_out_the_share_and_another_seed_other_rows():
    rows = table(y=range(100))
    one, other = (set(cut(rows, plan(test_share=0.3, seed=seed)).test_M) for seed in (0, 1))
    assert len(one) == len(other) == 30 and one != other


def test_rows_are_shuffled_so_that_order_tells_nothing():
    train, test = cut(table(y=range(200)), plan())
    assert abs(np.corrcoef(train, np.arange(len(train)))[0, 1]) < 0.2 and list(test) != sorted(test)


def test_a_number_is_stratified_by_its_quantiles():
    rows = table(y=np.arange(100))
    assert Counter(strata(rows, plan())) == {str(bin): 10 for bin in range(10)}
    test = cut(rows, plan(recipe="stratified", test_share=0.2)).test_M
    assert Counter(test // 10) == {bin: 2 for bin in range(10)}


def test_of_several_labels_the_rarest_decides():
    rows = table(x=[1, 1, 1, 0], y=[1, 0, 0, 0], z=[0, 0, 0, 0])
    assert strata(rows, plan(metric="auc", target_columns=("x", "y", "z"))) == ["y", "x", "x", ""]
    sets = table(y=["a b", "a", "a", ""])
    assert strata(sets, plan(metric="hamming")) == ["b", "a", "a", ""]


def test_rows_of_one_time_stay_together_and_the_border_is_the_nearest():
    days = ["2020-01-01"] * 5 + ["2020-01-02"] * 4 + ["2020-01-03"] * 1
    train, test = cut(table(y=range(10), t=days), plan(recipe="temporal", time_column="t", test_share=0.2))
    assert list(train) == [0, 1, 2, 3, 4, 5, 6, 7, 8] and list(test) == [9]


def test_few_large_sources_are_those_that_come_closest_to_the_share():
    sources = ["north"] * 50 + ["south"] * 31 + ["east"] * 19
    rows = table(y=range(100), s=sources)
    for seed in range(5):
        test = cut(rows, plan(recipe="source", group_column="s", test_share=0.3, seed=seed)).test_M
        assert set(rows["s"].iloc[test]) == {"south"}


@pytest.mark.parametrize(
    ("changes", "rows", "message"),
    [
        ({"recipe": "grouped", "group_column": "g"}, table(y=[1, 2], g=["a", "a"]), "'g' holds one value only"),
        ({"recipe": "grouped", "group_column": "h"}, table(y=[1, 2], g=["a", "b"]), "no column 'h'; there are y, g"),
        ({"recipe": "temporal", "time_column": "t"}, table(y=[1, 2], t=["x", "y"]), "'x' in row 1 is no time"),
        ({"recipe": "temporal", "time_column": "t"}, table(y=[1, 2], t=["2020-01-01", ""]), "empty in row 2"),
        ({"recipe": "temporal", "time_column": "t"}, table(y=[1, 2], t=["5", "5"]), "all rows have the same time"),
        ({}, table(y=[1]), "has 1 rows"),
    ],
)
def test_a_recipe_that_cannot_be_followed_says_why(changes, rows, message):
    with pytest.raises(Quarantine, match=message):
        cut(rows, plan(**changes))


def test_fewer_rows_are_the_latest_whole_groups_or_any():
    rows = frame(100)
    latest = fewer(rows, plan(recipe="temporal", time_column="day", max_rows=30))
    assert len(latest) == 30 and latest["day"].min() == rows["day"].iloc[70]
    groups = fewer(
        rows.assign(g=[str(at // 10) for at in range(100)]), plan(recipe="grouped", group_column="g", max_rows=45)
    )
    assert set(Counter(groups["g"]).values()) == {10} and len(groups) == 40
    assert len(fewer(rows, plan(max_rows=10))) == 10 and fewer(rows, plan()) is rows
