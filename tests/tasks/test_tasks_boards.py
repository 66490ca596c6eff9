"""Human leaderboards: what counts as a team, which way they run, and where a score stands."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlexpert.tasks.boards import BoardError, check_direction, clean, human_rank, position, ties
from mlexpert.tasks.medals import medal_for, next_medal, thresholds_from_board
from mlexpert.tasks.task import Thresholds
from mlexpert.types import Medal

UP = Thresholds(0.9, 0.8, 0.7, 0.6, 0.5)
scores = st.floats(-1e6, 1e6)


def test_rows_without_a_finite_score_are_no_teams():
    board = clean([0.3, math.nan, 0.1, None, math.inf, 0.2], lower_is_better=True)
    assert board.scores == [0.1, 0.2, 0.3] and board.dropped == 3 and board.teams == 3
    assert clean([0.3, 0.1], lower_is_better=False).scores == [0.3, 0.1]
    assert thresholds_from_board([0.9, math.nan, math.inf], False, 0.0) == thresholds_from_board([0.9], False, 0.0)


@pytest.mark.parametrize("rows", [[0.1, 0.2, 0.9], [0.1, math.nan, 0.1, 5.0]])
def test_a_board_that_runs_against_the_metric_is_refused(rows):
    check_direction(rows, lower_is_better=True)
    with pytest.raises(BoardError, match="higher is better, but the leaderboard begins with its lowest score"):
        check_direction(rows, lower_is_better=False)
    with pytest.raises(BoardError, match="lower is better, but the leaderboard begins with its highest"):
        check_direction(rows[::-1], lower_is_better=True)


@pytest.mark.parametrize("rows", [[], [math.nan], [0.5], [0.5, 0.5, 0.5], [0.5, 0.9, 0.1, 0.7]])
def test_a_board_in_no_order_contradicts_nothing(rows):
    check_direction(rows, True)
    check_direction(rows, False)


def test_positions_by_hand():
    board = clean([0.9, 0.8, 0.8, 0.5], False)
    assert [position(score, board, False).place for score in (1.0, 0.9, 0.85, 0.8, 0.6, 0.5, 0.4)] == [
        1,
        1,
        2,
        2,
        4,
        4,
        5,
    ]
    assert [position(score, board, False).score for score in (1.0, 0.8, 0.4)] == [1.0, 0.75, 0.0]
    error = clean([0.1, 0.2, 0.2], True)
    assert [position(score, error, True).place for score in (0.05, 0.1, 0.2, 0.3)] == [1, 1, 2, 4]
    assert ties(0.8, board) == 2 and ties(0.7, board) == 0 and ties(0.2, error) == 2


@given(st.lists(scores, min_size=1, max_size=60), scores, st.booleans())
def test_a_position_is_the_first_place_that_is_not_better(rows, score, lower):
    board = clean(rows, lower)
    better = sum(other < score if lower else other > score for other in rows)
    found = position(score, board, lower)
    assert (found.place, found.teams) == (better + 1, len(rows))
    assert found.score == (len(rows) - better) / len(rows)
    assert ties(score, board) == rows.count(score)


def test_human_rank_is_the_mean_over_the_boards_that_exist():
    public, private = clean([0.9, 0.5], False), clean([0.9, 0.7, 0.5, 0.3], False)
    assert human_rank(0.6, {"public": public, "private": private}, False) == (0.5 + 0.5) / 2
    assert human_rank(0.95, {"private": private}, False) == 1.0
    assert human_rank(0.6, {}, False) is None


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, True])
def test_what_is_no_finite_number_has_neither_place_nor_medal(score):
    for rank in (lambda: position(score, clean([0.5], False), False), lambda: medal_for(score, UP, False)):
        with pytest.raises(ValueError, match="not finite"):
            rank()


def test_scores_of_numpy_are_ranked_like_floats():
    assert medal_for(np.float32(0.95), UP, False) is Medal.GOLD
    assert medal_for(np.int64(1), UP, False) is Medal.GOLD
    assert position(np.float32(0.5), clean([1, 2], False), False).place == 3


def test_the_next_medal_and_what_is_missing():
    assert next_medal(0.75, UP, False)[:2] == (Medal.SILVER, 0.8)
    assert next_medal(0.75, UP, False).distance == pytest.approx(0.05)
    assert next_medal(0.2, UP, False).medal is Medal.BRONZE and next_medal(0.8, UP, False).medal is Medal.GOLD
    assert next_medal(0.9, UP, False) is None
    assert next_medal(5.0, Thresholds(1.0, 2.0, 3.0, 4.0, 9.0), True) == (Medal.BRONZE, 3.0, 2.0)
