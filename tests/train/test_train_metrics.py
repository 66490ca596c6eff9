import json

import pytest

from mlexpert.train.metrics import PHASES, Clock, Writer, read


class Hand:
    """A clock's hand that tests move."""

    def __init__(self):
        self.at = 100.0

    def __call__(self):
        return self.at


@pytest.fixture
def hand():
    return Hand()


def spend(hand, seconds):
    hand.at += seconds


def test_shares_by_hand_and_their_sum(hand):
    clock = Clock(now=hand)
    with clock.phase("wait"):
        spend(hand, 3.0)
    spend(hand, 4.0)  # outside any block: the default phase
    with clock.phase("save"):
        spend(hand, 1.0)
    lap = clock.lap()
    assert lap == {"seconds": 8.0, "wait_share": 0.375, "compute_share": 0.5, "sync_share": 0.0, "save_share": 0.125}
    assert sum(lap[f"{name}_share"] for name in PHASES) == 1


def test_nested_time_is_counted_once(hand):
    clock = Clock(now=hand)
    with clock.phase("wait"):
        spend(hand, 1.0)
        with clock.phase("sync"):
            spend(hand, 2.0)
        spend(hand, 1.0)
    lap = clock.lap()
    assert (lap["seconds"], lap["wait_share"], lap["sync_share"]) == (4.0, 0.5, 0.5)


def test_an_exception_still_closes_its_phase(hand):
    clock = Clock(now=hand)
    with pytest.raises(KeyError), clock.phase("wait"):
        spend(hand, 1.0)
        raise KeyError
    spend(hand, 1.0)
    assert clock.lap()["compute_share"] == 0.5


def test_a_lap_starts_afresh_but_totals_go_on_through_a_restart(hand):
    clock = Clock(now=hand)
    spend(hand, 2.0)
    clock.lap()
    with clock.phase("wait"):
        spend(hand, 1.0)
    state = json.loads(json.dumps(clock.state()))
    spend(hand, 1000.0)  # nobody runs
    again = Clock(now=hand)
    spend(hand, 5.0)  # start-up before the restore belongs to no step
    again.restore(state)
    spend(hand, 3.0)
    assert again.lap()["seconds"] == 3.0
    assert again.totals() == {"wait": 1.0, "compute": 5.0, "sync": 0.0, "save": 0.0}


def test_unknown_phase_raises():
    with pytest.raises(ValueError, match="choose one of"), Clock().phase("think"):
        pass


def test_lines_and_events_are_written(tmp_path):
    writer = Writer(tmp_path)
    writer.write(1, {"loss": 0.5, "note": "first"})
    writer.close()
    assert read(tmp_path) == [{"step": 1, "loss": 0.5, "note": "first"}]
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_resume_cuts_undone_steps_and_a_torn_line(tmp_path):
    writer = Writer(tmp_path)
    for step in range(1, 5):
        writer.write(step, {"loss": step / 3})
    writer.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "lo')
    again = Writer(tmp_path, last_step=2)
    again.write(3, {"loss": 9.0})
    again.close()
    assert read(tmp_path) == [{"step": 1, "loss": 1 / 3}, {"step": 2, "loss": 2 / 3}, {"step": 3, "loss": 9.0}]


def test_non_finite_numbers_raise(tmp_path):
    writer = Writer(tmp_path)
    with pytest.raises(ValueError, match="'loss' is nan at step 1"):
        writer.write(1, {"loss": float("nan")})
    writer.close()
    assert read(tmp_path) == []
