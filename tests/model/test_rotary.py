"""Rotary positions: what a product of query and key may depend on, and the stretches in closed form."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model.config import RopeScaling, preset
from mlexpert.model.rotary import rotary_table, rotate

CONFIG = preset("micro", head_dim=16, rope_theta=1e4)


def turned(x, position, config=CONFIG):
    return rotate(x[None, None, None], rotary_table(jnp.asarray([[position]]), config))[0, 0, 0]


def angles(config):
    cos, sin = rotary_table(jnp.asarray([[1]]), config)
    return np.asarray(jnp.arctan2(sin, cos)[0, 0, 0]), float(jnp.hypot(cos, sin)[0, 0, 0, 0])


def test_products_depend_on_the_distance_only():
    q, k = jax.random.normal(jax.random.key(0), (2, 16))
    near = turned(q, 7) @ turned(k, 3)
    assert near == pytest.approx(float(turned(q, 107) @ turned(k, 103)), abs=1e-4)
    assert near != pytest.approx(float(turned(q, 8) @ turned(k, 3)), abs=1e-2)


def test_channels_beyond_rotary_dim_stay():
    partial = replace(CONFIG, rotary_dim=4)
    x = jax.random.normal(jax.random.key(0), (16,))
    np.testing.assert_array_equal(turned(x, 9, partial)[4:], x[4:])
    small = replace(CONFIG, head_dim=4)
    np.testing.assert_array_equal(turned(x, 9, partial)[:4], turned(x[:4], 9, small))


def test_linear_divides_positions():
    stretched = replace(CONFIG, rope_scaling=RopeScaling("linear", 4.0))
    x = jax.random.normal(jax.random.key(0), (16,))
    np.testing.assert_allclose(turned(x, 12, stretched), turned(x, 3), atol=1e-6)


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_fast_frequencies_stay_and_slow_ones_are_divided(kind):
    low, high = (1.0, 4.0) if kind == "llama3" else (1.0, 32.0)
    plain, _ = angles(CONFIG)
    stretched, size = angles(replace(CONFIG, rope_scaling=RopeScaling(kind, 8.0, 256, low, high)))
    share = stretched / plain
    assert share[0] == pytest.approx(1.0) and share[-1] == pytest.approx(1 / 8)
    assert (np.diff(share) < 1e-6).all() and 1 / 8 + 0.01 < share[3] < 0.99
    assert size == pytest.approx(1.0 if kind == "llama3" else 0.1 * np.log(8) + 1, rel=1e-6)
