"""The buffer: one fate for every window, oldest first, age bounded at admission, and a state that is exact."""

import asyncio
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlexpert.rollout.buffer import Buffer, array_from_json, array_to_json, window_from_json, window_to_json
from mlexpert.types import Credit, Outcome, Sample, Span, Stop, Turn, Window


def window(id: str, versions=(0,), support=False, context: int = 3) -> Window:
    n = len(versions)
    rng = np.random.default_rng(abs(hash(id)) % 2**32)
    sample = Sample(
        ids_N=rng.integers(100, size=n, dtype=np.int32),
        logprobs_N=-rng.exponential(size=n).astype(np.float32),
        versions_N=np.array(versions, np.int32),
        stop=Stop.END_TURN,
        support_NxK=rng.integers(-1, 100, size=(n, 4), dtype=np.int32) if support else None,
    )
    span = Span(0, np.arange(context, dtype=np.int32), (Turn(np.arange(2, dtype=np.int32), sample),))
    return Window(id, id.split("/")[0], "task", 0, (span,), Credit(Outcome.VALID, -0.4 + 0.1 * n, 0.2))


def filled(versions, batch=2, max_age=1, hard_age=None, at=0) -> Buffer:
    buffer = Buffer(batch, max_age, hard_age)
    buffer.advance(at)
    for i, version in enumerate(versions):
        buffer.opened(f"e{i}/0")
        buffer.put(window(f"e{i}/0", (version,)))
    return buffer


def adds_up(buffer: Buffer) -> bool:
    counts = buffer.counts()
    return counts.pop("opened") == sum(counts.values())


# ---------------------------------------------------------------- order, age, fates
def test_a_batch_is_exact_and_oldest_first_with_ties_in_order_of_arrival():
    buffer = filled([2, 1, 2, 1, 3], batch=3, max_age=4)
    assert [w.id for w in buffer.take()] == ["e1/0", "e3/0", "e0/0"]
    with pytest.raises(LookupError, match="2 windows are ready"):
        buffer.take()


def test_age_counts_from_the_oldest_token():
    buffer = filled([], at=7)
    assert buffer.age(window("e/0", (6, 4, 7))) == 3


def test_beyond_the_hard_bound_a_window_expires_on_advance_and_on_arrival():
    buffer = filled([0, 1], max_age=1, hard_age=2, at=2)
    assert buffer.counts()["ready"] == 2
    buffer.advance(3)
    assert (buffer.counts()["ready"], buffer.counts()["expired"]) == (1, 1)
    buffer.opened("late/0")
    buffer.put(window("late/0", (0,)))
    assert buffer.counts()["expired"] == 2
    assert adds_up(buffer)


@pytest.mark.parametrize("close", ["put", "cancel", "fail"])
def test_a_window_closes_once_and_only_if_opened(close):
    buffer = Buffer(2, 1)
    buffer.opened("e/0")
    buffer.cancel("e/0")
    for id in ("e/0", "never/0"):
        with pytest.raises(KeyError, match=id):
            getattr(buffer, close)(window(id) if close == "put" else id)


def test_announcing_an_open_window_again_counts_it_once():
    buffer = Buffer(2, 1)
    buffer.opened("e/0")
    buffer.opened("e/0")
    assert buffer.counts()["opened"] == 1
    assert buffer.in_flight == ("e/0",)


OPS = st.lists(st.tuples(st.sampled_from(["open", "put", "cancel", "fail", "take", "advance"]), st.integers(0, 5)))


@given(OPS, st.integers(1, 3), st.integers(0, 2))
def test_fates_add_up_after_every_call_and_no_window_is_trained_twice(ops, batch, max_age):
    buffer, opened, trained = Buffer(batch, max_age), 0, []
    for op, n in ops:
        in_flight = buffer.in_flight
        if op == "open":
            buffer.opened(f"e{opened}/0")
            opened += 1
        elif op == "advance":
            buffer.advance(buffer.version + n % 3)
        elif op == "take" and buffer.ready():
            batch_windows = buffer.take()
            assert len(batch_windows) == batch
            assert all(buffer.age(w) <= buffer.hard_age for w in batch_windows)
            trained += [w.id for w in batch_windows]
        elif op in ("put", "cancel", "fail") and in_flight:
            id = in_flight[n % len(in_flight)]
            getattr(buffer, op)(window(id, (max(buffer.version - n, 0),)) if op == "put" else id)
        assert adds_up(buffer)
        restored = Buffer(batch, max_age)
        restored.restore(json.loads(json.dumps(buffer.state())))
        assert restored.state() == buffer.state()
        assert restored.counts() == buffer.counts()
    assert len(trained) == len(set(trained)) == buffer.counts()["trained"]
    assert buffer.counts()["opened"] == opened


# ---------------------------------------------------------------- admission
def test_room_counts_what_is_ready_and_what_is_expected():
    buffer = filled([0, 0, 0], batch=2, max_age=1)  # room for 4 windows ahead
    assert buffer.room(0)
    assert not buffer.room(1)
    buffer.opened("open/0")  # in flight even if the caller expects none
    assert not buffer.room(0)


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_windows_admitted_while_there_is_room_are_trained_within_the_bound(batch, max_age, seed):
    """Collectors open whenever allowed and finish in order; the learner updates at random moments."""
    rng, buffer, opened = np.random.default_rng(seed), Buffer(batch, max_age), 0
    drawn_at = {}
    for _ in range(60):
        if buffer.room(len(buffer.in_flight)):
            id = f"e{opened}/0"
            buffer.opened(id)
            drawn_at[id] = buffer.version
            opened += 1
        if buffer.in_flight and rng.random() < 0.7:
            id = buffer.in_flight[0]
            buffer.put(window(id, (drawn_at[id],)))
        if buffer.ready() and rng.random() < 0.5:
            assert all(buffer.age(w) <= max_age for w in buffer.take())
            buffer.advance(buffer.version + 1)
    assert buffer.counts()["expired"] == 0


def test_waiting_ends_with_the_window_that_completes_a_batch():
    async def run():
        buffer = filled([0], batch=2)
        buffer.opened("x/0")
        waiting = asyncio.create_task(buffer.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        buffer.put(window("x/0"))
        await waiting
        return buffer.take()

    assert len(asyncio.run(run())) == 2


# ---------------------------------------------------------------- state
@pytest.mark.parametrize("support", [False, True])
def test_a_window_survives_json_to_the_last_bit(support):
    before = window("e7/2", (3, 3, 4), support)
    after = window_from_json(json.loads(json.dumps(window_to_json(before))))
    assert (after.id, after.episode, after.task, after.index, after.credit) == (
        before.id,
        before.episode,
        before.task,
        before.index,
        before.credit,
    )
    old, new = before.spans[0].turns[0].sample, after.spans[0].turns[0].sample
    for name in ("ids_N", "logprobs_N", "versions_N") + (("support_NxK",) if support else ()):
        assert getattr(new, name).dtype == getattr(old, name).dtype
        np.testing.assert_array_equal(getattr(new, name), getattr(old, name))
    assert new.stop is Stop.END_TURN
    assert (new.support_NxK is None) == (not support)
    np.testing.assert_array_equal(after.spans[0].context_ids_P, before.spans[0].context_ids_P)


@given(st.lists(st.floats(width=32)))
def test_every_float32_survives(values):
    before = np.array(values, np.float32)
    after = array_from_json(json.loads(json.dumps(array_to_json(before))))
    assert after.tobytes() == before.tobytes()
    assert after.dtype == np.float32


def test_a_state_that_does_not_add_up_is_refused():
    state = filled([0, 0]).state()
    with pytest.raises(ValueError, match="does not add up"):
        Buffer(2, 1).restore({**state, "opened": 5})
