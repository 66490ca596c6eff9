import math

import pytest

from mlexpert.loops import statistics


def line(run, task, medal, valid=True, gold=False):
    return {"run": run, "task": task, "any_medal": medal, "valid": valid, "gold": gold}


def test_mean_and_standard_error_of_known_runs():
    # MLE-bench Lite: runs of 15, 16 and 17 medals on 22 tasks are 72.7 +- 2.62 %.
    spread = statistics.spread([100 * k / 22 for k in (15, 16, 17)])
    assert math.isclose(spread["mean"], 72.727, abs_tol=1e-3)
    assert math.isclose(spread["sem"], 2.624, abs_tol=1e-3)


def test_one_run_has_no_standard_error():
    assert statistics.spread([50.0])["sem"] is None


def test_a_task_without_a_record_counts_as_a_failure():
    lines = [line(0, "a", True), line(1, "a", True), line(1, "b", False, valid=False)]
    scores = statistics.score_runs(lines, n_tasks=2, n_runs=2)
    assert scores["any_medal"]["runs"] == [50.0, 50.0]
    assert scores["valid"]["counts"] == [1, 1]


def test_two_records_of_one_task_and_run_raise():
    with pytest.raises(ValueError, match="two records"):
        statistics.score_runs([line(0, "a", True), line(0, "a", True)], 1, 1)
