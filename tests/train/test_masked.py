import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.train import masked


def test_values_under_the_mask_reach_neither_value_nor_gradient():
    x = jnp.array([1.0, jnp.nan, jnp.inf, 4.0])
    mask = jnp.array([True, False, False, True])
    assert masked.total(x, mask) == 5.0
    np.testing.assert_array_equal(jax.grad(lambda x: masked.total(x * x, mask))(jnp.nan_to_num(x)), [2, 0, 0, 8])
    assert masked.mean(x, mask).numerator == 5.0
    assert masked.least(x, mask).value == 1.0
    assert masked.most(x, mask).value == 4.0


def test_merged_mean_is_over_everything_not_a_mean_of_means():
    parts = [{"a": masked.mean(jnp.array([1.0]), jnp.array([1.0]))}, {"a": masked.mean(jnp.ones(3) * 5, jnp.ones(3))}]
    assert masked.report(parts) == {"a": 4.0}


def test_empty_parts_do_not_disturb_extremes():
    empty, full = jnp.zeros(2, bool), jnp.ones(2, bool)
    x = jnp.array([2.0, 3.0])
    parts = [{"lo": masked.least(x, m), "hi": masked.most(x, m)} for m in (empty, full, empty)]
    assert masked.report(parts) == {"lo": 2.0, "hi": 3.0}


@pytest.mark.parametrize("order", [[1.0, jnp.nan], [jnp.nan, 1.0]])
def test_nan_survives_a_merge(order):
    parts = [{"hi": masked.Most(jnp.array(v)), "lo": masked.Least(jnp.array(v))} for v in order]
    assert all(np.isnan(v) for v in masked.report(parts).values())


def test_counting_nothing_raises():
    with pytest.raises(ValueError, match="counted nothing"):
        masked.report([{"a": masked.mean(jnp.ones(2), jnp.zeros(2))}])
    with pytest.raises(ValueError, match="no micro-batch"):
        masked.report([])
