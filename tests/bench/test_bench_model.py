"""The benchmark of the model: who takes turns when, what counts as agreement, the part for a GPU."""

import asyncio
import sys

import jax
import numpy as np
import pytest

from experiments.bench import model, model_gpu, model_grouped
from experiments.bench.model_torch import TorchError, TorchSide
from experiments.bench.turns import Line, in_turns
from mlexpert.model.config import preset
from mlexpert.model.params import init

ECHO = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "die":
        sys.exit(3)
    print(json.dumps({"error": "no such thing"} if request["do"] == "refuse" else request), flush=True)
"""


@pytest.fixture
def echo(tmp_path):
    (tmp_path / "echo.py").write_text(ECHO)
    with TorchSide(sys.executable, tmp_path / "echo.py") as ask:
        yield ask


def test_sides_go_there_and_back_and_the_first_round_does_not_count():
    order = []

    def way(name):
        async def go():
            order.append(name)

        return go

    seconds = asyncio.run(in_turns({"a": way("a"), "b": way("b")}, 3))
    assert "".join(order) == "baabbaab"
    assert [len(found) for found in seconds.values()] == [3, 3]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (Line("w", 2.0, "x", at_least=1.5), ("2 x", ">= 1.5 yes")),
        (Line("w", 1.2, "x", at_least=1.5), ("1.2 x", ">= 1.5 NO")),
        (Line("w", 9.0, "MB", at_most=8.0), ("9 MB", "<= 8 NO")),
        (Line("w", None, "x", at_least=1.5), ("not measured", ">= 1.5")),
        (Line("w", 12345.6, "tokens/s"), ("12,346 tokens/s", "")),
    ],
)
def test_a_line_says_whether_its_bound_held(line, shown):
    assert line.cells()[1:3] == shown


def test_the_other_process_answers_refuses_and_dies_in_words(echo):
    assert echo("give", ids=[[1, 2]]) == {"do": "give", "ids": [[1, 2]]}
    with pytest.raises(TorchError, match="refuse: no such thing"):
        echo("refuse")
    with pytest.raises(TorchError, match="ended with code 3"):
        echo("die")


def test_a_python_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TorchError, match="nowhere/python cannot be started"):
        TorchSide("nowhere/python", tmp_path)


def test_sides_that_differ_are_not_timed():
    model.require_same_loss("step", 7.0, 7.006)
    for theirs in (7.1, float("nan")):
        with pytest.raises(model.Disagreement, match=r"loss 7\.0"):
            model.require_same_loss("step", 7.0, theirs)
    ids = np.arange(20).reshape(2, 10)
    model.require_same_tokens("decoding", ids, ids)
    with pytest.raises(model.Disagreement, match=r"50\.0% of the greedy tokens"):
        model.require_same_tokens("decoding", ids, np.where(ids < 10, ids, 0))


def test_the_grouped_problem_has_every_row_in_both_forms():
    given = model_grouped.problem(tokens=96, chosen=2, n_groups=4, d_in=16, d_out=16)
    assert given.exact.sizes_G.sum() == len(given.rows_AxD) == 192
    assert (given.blocks.sizes_G >= given.exact.sizes_G).all()
    np.testing.assert_allclose(given.rows_RxD.sum(), given.rows_AxD.sum(), rtol=1e-4)
    model_grouped.require_same(given)


def test_the_part_for_a_gpu_runs_small_on_a_cpu(monkeypatch):
    monkeypatch.setattr(model_gpu, "REPEATS", 2)
    assert all("skipped" in line.note and line.value is None for line in asyncio.run(model_gpu.lines()))
    shares = asyncio.run(model_gpu.grouped(model_gpu.Experts(4, 16, 16, tokens=64, chosen=2), 1e9, "blocked"))
    config = preset("micro")
    load = model_gpu.Load(slots=2, prompt=8, new=8, rows=2, length=16)
    real = asyncio.run(model_gpu.real_model("micro", config, init(config, jax.random.key(0)), load))
    assert all(line.value is not None and line.value > 0 for line in [*shares, *real])
