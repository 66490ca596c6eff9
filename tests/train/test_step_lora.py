"""A step with adapters: they alone move, they alone have gradients and optimizer state, on one device or many."""

import functools

import jax
import numpy as np
import optax

from mlexpert.model import lora
from mlexpert.model.config import Lora, preset
from mlexpert.model.params import abstract
from mlexpert.model.sharding import MeshShape, make_mesh
from mlexpert.train import spread
from mlexpert.train.optimizer import sft_muon
from mlexpert.train.packing import pack_examples
from mlexpert.train.step import StepShape, init_state, make_sft_step

CONFIG = preset("micro_hybrid", n_experts=8, vocab_size=64, lora=Lora(4, 8.0, ("attention", "deltanet", "moe")))
ROWS, LENGTH = 8, 32
SGD = optax.sgd(1.0)


def batch():
    rng = np.random.default_rng(0)
    examples = [(rng.integers(1, 64, n).astype(np.int32), np.ones(n, bool)) for n in rng.integers(18, 31, ROWS)]
    return pack_examples(examples, LENGTH, ROWS)


def step_on(mesh, optimizer=SGD):
    """(parameters before, state after one step)"""
    shape = StepShape(ROWS, 24, mesh)
    place = shape.placement(CONFIG)
    params = spread.init_params(CONFIG, jax.random.key(0), place)
    state, metrics = make_sft_step(CONFIG, optimizer, shape)(init_state(params, optimizer, place), batch())
    assert np.isfinite(metrics["grad_norm"]) and metrics["grad_norm"] > 0
    return params, state


@functools.cache
def alone():
    return step_on(None)


def test_only_adapters_move():
    before, state = alone()
    (old, stayed), (new, stays) = lora.split(before), lora.split(state.params)
    assert all(a is b for a, b in zip(jax.tree.leaves(stays), jax.tree.leaves(stayed), strict=True))
    moved = {
        jax.tree_util.keystr(path): bool(np.any(np.asarray(leaf) != 0))
        for path, leaf in jax.tree_util.tree_leaves_with_path(jax.tree.map(lambda a, b: np.asarray(a - b), new, old))
    }
    # `out_of` starts at zero, so in the first step `into` has no gradient yet.
    assert all(has_moved == ("out_of" in name) for name, has_moved in moved.items())


def test_optimizer_state_is_of_the_adapters_alone():
    trained = sum(leaf.size for leaf in jax.tree.leaves(lora.split(abstract(CONFIG))[0]))
    optimizer = sft_muon(CONFIG, 0.02, n_steps=100)
    _, state = step_on(None, optimizer)
    held = sum(leaf.size for leaf in jax.tree.leaves(state.opt_state))
    assert 2 * trained <= held < 2 * trained + 100  # Adam's two moments, and a few counters


def test_a_mesh_gives_the_same_adapters():
    shape = MeshShape(fsdp=2, expert=4)
    _, state = step_on(make_mesh(shape, jax.devices()[: shape.devices]))
    for got, want in zip(jax.tree.leaves(state.params), jax.tree.leaves(alone()[1].params), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6 + 1e-4 * np.abs(np.asarray(want)).max())
