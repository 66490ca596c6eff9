"""The defined value of every metric in every edge case, and the page that lists them."""

import warnings

import pytest
from metric_docs import PAGE, SECTIONS, written
from metric_edges import EDGES, same, value

from mlexpert.tasks.metrics import METRICS


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: f"{edge.metric}: {edge.case}")
def test_the_value_of_an_edge(edge):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what a library warns of, a metric must have decided before
        assert same(value(edge), edge.value)


def test_every_metric_has_an_edge():
    assert {edge.metric for edge in EDGES} == METRICS.keys()


@pytest.mark.parametrize("name", SECTIONS)
def test_the_page_says_what_the_tests_check(name):
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, name) == SECTIONS[name](), "run: PYTHONPATH=. python tests/tasks/metric_docs.py"
