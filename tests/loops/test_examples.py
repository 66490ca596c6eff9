import numpy as np
import pytest

from mlexpert.loops import examples
from mlexpert.rollout import tokenizer as tokenizers
from mlexpert.rollout.renderer import Renderer, ToolStyle
from mlexpert.types import Finish, ToolCall

EXECUTIONS = 3


@pytest.fixture(scope="module")
def renderer():
    return Renderer(tokenizers.train((), 300), ToolStyle.TAGS, brief=True)


def record():
    call = {"name": "execute_code", "arguments": {"code": 'print("cv 0.5")'}}
    return {
        "opening": {"system": "You write scripts.", "tools": [], "user": "Predict `soil_depth`."},
        "turns": [
            {"prompt": {"kind": "opening", "text": ""}, "think": "try trees", "call": call, "finish": ""},
            {"prompt": {"kind": "observation", "text": "node 1: ok"}, "think": "stop", "call": None, "finish": "Done."},
        ],
    }


def pieces(mask_P):
    """Lengths of the runs of equal mask values."""
    borders = np.flatnonzero(np.diff(mask_P)) + 1
    return [run for run in np.split(mask_P, borders)]


def test_loss_falls_on_the_policys_turns_only(renderer):
    ids_P, mask_P = examples.of_record(renderer, record())
    turns, start = [], 0
    for run in pieces(mask_P):
        if run[0]:
            turns.append(renderer.parse(ids_P[start : start + len(run)]))
        start += len(run)
    assert turns == [
        ToolCall("execute_code", {"code": 'print("cv 0.5")'}, "try trees"),
        Finish("Done.", "stop"),
    ]
    assert "node 1: ok" not in renderer.tokenizer.decode(ids_P[mask_P])


def test_an_example_is_the_context_that_rl_would_build(renderer):
    ids_P, _ = examples.of_record(renderer, record())
    opening = renderer.opening("You write scripts.", [], "Predict `soil_depth`.")
    assert np.array_equal(ids_P[: len(opening)], opening)


def test_documents_of_a_step_are_always_the_same_and_of_another_step_others(renderer):
    def first(step):
        return next(examples.documents(renderer, 0, EXECUTIONS, step))[0]

    assert np.array_equal(first(3), first(3))
    assert not np.array_equal(first(3), first(4))


def test_a_filled_batch_has_exactly_its_rows(renderer):
    stream = examples.documents(renderer, 0, EXECUTIONS, 0)
    batch = examples.filled(stream, rows=4, row_length=4096)
    assert batch.tokens_BxT.shape == (4, 4096)
    assert (batch.segments_BxT > 0).mean() > 0.6


def some(i, epoch, length=50):
    """Example i: its number, 50 times; the epoch does not matter."""
    return np.full(length, i, np.int32), np.arange(length) > 9


def test_an_epoch_shows_every_example_once_before_any_twice():
    rows = examples.Rows(12, some, rows=2, row_length=128, seed=0)
    seen = []
    for step in range(3):  # four examples fill 90 % of two rows of 128: three steps are an epoch of 12
        batch = rows.batch(step)
        assert batch.tokens_BxT.shape == (2, 128)
        seen += sorted({int(t) for t in batch.tokens_BxT[batch.segments_BxT > 0]})
    assert sorted(seen) == list(range(12))


def test_batches_depend_on_the_step_alone():
    one, other = (examples.Rows(12, some, 2, 128, seed=5) for _ in range(2))
    late = one.batch(7)
    assert np.array_equal(late.tokens_BxT, [other.batch(step) for step in range(8)][7].tokens_BxT)


def test_going_back_gives_the_same_batch():
    rows = examples.Rows(12, some, 2, 128, seed=5)
    first = rows.batch(2)
    rows.batch(6)
    assert np.array_equal(first.tokens_BxT, rows.batch(2).tokens_BxT)


def test_an_example_longer_than_a_row_is_passed_over_and_none_left_is_an_error():
    def one_is_long(i, epoch):
        return some(i, epoch, length=200 if i == 1 else 50)

    batch = examples.Rows(3, one_is_long, 1, 128, 0).batch(0)
    assert sorted({int(t) for t in batch.tokens_BxT[batch.segments_BxT > 0]}) == [0, 2]
    with pytest.raises(ValueError, match="raise row_length"):
        examples.Rows(1, lambda i, epoch: some(i, epoch, length=200), 1, 128, 0).batch(0)
    with pytest.raises(ValueError, match=r"corpus\.eta"):
        examples.Rows(0, some, 1, 128, 0)
