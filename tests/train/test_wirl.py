"""The reward table of MLExpert eq. (2), every outcome and every trend."""

import pytest

from mlexpert.train.credit.wirl import credit, outcome
from mlexpert.types import ExecStatus, Execution, Isolation, Medal, Outcome, Result, Verdict, VerdictStatus

ISOLATION = Isolation("plain", False, False, False, False, False, False)


def result(status=ExecStatus.OK, verdict=VerdictStatus.GRADED, score=0.5, medal=Medal.NONE, lower=False):
    execution = Execution(status, 0, None, "", "", "", "", False, 0.1, 0.1, 1.0, ISOLATION)
    graded = verdict is VerdictStatus.GRADED
    return Result(execution, Verdict(verdict, score=score if graded else None, medal=medal, lower_is_better=lower))


ERROR = result(ExecStatus.ERROR)
NO_FILE = result(verdict=VerdictStatus.ABSENT)


@pytest.mark.parametrize("status", [s for s in ExecStatus if s not in (ExecStatus.OK, ExecStatus.SETUP_FAILED)])
def test_every_unclean_end_is_an_execution_error_even_with_a_graded_file(status):
    assert outcome(result(status, medal=Medal.GOLD)) is Outcome.ERROR
    assert credit([result(status)]).reward == -1.0


@pytest.mark.parametrize("verdict", [VerdictStatus.ABSENT, VerdictStatus.UNREADABLE, VerdictStatus.INVALID])
def test_no_usable_file_is_no_submission(verdict):
    assert credit([result(verdict=verdict)]).outcome is Outcome.NO_SUBMISSION
    assert credit([result(verdict=verdict)]).reward == -0.6


@pytest.mark.parametrize(
    ("medal", "name", "base"),
    [
        (Medal.NONE, "valid", -0.4),
        (Medal.BRONZE, "bronze", 1.0),
        (Medal.SILVER, "silver", 1.0),
        (Medal.GOLD, "gold", 2.0),
    ],
)
@pytest.mark.parametrize(("before", "trend"), [(0.4, 0.2), (0.5, 0.0), (0.6, -0.2)])
@pytest.mark.parametrize("lower", [False, True])
def test_scored_windows(medal, name, base, before, trend, lower):
    got = credit([result(score=before, lower=lower), result(score=0.5, medal=medal, lower=lower)])
    trend = -trend if lower else trend
    assert (got.outcome, got.trend) == (Outcome(name), trend)
    assert got.reward == pytest.approx(base + trend)


def test_first_scored_window_has_no_trend_whatever_came_before():
    assert credit([ERROR, NO_FILE, result()]).trend == 0.0


def test_windows_without_a_score_leave_the_reference_in_place():
    assert credit([result(score=0.4), ERROR, NO_FILE, result(score=0.5)]).trend == 0.2


def test_reference_is_the_previous_scored_window_not_the_best():
    assert credit([result(score=0.9), result(score=0.1), result(score=0.5)]).trend == 0.2


def test_unscored_window_has_no_trend():
    assert credit([result(score=0.4), result(score=0.5), ERROR]).trend == 0.0


def test_ablation_without_trend():
    got = credit([result(score=0.4), result(score=0.5, medal=Medal.GOLD)], trend=False)
    assert (got.reward, got.trend) == (2.0, 0.0)


def test_infrastructure_failure_is_never_credited():
    with pytest.raises(ValueError, match="infrastructure"):
        credit([result(ExecStatus.SETUP_FAILED)])
    with pytest.raises(ValueError, match="infrastructure"):
        credit([result(ExecStatus.SETUP_FAILED), result()])


@pytest.mark.parametrize("score", [None, float("nan"), float("inf")])
def test_graded_without_a_finite_score_raises(score):
    with pytest.raises(ValueError, match="finite score"):
        credit([result(score=score)])


def test_no_results_raises():
    with pytest.raises(ValueError, match="no result"):
        credit([])
