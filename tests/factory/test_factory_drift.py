"""Drift of known samples, against scipy and against sums done by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from mlexpert.factory.drift import ADVERSARIAL, drift, ks, total_variation

NUMBERS = st.lists(st.floats(-5, 5).map(lambda x: round(x, 1)), min_size=1, max_size=30)


@given(NUMBERS, NUMBERS)
@settings(max_examples=200, deadline=None)
def test_ks_is_scipys(one, other):
    assert ks(np.array(one), np.array(other)) == pytest.approx(ks_2samp(one, other, method="asymp").statistic)


def test_ks_of_gaps_is_the_difference_of_their_shares():
    one, other = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 4.0, np.nan, np.nan, np.nan, np.nan])
    assert ks(one, other) == 0.5 and ks(np.array([np.nan]), np.array([np.nan])) == 0.0


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("aab", "aab", 0.0),
        ("aaab", "abbb", 0.5),
        ("aa", "bb", 1.0),
        ("ab", "abcd", 0.5),
        ("aaaaaaaaac", "aaaaaaaaaa", 0.1),
    ],
)
def test_total_variation_by_hand(one, other, expected):
    assert total_variation(one, other) == pytest.approx(expected) == total_variation(other, one)


def test_rare_labels_count_as_one():
    one, other = [f"a{at}" for at in range(1000)], [f"b{at}" for at in range(1000)]
    assert total_variation(one, other) < 0.1  # all are rare: nothing to compare


def sides(shift: float, n: int = 300) -> tuple[pd.DataFrame, pd.DataFrame]:
    draw = np.random.default_rng(0)
    tables = []
    for move in (0.0, shift):
        x = draw.normal(size=n)
        tables.append(pd.DataFrame({"x": x + move, "z": draw.normal(size=n), "y": x, "id": np.arange(n)}).astype(str))
    return tables[0], tables[1]


KINDS = {"x": "number", "z": "number", "y": "number", "id": "id"}


def test_equal_samples_cannot_be_told_apart_and_shifted_ones_can():
    same, moved = drift(*sides(0.0), KINDS, ("y",)), drift(*sides(3.0), KINDS, ("y",))
    assert same[ADVERSARIAL] < 0.6 < 0.9 < moved[ADVERSARIAL]
    assert moved["x"] > 0.8 and moved["z"] == same["z"] < 0.15 and "id" not in same
    assert drift(*sides(3.0), KINDS, ("y",)) == moved


def test_what_the_split_cuts_by_is_measured_but_not_shown_to_the_model():
    measured = drift(*sides(3.0), KINDS, ("y", "x"))
    assert measured["x"] > 0.8 and measured[ADVERSARIAL] < 0.6


def test_columns_of_one_value_do_not_stop_the_model():
    one, other = (side.assign(x="", z="7") for side in sides(0.0))
    assert drift(one, other, KINDS, ("y",))[ADVERSARIAL] == 0.5


def test_a_side_of_few_rows_is_not_judged_by_a_model():
    assert drift(*sides(3.0, n=10), KINDS)[ADVERSARIAL] == 0.5
