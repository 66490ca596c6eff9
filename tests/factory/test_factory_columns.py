"""Kinds of columns, and the values of numbers and times."""

import numpy as np
import pandas as pd
import pytest

from mlexpert.factory.columns import kind, kinds, numbers, times


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "2.5", "-3e4"], "number"),
        (["1", "", "NA"], "number"),
        (["1", "x"], "label"),
        (["1_000", "2"], "label"),
        (["", ""], "label"),
        (["2020-01-01", "2020-02-03 10:00"], "time"),
        (["2020 Q1", "2020Q4"], "time"),
        (["2020", "2021"], "number"),
        (["a", "b", "a"], "label"),
        (["not one but several words here", "and again some of them too"], "text"),
        (["the same few words in all rows"] * 9, "label"),
    ],
)
def test_kind(cells, expected):
    assert kind(cells) == expected


def test_kinds_look_at_all_tables_and_keep_what_is_known():
    one, other = pd.DataFrame({"a": ["1"], "b": ["x"]}), pd.DataFrame({"a": ["y"], "c": ["2"]})
    assert kinds([one, other], {"b": "id"}) == {"a": "label", "b": "id", "c": "number"}


DAY = 86_400.0


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        (["1970-01-02", "1970-01-01 12:00:00"], [DAY, DAY / 2]),
        (["1970-02", "1970-01"], [31 * DAY, 0.0]),
        (["1970Q2", "1970-Q1"], [90 * DAY, 0.0]),
        (["31/01/1970", "02/02/1970"], [30 * DAY, 32 * DAY]),
        (["01/31/1970", "02/02/1970"], [30 * DAY, 32 * DAY]),
        (["31.1.1970 06:00", "1.2.1970 00:00"], [30.25 * DAY, 31 * DAY]),
        (["7", "3.5"], [7.0, 3.5]),
        (["1970-01-01T00:00:00+01:00", ""], [-3600.0, np.nan]),
        (["", "NA"], [np.nan, np.nan]),
    ],
)
def test_times(cells, seconds):
    np.testing.assert_allclose(times(cells), seconds)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["2020-01-01", "", "soon"], "'soon' in row 3"),
        (["2020-13-01", "2020-01-01"], "'2020-13-01' in row 1"),
        (["01/02/2020", "03/04/2020"], "day or month comes first"),
    ],
)
def test_what_is_no_time_is_named(cells, message):
    with pytest.raises(ValueError, match=message):
        times(cells)


def test_numbers():
    np.testing.assert_allclose(numbers(["1", "", "nan", "-2.5"]), [1, np.nan, np.nan, -2.5])
    with pytest.raises(ValueError, match="'one' in row 2"):
        numbers(["1", "one"])
    with pytest.raises(ValueError, match="'inf' in row 1"):
        numbers(["inf"])
