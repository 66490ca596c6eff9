"""Cells of text to values and back."""

import numpy as np
import pytest
from metric_cases import EACH, cells, draw
from scipy import sparse

from mlexpert.tasks.metrics import BadCell, Needs, read, read_indicators, spell


@pytest.mark.parametrize(("name", "variant"), EACH)
def test_what_is_spelled_reads_back(name, variant):
    case = draw(name, variant, np.random.default_rng(0))
    codes = {label: code for code, label in enumerate(case.labels)}
    for kind, values in ((case.metric.needs, case.predictions), (case.metric.answers, case.answers.values)):
        for column in cells(kind, values, case.labels):
            assert spell(kind, read(kind, column, codes), case.labels) == column


@pytest.mark.parametrize(
    ("cell", "runs"),
    [
        ("", []),
        ("  ", []),
        ("-", []),
        ("1 3", [[1, 3]]),
        ("1 3 10 2", [[1, 3], [10, 2]]),
        ("1 2 3 4", [[1, 2], [3, 4]]),
    ],
)
def test_masks(cell, runs):
    assert read(Needs.RUNS, [cell])[0].tolist() == runs


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ("1", "pairs of start and length"),
        ("1 2 3", "pairs"),
        ("nan", "pairs"),
        ("nan nan", "whole numbers only"),
        ("1.5 2", "whole numbers only"),
        ("-1 2", "whole numbers only"),
        ("1,3 2", "whole numbers only"),
        ("1 99999999999999999999", "whole numbers only"),
        ("٣ 2", "whole numbers only"),
        ("0 3", "begin at 1"),
        ("1 0", "begin at 1"),
        ("5 2 1 2", "rise and not overlap"),
        ("1 3 2 2", "rise and not overlap"),
    ],
)
def test_broken_masks(cell, problem):
    with pytest.raises(BadCell, match=problem) as caught:
        read(Needs.RUNS, ["1 2", cell])
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("kind", "cell", "problem"),
    [
        (Needs.NUMBER, "1_0", "'1_0' is not a finite number"),
        (Needs.NUMBER, "inf", "not a finite number"),
        (Needs.LABEL, "A", "'A' is not one of the labels"),
        (Needs.LABELS, "a z", "'z' is not one of the labels"),
        (Needs.POINTS, "a 1", "points come in groups of 3"),
        (Needs.POINTS, "a 1 nan", "not a finite number"),
        (Needs.BOXES, "a 1 0 0 1", "boxes come in groups of 6"),
        (Needs.BOXES, "a 1 3 0 1 1", "ends before it begins"),
        (Needs.BOXES, "a 1 0 0 1e200 1", "too large"),
        (Needs.CUBOIDS, "1 0 0 0 1 1 0 0 car", "must be positive"),
    ],
)
def test_broken_cells(kind, cell, problem):
    with pytest.raises(BadCell, match=problem) as caught:
        read(kind, [cell], {"a": 0, "b": 1})
    assert caught.value.row == 0 and len(str(caught.value)) < 80


def test_label_sets():
    codes = {"a": 0, "b": 1, "c": 2}
    assert read(Needs.LABELS, ["b a b", "", "c"], codes).toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    columns = read_indicators([["1", "0"], ["0", "0"]], {"0": 0, "1": 1})
    assert sparse.issparse(columns) and columns.toarray().tolist() == [[1, 0], [0, 0]]


def test_lists_of_equal_length_stay_lists():
    lists = read(Needs.RANKED, ["a b", "c d"])
    assert lists.shape == (2,) and lists[1] == ("c", "d")


def test_texts_stay_as_they_are():
    assert read(Needs.TEXT, [" NA ", "", "nan"]).tolist() == [" NA ", "", "nan"]
