import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlexpert.tasks.medals import above_median, medal_for, positions, quality, thresholds_from_board
from mlexpert.tasks.task import Thresholds
from mlexpert.types import Medal

UP = Thresholds(gold=0.9, silver=0.8, bronze=0.7, median=0.6, sample=0.5)
DOWN = Thresholds(gold=1.0, silver=2.0, bronze=3.0, median=4.0, sample=5.0)


@pytest.mark.parametrize(
    ("teams", "expected"),
    [
        (1, (1, 1, 1)), (4, (1, 1, 1)), (5, (1, 1, 2)), (9, (1, 1, 3)), (10, (1, 2, 4)), (50, (5, 10, 20)),
        (99, (9, 19, 39)), (100, (10, 20, 40)), (249, (10, 49, 99)), (250, (10, 50, 100)), (500, (11, 50, 100)),
        (999, (11, 50, 100)), (1000, (12, 50, 100)), (1999, (13, 99, 199)), (4539, (19, 226, 453)),
    ],
)  # fmt: skip
def test_positions_follow_the_published_table(teams, expected):
    assert positions(teams) == expected


def published(teams: int) -> tuple[int, int, int]:
    """The rule's table, row by row, with shares as floating-point numbers."""

    def share(part: float) -> int:
        return max(1, int(part * teams))

    if teams < 100:
        return share(0.1), share(0.2), share(0.4)
    if teams < 250:
        return 10, share(0.2), share(0.4)
    gold = 10 + int(0.002 * teams)
    return (gold, 50, 100) if teams < 1000 else (gold, share(0.05), share(0.1))


def test_positions_and_medals_follow_the_rule_for_every_size_of_board():
    for teams in range(1, 6001):
        assert positions(teams) == published(teams)
    for teams in (*range(1, 301), 999, 1000, 6000):
        gold, silver, bronze = published(teams)
        lines = thresholds_from_board(range(1, teams + 1), True, 9999.0)  # the score of place p is p
        won = [medal_for(place, lines, True) for place in range(1, teams + 1)]
        assert won == [Medal((p <= gold) + (p <= silver) + (p <= bronze)) for p in range(1, teams + 1)]


def test_positions_without_teams():
    with pytest.raises(ValueError, match="0 teams"):
        positions(0)


def test_board_order_does_not_matter_and_direction_is_given():
    scores = [float(score) for score in range(1, 101)]  # 100 teams: places 10, 20, 40
    for board in (scores, scores[::-1], scores[::2] + scores[1::2]):
        assert thresholds_from_board(board, False, 0.0) == Thresholds(91.0, 81.0, 61.0, 50.5, 0.0)
        assert thresholds_from_board(board, True, 200.0) == Thresholds(10.0, 20.0, 40.0, 50.5, 200.0)


def test_a_board_of_equal_scores_keeps_its_direction():
    board = thresholds_from_board([0.1] * 50, True, 1.0)
    assert medal_for(5.0, board, True) is Medal.NONE
    assert medal_for(0.05, board, True) is Medal.GOLD
    assert medal_for(0.1, board, True) is Medal.GOLD and not above_median(0.1, board, True)


def test_a_board_of_one_team_in_an_error_metric():
    board = thresholds_from_board([0.1], True, 1.0)
    assert medal_for(9.0, board, True) is Medal.NONE


@pytest.mark.parametrize("board", [[], [math.nan, None], [math.inf, -math.inf]])
def test_a_board_without_thresholds_is_an_error(board):
    with pytest.raises(ValueError, match="leaderboard"):
        thresholds_from_board(board, True, 1.0)


@pytest.mark.parametrize(
    ("score", "medal"),
    [(1.0, 3), (0.9, 3), (0.89999, 2), (0.8, 2), (0.79, 1), (0.7, 1), (0.69999, 0), (0.1, 0)],
)
def test_medals_are_reached_at_their_threshold(score, medal):
    assert medal_for(score, UP, False) == medal


@pytest.mark.parametrize(("score", "medal"), [(0.0, 3), (1.0, 3), (1.01, 2), (2.0, 2), (3.0, 1), (3.01, 0)])
def test_medals_when_lower_is_better(score, medal):
    assert medal_for(score, DOWN, True) == medal


def test_the_median_must_be_beaten():
    assert not above_median(0.6, UP, False) and above_median(math.nextafter(0.6, 1), UP, False)
    assert not above_median(4.0, DOWN, True) and above_median(math.nextafter(4.0, 0), DOWN, True)


def test_tiny_scores_are_ranked_at_full_precision():
    board = Thresholds(1e-6, 2e-6, 3e-6, 4e-6, 1.0)
    assert [medal_for(score, board, True) for score in (1e-6, 2e-6, 3e-6, 4e-6)] == [3, 2, 1, 0]


def test_quality_is_the_place_between_sample_and_gold():
    assert [quality(score, UP, False) for score in (0.4, 0.5, 0.7, 0.9, 1.0)] == pytest.approx([0, 0, 0.5, 1, 1])
    assert [quality(score, DOWN, True) for score in (9.0, 5.0, 4.0, 1.0, 0.0)] == pytest.approx([0, 0, 0.25, 1, 1])


def test_quality_when_the_sample_is_already_gold():
    flat = Thresholds(1.0, 1.0, 1.0, 1.0, 1.0)
    assert quality(1.0, flat, False) == 1.0 and quality(0.99, flat, False) == 0.0


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_never_ranked(score):
    for rank in (medal_for, above_median, quality):
        with pytest.raises(ValueError, match="not finite"):
            rank(score, UP, False)


scores = st.floats(-1e6, 1e6)


@given(st.lists(scores, min_size=1, max_size=300), scores)
def test_mirroring_scores_and_direction_changes_nothing(board, score):
    up = thresholds_from_board(board, False, min(board))
    down = thresholds_from_board([-value for value in board], True, -min(board))
    assert medal_for(score, up, False) is medal_for(-score, down, True)
    assert above_median(score, up, False) == above_median(-score, down, True)
    assert quality(score, up, False) == quality(-score, down, True)


@given(st.lists(scores, min_size=1, max_size=300))
def test_thresholds_run_from_gold_to_median(board):
    lines = thresholds_from_board(board, False, 0.0)
    assert lines.gold >= lines.silver >= lines.bronze >= lines.median
