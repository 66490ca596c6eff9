"""Declarations: sizes of the published models, and one tree behind shapes, dtypes and initial values."""

import jax
import numpy as np
import pytest

from mlexpert.model import params
from mlexpert.model.config import PRESETS, Layer, ModelConfig, preset

init = jax.jit(params.init, static_argnums=0)


@pytest.mark.parametrize(
    ("name", "billions"), [("qwen3_30b_a3b", 30.53), ("qwen3_8b", 8.19), ("qwen3_6_35b_a3b", 34.66)]
)
def test_published_sizes(name, billions):
    leaves = jax.tree.leaves(params.abstract(preset(name)))
    total = sum(leaf.size for leaf in leaves)
    assert total == params.count(preset(name))
    assert round(total / 1e9, 2) == billions


def test_laptop_twins_have_the_same_active_width():
    sparse, dense = preset("tiny"), preset("tiny_dense")
    assert sparse.experts_per_token * sparse.d_expert == dense.d_ff
    assert params.count(dense) == 1_869_760


@pytest.mark.parametrize("overrides", [{}, {"tied_embedding": False}, {"n_experts": 0, "d_ff": 48}])
def test_initial_values_match_their_declaration(overrides):
    config = preset("micro", **overrides)
    abstract, real = params.abstract(config), init(config, jax.random.key(0))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), real) == jax.tree.map(lambda x: (x.shape, x.dtype), abstract)


def test_initial_spread_follows_fan_in():
    config = preset("tiny", n_layers=2)
    values = init(config, jax.random.key(0))["blocks"][0]
    assert np.std(values["moe"]["gate"]) == pytest.approx(192**-0.5, rel=0.02)
    assert np.std(values["attention"]["output"]) == pytest.approx(192**-0.5 / 2, rel=0.02)
    assert np.all(np.asarray(values["attention"]["query_norm"]) == 1.5)


def test_weight_axes_name_input_and_output():
    layers = params.declare(preset("micro"))["blocks"][0]
    output, down = layers["attention"]["output"], layers["moe"]["down"]
    assert [output.axes[i] for i in output.fan_in] == ["head", "head_dim"]
    assert [down.axes[i] for i in down.fan_in] == ["ff"]


def test_initial_values_depend_on_the_key_only():
    config = preset("micro")
    first, again, other = (init(config, jax.random.key(seed)) for seed in (0, 0, 1))
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, first, again)))
    assert not np.array_equal(first["embedding"], other["embedding"])


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"n_kv_heads": 3}, "n_kv_heads"),
        ({"head_dim": 7}, "odd"),
        ({"experts_per_token": 9}, "experts_per_token"),
        ({"layer_pattern": (Layer("attention", "dense"), *[Layer("attention", "sparse")] * 2), "d_ff": 8}, "3 layers"),
        ({"layer_pattern": (Layer("attention", "sparse"),) * 2}, "repeats itself"),
        ({"layer_pattern": (Layer("mamba", "sparse"),)}, "mamba"),
        ({"layer_pattern": (Layer("deltanet", "sparse"),)}, "delta_key_heads"),
        ({"rotary_dim": 10}, "rotary_dim"),
        ({"family": "gpt2"}, "gpt2"),
        ({"n_experts": 0}, "d_ff"),
    ],
)
def test_impossible_sizes_are_refused(overrides, complaint):
    with pytest.raises(ValueError, match=complaint):
        preset("micro", **overrides)


def test_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match="tiny_dense"):
        preset("small")
    assert all(isinstance(config, ModelConfig) and config.name == name for name, config in PRESETS.items())
