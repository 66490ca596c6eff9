import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlexpert.train.packing import pack_examples, pack_windows
from mlexpert.types import Credit, Outcome, Sample, Span, Stop, Turn, Window


def ids(*values):
    return np.array(values, np.int32)


def turn(prompt, sampled, logprob=-0.5, support=None):
    sampled = ids(*sampled)
    logprobs = np.full(len(sampled), logprob, np.float32)
    return Turn(ids(*prompt), Sample(sampled, logprobs, np.zeros(len(sampled), np.int32), Stop.END_TURN, support))


def window(index, *spans, episode="e", reward=1.0):
    return Window(f"{episode}/{index}", episode, "task", index, tuple(spans), Credit(Outcome.VALID, reward, 0.0))


def span(context, *turns, segment=0):
    return Span(segment, ids(*context), tuple(turns))


def sampled_tokens(batch, index):
    return sorted(batch.tokens_BxT[batch.window_BxT == index].tolist())


def test_one_window_by_hand():
    batch = pack_windows([window(0, span([], turn([1, 2], [3, 4]), turn([5], [6])), reward=-0.4)], row_length=8)
    assert batch.tokens_BxT.tolist() == [[1, 2, 3, 4, 5, 6, 0, 0]]
    assert batch.segments_BxT.tolist() == [[1, 1, 1, 1, 1, 1, 0, 0]]
    assert batch.positions_BxT.tolist() == [[0, 1, 2, 3, 4, 5, 0, 0]]
    assert batch.window_BxT.tolist() == [[-1, -1, 0, 0, -1, 0, -1, -1]]
    assert batch.logprobs_BxT.tolist() == [[0, 0, -0.5, -0.5, 0, -0.5, 0, 0]]
    assert batch.support_BxTxK is None
    assert (batch.advantages_W.tolist(), batch.counts_W.tolist()) == ([np.float32(-0.4)], [3])


def test_windows_of_an_append_only_episode_share_one_row():
    first = window(0, span([], turn([1, 2], [3, 4], -0.1)))
    second = window(1, span([1, 2, 3, 4], turn([5], [6], -0.2)))
    third = window(2, span([1, 2, 3, 4, 5, 6], turn([7], [8, 9], -0.3)))
    for given_windows in ([first, second, third], [third, first, second], [first, third]):
        batch = pack_windows(given_windows, row_length=9)
        assert batch.tokens_BxT.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 9]]
        for index, w in enumerate(given_windows):
            assert sampled_tokens(batch, index) == w.spans[0].turns[0].sample.ids_N.tolist()
            assert set(batch.logprobs_BxT[batch.window_BxT == index]) == {w.spans[0].turns[0].sample.logprobs_N[0]}


def test_a_context_that_does_not_extend_gets_its_own_sequence():
    first = window(0, span([], turn([1, 2], [3, 4])))
    for other in ([1, 2, 3, 9], [1, 2, 3], [1, 2]):
        batch = pack_windows([first, window(1, span(other, turn([5], [6])))], row_length=16)
        assert set(batch.segments_BxT.ravel()) == {0, 1, 2}
        assert sampled_tokens(batch, 0) == [3, 4]
        assert sampled_tokens(batch, 1) == [6]


def test_equal_tokens_of_other_episodes_or_segments_do_not_merge():
    first = window(0, span([], turn([1, 2], [3, 4])))
    elsewhere = window(0, span([1, 2, 3, 4], turn([5], [6])), episode="f")
    later = window(1, span([1, 2, 3, 4], turn([5], [6]), segment=1))
    for other in (elsewhere, later):
        assert set(pack_windows([first, other], row_length=16).segments_BxT.ravel()) == {0, 1, 2}


def test_a_window_across_two_segments_counts_all_its_tokens():
    both = window(0, span([], turn([1], [2, 3])), span([], turn([7, 8], [9]), segment=1))
    batch = pack_windows([both], row_length=4)
    assert batch.counts_W.tolist() == [3]
    assert sampled_tokens(batch, 0) == [2, 3, 9]


def test_rows_come_in_multiples_and_empty_rows_train_nothing():
    batch = pack_windows([window(0, span([], turn([1], [2])))], row_length=4, rows_multiple=3)
    assert batch.tokens_BxT.shape == (3, 4)
    assert (batch.segments_BxT[1:] == 0).all()
    assert (batch.window_BxT[1:] == -1).all()


def test_supports_travel_with_their_tokens_through_a_merge():
    first = window(0, span([], turn([1], [3], support=ids(3, 4).reshape(1, 2))))
    second = window(1, span([1, 3], turn([5], [6], support=ids(6, 7, 8).reshape(1, 3))))
    batch = pack_windows([first, second], row_length=5)
    assert batch.support_BxTxK.tolist() == [[[-1] * 3, [3, 4, -1], [-1] * 3, [6, 7, 8], [-1] * 3]]


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ([], "no windows"),
        ([window(0, span([1] * 8, turn([], [2])))], "row of 8"),
        ([window(0, span([1], turn([2], [])))], "no sampled token"),
        ([window(0, span([], turn([1], [2])))] * 2, "twice"),
        ([window(0, span([], turn([1], [2], np.nan)))], "finite log-prob"),
        ([window(0, span([], turn([1], [2], -np.inf)))], "finite log-prob"),
        ([window(0, span([], turn([1], [2], support=ids(3, -1).reshape(1, 2))))], "outside its recorded"),
        ([window(0, span([], turn([1], [2], support=ids(2).reshape(1, 1)), turn([1], [2])))], "others none"),
        (
            [
                window(0, span([], turn([1], [2], support=ids(2).reshape(1, 1)))),
                window(1, span([1, 2], turn([1], [2]))),
            ],
            "others none",
        ),
    ],
)
def test_what_cannot_be_trained_raises(windows, words):
    with pytest.raises(ValueError, match=words):
        pack_windows(windows, row_length=8)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_sampled_token_is_packed_exactly_once_in_its_own_context(data):
    windows, expected = [], []
    for e in range(data.draw(st.integers(1, 4))):
        context: list[int] = []
        for index in range(data.draw(st.integers(1, 3))):
            prompt = data.draw(st.lists(st.integers(1, 9), max_size=3))
            sampled = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
            if data.draw(st.booleans()):
                windows.append(window(index, span(context, turn(prompt, sampled)), episode=str(e)))
                expected.append(context + prompt + sampled)
            context = context + prompt + sampled
    if not windows:
        return
    batch = pack_windows(windows, row_length=24, rows_multiple=2)
    for index, w in enumerate(windows):
        rows, places = np.nonzero(batch.window_BxT == index)
        assert len(places) == w.n_sampled == batch.counts_W[index]
        row, end = rows[0], places[-1] + 1
        same = batch.segments_BxT[row, :end] == batch.segments_BxT[row, end - 1]
        assert batch.tokens_BxT[row, :end][same].tolist() == expected[index]
        assert batch.positions_BxT[row, :end][same].tolist() == list(range(len(expected[index])))


def test_examples_by_hand():
    batch = pack_examples([(ids(1, 2, 3), ids(1, 0, 1)), (ids(4, 5), ids(0, 1))], row_length=5, rows_multiple=2)
    assert batch.tokens_BxT[0].tolist() == [1, 2, 3, 4, 5]
    assert batch.segments_BxT[0].tolist() == [1, 1, 1, 2, 2]
    # The first token of an example has no predecessor and is never trained.
    assert batch.window_BxT[0].tolist() == [-1, -1, 0, -1, 0]
    assert (batch.counts_W.tolist(), batch.advantages_W.tolist()) == ([2], [1.0])


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ([], "without a single"),
        ([(ids(1, 2), ids(0, 0))], "without a single"),
        ([(ids(1, 2), ids(1))], "mask of 1"),
        ([(ids(*range(9)), ids(*[1] * 9))], "holds 1 to 8"),
    ],
)
def test_examples_that_cannot_be_trained_raise(examples, words):
    with pytest.raises(ValueError, match=words):
        pack_examples(examples, row_length=8)
