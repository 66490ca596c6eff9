"""Leaderboards are read by their named columns; they give thresholds only where direction and scale are ours."""

import pandas as pd
import pytest
from sources import plan, raw

from mlexpert.factory import boards
from mlexpert.factory.records import Quarantine
from mlexpert.factory.reference import SAMPLE_SCORE
from mlexpert.factory.thresholds import REFERENCE_SOLUTIONS, by_solutions, decide
from mlexpert.tasks.metrics import METRICS

RMSE, AUC = METRICS["rmse"], METRICS["auc"]
SCORES = {SAMPLE_SCORE: 10.0, "constant": 10.0, "linear": 6.0, "boosted": 4.0, "forest": 5.0}


def board(scores, **more) -> pd.DataFrame:
    return pd.DataFrame({"rank": range(1, len(scores) + 1), "score": scores} | more)


@pytest.fixture
def find(tmp_path):
    def found(where="comp", **tables):
        folder = tmp_path / "boards"
        raw(folder / where, **tables)
        return boards.find(plan(board="comp"), raw(tmp_path / "raw"), folder)

    return found


# ---------------------------------------------------------------- reading
def test_both_boards_are_read_in_the_order_of_ranks(find):
    shuffled = pd.DataFrame({"team": ["c", "a", "b"], "Score": [3, 1, 2], "Rank": [3, 1, 2]})
    found = find(private=shuffled, public_leaderboard=board([5, 6]))
    assert found.private == (1.0, 2.0, 3.0) and found.public == (5.0, 6.0) and found.scores == found.private


def test_rows_without_a_score_are_counted(find):
    found = find(private=board([1, "", "nan", 2, "inf"]))
    assert found.private == (1.0, 2.0) and found.no_score == 3
    assert "3 rows" in decide(RMSE, SCORES | {"linear": 1.5}, found).findings[0].text


def test_a_board_among_the_raw_files_comes_first(tmp_path):
    source = raw(tmp_path / "raw", leaderboard=board([1, 2]))
    assert boards.find(plan(board="leaderboard.csv"), source, None).private == (1.0, 2.0)


def test_no_board_where_none_is_named_or_no_folder_is_given(tmp_path):
    source = raw(tmp_path / "raw")
    assert boards.find(plan(), source, tmp_path) is None and boards.find(plan(board="comp"), source, None) is None


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "no leaderboard of 'comp'"),
        ({"private": pd.DataFrame({"rank": [1], "points": [3]})}, "no column 'score'; it has rank, points"),
        ({"private": board(["", "nan"])}, "no finite score"),
        ({"private": board([])}, "no finite score"),
    ],
)
def test_a_board_that_cannot_be_used_says_why(find, tables, message):
    with pytest.raises(Quarantine, match=message):
        find(**tables)


# ---------------------------------------------------------------- people
def test_a_board_of_our_scale_gives_the_medal_rules_thresholds(find):
    decision = decide(RMSE, SCORES, find(private=board([at / 10 for at in range(1, 101)])))
    assert decision.thresholds_from == "leaderboard of comp, 100 teams (private)"
    limits = decision.thresholds
    assert (limits.gold, limits.silver, limits.bronze, limits.median, limits.sample) == (1.0, 2.0, 4.0, 5.05, 10.0)


@pytest.mark.parametrize("name", ["private", "public"])
def test_a_board_that_runs_against_the_metric_is_refused(find, name):
    up, down = board([0.5, 0.6, 0.9]), board([0.9, 0.6, 0.5])
    other = "public" if name == "private" else "private"
    with pytest.raises(
        Quarantine, match=f"the {name} leaderboard of 'comp' does not fit auc.*correct the metric"
    ) as error:
        decide(AUC, {SAMPLE_SCORE: 0.5, "linear": 0.7}, find(**{name: up, other: down}))
    assert error.value.kind == "direction"
    decide(AUC, {SAMPLE_SCORE: 0.5, "linear": 0.7}, find(**{name: down, other: down}))


@pytest.mark.parametrize("scores", [[0.01, 0.02, 0.03], [100.0, 200.0, 300.0]])
def test_a_board_of_another_scale_is_not_used_and_that_is_said(find, scores):
    decision = decide(RMSE, SCORES, find(private=board(scores)))
    assert decision.thresholds_from == REFERENCE_SOLUTIONS
    assert decision.findings[0].kind == "board_scale" and decision.findings[0].severity == "warn"


def test_where_no_solution_applies_the_board_is_taken_on_trust(find):
    decision = decide(RMSE, {SAMPLE_SCORE: 9.0}, find(private=board([1, 2, 3])))
    assert decision.thresholds.gold == 1.0 and decision.thresholds.sample == 9.0


# ---------------------------------------------------------------- solutions
def test_medals_lie_between_the_best_and_the_median_solution():
    limits = by_solutions(RMSE, SCORES)  # best 4, median of 10 6 5 4: 5.5
    assert limits.median == 5.5 and limits.sample == 10.0
    assert (limits.gold, limits.silver, limits.bronze) == pytest.approx((4.075, 4.225, 4.45))


def test_the_median_is_at_least_the_constant():
    scores = {SAMPLE_SCORE: 0.5, "linear": 0.8, "boosted": 0.4, "forest": 0.3}
    limits = by_solutions(AUC, scores)
    assert limits.median == 0.5 and limits.gold == pytest.approx(0.785)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({SAMPLE_SCORE: 0.5, "constant": 0.5}, "no reference solution applies to auc"),
        ({SAMPLE_SCORE: 0.5, "linear": 0.5, "boosted": 0.5}, "no better than|the median one 0.5"),
        ({SAMPLE_SCORE: 0.5, "linear": 0.4}, "a constant 0.5"),
    ],
)
def test_without_a_spread_there_are_no_thresholds(scores, message):
    with pytest.raises(Quarantine, match=message):
        by_solutions(AUC, scores)
