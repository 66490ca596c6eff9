"""Closed forms against what they describe: declared weights, arrays on devices, products counted in a program."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import budget, params, sharding
from mlexpert.model.budget import Load
from mlexpert.model.config import preset
from mlexpert.model.sharding import MeshError, MeshShape, make_mesh
from mlexpert.model.transformer import hidden, init_cache, unembedding
from mlexpert.train import spread
from mlexpert.train.optimizer import rl_adamw
from mlexpert.train.step import init_state

GIB = 2**30


def products(jaxpr):
    """FLOPs of all matrix products of a program, bodies of loops as often as they run."""
    total = 0
    for equation in jaxpr.eqns:
        inner = sum(products(sub) for sub in jax.core.jaxprs_in_params(equation.params))
        total += inner * equation.params.get("length", 1)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            depth = np.prod([equation.invars[0].aval.shape[i] for i in contracted])
            total += 2 * int(depth) * equation.outvars[0].aval.size
    return total


@pytest.mark.parametrize("overrides", [{}, {"qk_norm": False, "n_layers": 3}, {"attention_gate": True}])
def test_flops_are_the_products_of_the_forward_pass(overrides):
    config, length = preset("tiny_dense", vocab_size=64, d_model=32, d_ff=48, **overrides), 40
    values = params.abstract(config)
    ids = jax.ShapeDtypeStruct((1, length), jnp.int32)

    def logits(values, tokens, segments, positions):
        return hidden(values, config, tokens, segments, positions) @ unembedding(values, config)

    counted = products(jax.make_jaxpr(logits)(values, ids, ids, ids).jaxpr)
    # The plain program also multiplies what the causal mask then hides.
    each = budget.flops(config, length)
    hidden_half = each.attention * (2 * length / (length + 1) - 1)
    assert counted == pytest.approx((each.total + hidden_half) * length, rel=1e-6)


def test_only_chosen_experts_count():
    config = preset("micro")
    few, all_ = (budget.flops(dataclasses.replace(config, experts_per_token=k), 8) for k in (1, config.n_experts))
    layer = 3 * 2 * config.d_model * config.d_expert * config.n_layers
    assert all_.matrices - few.matrices == (config.n_experts - 1) * layer
    assert budget.flops(dataclasses.replace(config, n_experts=64), 8).attention == few.attention


@pytest.mark.parametrize(("name", "billions"), [("qwen3_30b_a3b", 3.04), ("qwen3_6_35b_a3b", 2.95), ("qwen3_8b", 7.57)])
def test_active_parameters_of_the_published_models(name, billions):
    assert round(budget.active_parameters(preset(name)) / 1e9, 2) == billions


@pytest.mark.parametrize("sizes", [{}, {"fsdp": 4, "expert": 2}, {"data": 2, "fsdp": 2}])
def test_what_is_held_is_what_lies_on_a_device(sizes):
    config, shape = preset("micro_hybrid"), MeshShape(**sizes)
    place = spread.placement(config, make_mesh(shape, jax.devices()[: shape.devices]))
    state = init_state(spread.init_params(config, jax.random.key(0), place), rl_adamw(1e-3), place)
    held = [
        sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(t)) for t in (state.params, state.opt_state)
    ]
    found = budget.memory(config, shape, Load(8, 64))
    assert found.weights == held[0]
    assert found.optimizer == pytest.approx(held[1], abs=64)  # and two counters


@pytest.mark.parametrize("name", ["micro", "micro_hybrid"])
@pytest.mark.parametrize("length", [16, 100])
def test_cache_is_what_a_slot_takes(name, length):
    config = preset(name)
    cache = jax.eval_shape(lambda: init_cache(config, 3, length))
    bytes_ = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
    counters = sum(leaf.size * 4 for leaf in jax.tree.leaves(cache) if leaf.dtype == jnp.int32)
    assert 3 * budget.cache_bytes(config, length) == bytes_ - counters


def test_more_of_anything_needs_no_less():
    config, load = preset("qwen3_6_35b_a3b"), Load(8, 32768)
    base = budget.memory(config, MeshShape(expert=8), load).total
    assert budget.memory(config, MeshShape(expert=8), dataclasses.replace(load, length=65536)).total > base
    assert budget.memory(config, MeshShape(expert=8), dataclasses.replace(load, float32_weights=False)).total < base
    assert budget.memory(config, MeshShape(expert=8, sequence=4), load).total < base / 2


def test_the_longest_row_fits_and_the_next_does_not():
    config, shape, load, room = preset("qwen3_30b_a3b"), MeshShape(fsdp=8, expert=8), Load(64, 1024), 20 * GIB
    longest = budget.largest_length(config, shape, load, room)
    fits = budget.memory(config, shape, dataclasses.replace(load, length=longest)).total
    beyond = budget.memory(config, shape, dataclasses.replace(load, length=longest + 1024)).total
    assert 1024 <= longest < config.max_length
    assert fits <= room < beyond
    assert budget.largest_length(config, shape, load, GIB) == 0


@pytest.mark.parametrize(("name", "devices"), [("qwen3_6_35b_a3b", 32), ("qwen3_30b_a3b", 64), ("qwen3_8b", 8)])
def test_a_suggested_mesh_fits_and_divides_what_it_must(name, devices):
    config = preset(name)
    load = Load(1, min(config.max_length, 131072))
    shape = budget.suggest(config, devices, load, int(0.9 * 139 * GIB))
    assert shape.devices == devices
    sharding.specs(config, shape)
    load = dataclasses.replace(load, rows=shape.fsdp * shape.expert)
    assert budget.memory(config, shape, load).total <= 0.9 * 139 * GIB


def test_a_model_that_no_mesh_divides_is_refused_by_name():
    with pytest.raises(MeshError, match="7 devices divides micro"):
        budget.suggest(preset("micro"), 7, Load(1, 64), GIB)
