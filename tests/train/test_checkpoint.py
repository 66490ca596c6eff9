import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.train.checkpoint import CheckpointError, restore_latest, save, steps


def tree(value=0.0):
    return {
        "w": jnp.full((2, 3), value),
        "b": jnp.arange(4, dtype=jnp.bfloat16),
        "n": jnp.array(7, jnp.int32),
        "opt": (jnp.ones(2), {"mu": jnp.zeros(1)}),
    }


def test_round_trip_is_exact(tmp_path):
    books = {"buffer": [0.1, float(np.float32(1 / 3))], "clock": {"wait": 1.5}, "data": 12, "text": "ä"}
    save(tmp_path, 5, tree(1 / 3), books)
    step, got, got_books = restore_latest(tmp_path, jax.eval_shape(tree))
    assert (step, got_books) == (5, books)
    assert jax.tree.structure(got) == jax.tree.structure(tree())
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(tree(1 / 3)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_nothing_saved_is_none(tmp_path):
    assert restore_latest(tmp_path / "absent", tree()) is None
    assert steps(tmp_path / "absent") == []


def test_newest_wins_and_only_the_last_n_stay(tmp_path):
    for step in (1, 2, 10):
        save(tmp_path, step, tree(float(step)), {}, keep=2)
    assert steps(tmp_path) == [2, 10]
    assert restore_latest(tmp_path, tree())[0] == 10
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_00000002", "step_00000010"]


def test_half_written_is_ignored_with_a_notice_and_swept_by_the_next_save(tmp_path, caplog):
    save(tmp_path, 1, tree(1.0), {})
    half = tmp_path / "step_00000002.partial"
    half.mkdir()
    (half / "books.json").write_text('{"step": 2')
    assert restore_latest(tmp_path, tree())[0] == 1
    assert "half-written" in caplog.text
    save(tmp_path, 3, tree(3.0), {})
    assert not half.exists()


def test_killed_while_writing_leaves_the_one_before(tmp_path):
    save(tmp_path, 1, tree(1.0), {"data": 1})
    program = f"""
import os, signal, jax.numpy as jnp
from mlexpert.train import checkpoint
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save({str(tmp_path)!r}, 2, {{"w": jnp.zeros(3)}}, {{}})
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, capture_output=True).returncode == -9
    assert list(tmp_path.glob("*.partial"))
    assert restore_latest(tmp_path, tree())[0] == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: {**t, "w": jnp.zeros((2, 4))}, r"\['w'\]: saved .*\[2, 3\].*wanted .*\[2, 4\]"),
        (lambda t: {**t, "w": jnp.zeros((2, 3), jnp.bfloat16)}, "bfloat16"),
        (lambda t: {**t, "extra": jnp.zeros(1)}, r"\['extra'\]: saved nothing"),
        (lambda t: {k: v for k, v in t.items() if k != "n"}, r"\['n'\].*wanted nothing"),
    ],
)
def test_another_model_is_a_clear_error(tmp_path, change, words):
    save(tmp_path, 1, tree(), {})
    with pytest.raises(CheckpointError, match=words):
        restore_latest(tmp_path, change(tree()))


def test_another_format_is_a_clear_error(tmp_path):
    path = save(tmp_path, 1, tree(), {}) / "books.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        restore_latest(tmp_path, tree())


def test_damage_names_the_checkpoint_and_the_remedy(tmp_path):
    path = save(tmp_path, 1, tree(), {})
    (path / "books.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"step_00000001.*remove it"):
        restore_latest(tmp_path, tree())


@pytest.mark.parametrize("book", [float("nan"), np.float32(1), object()])
def test_books_that_json_would_change_are_refused_and_nothing_is_left_complete(tmp_path, book):
    with pytest.raises(CheckpointError, match="books"):
        save(tmp_path, 1, tree(), {"x": book})
    assert steps(tmp_path) == []


def test_a_step_is_saved_once(tmp_path):
    save(tmp_path, 1, tree(), {})
    with pytest.raises(CheckpointError, match="exists"):
        save(tmp_path, 1, tree(), {})


def test_restores_onto_the_shardings_asked_for(tmp_path):
    save(tmp_path, 1, {"w": jnp.arange(8.0)}, {})
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    _, got, _ = restore_latest(tmp_path, {"w": jax.ShapeDtypeStruct((8,), jnp.float32, sharding=sharding)})
    assert got["w"].sharding == sharding
    np.testing.assert_array_equal(got["w"], np.arange(8.0))
