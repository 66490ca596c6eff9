"""The sparse layer against a loop over experts: values, gradients, replay, load."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import params
from mlexpert.model.config import preset
from mlexpert.model.moe import moe as plain_moe

moe = jax.jit(plain_moe, static_argnums=2)


def _layer(config, seed=0):
    draw = jax.jit(lambda key: jax.tree.map(lambda x: x[0], params.init(config, key)["blocks"][0]["moe"]))
    return draw(jax.random.key(seed))


def _loop(x_NxD, weights, config, experts_NxK=None):
    """Every expert on every token, weighted by the renormalised softmax of the chosen ones."""
    probs = jax.nn.softmax(x_NxD @ weights["router"], axis=-1)
    if experts_NxK is None:
        experts_NxK = jax.lax.top_k(probs, config.experts_per_token)[1]
    chosen = jax.nn.one_hot(experts_NxK, config.n_experts).sum(axis=1) * probs
    if config.norm_topk_prob:
        chosen = chosen / chosen.sum(axis=-1, keepdims=True)
    out = jnp.zeros_like(x_NxD)
    for e in range(config.n_experts):
        hidden = jax.nn.silu(x_NxD @ weights["gate"][e]) * (x_NxD @ weights["up"][e])
        out += chosen[:, e : e + 1] * (hidden @ weights["down"][e])
    return out


loop = jax.jit(_loop, static_argnums=2)


# Few tokens take the dense path, many the grouped one.
@pytest.mark.parametrize("n_tokens", [5, 300])
@pytest.mark.parametrize("norm", [True, False])
def test_equals_a_loop_over_experts_in_value_and_gradient(n_tokens, norm):
    config = preset("micro", norm_topk_prob=norm)
    weights, x = _layer(config), jax.random.normal(jax.random.key(1), (n_tokens, config.d_model))

    def square(layer):
        return jax.jit(jax.value_and_grad(lambda x, w: (layer(x, w, config) ** 2).sum(), argnums=(0, 1)))(x, weights)

    (value, gradients), (want, wanted) = square(lambda *a: moe(*a)[0]), square(_loop)
    assert float(value) == pytest.approx(float(want), rel=1e-5)
    jax.tree.map(lambda got, ref: np.testing.assert_allclose(got, ref, rtol=2e-4, atol=2e-5), gradients, wanted)


def test_one_overloaded_expert_drops_nothing():
    config = preset("micro")
    weights, x = _layer(config), jnp.abs(jax.random.normal(jax.random.key(1), (200, config.d_model)))
    weights["router"] = jnp.zeros_like(weights["router"]).at[:, 2].set(1.0)
    out, routing = moe(x, weights, config)
    np.testing.assert_allclose(out, loop(x, weights, config), atol=1e-5)
    assert routing.load_E.tolist()[2] == 0.5


@pytest.mark.parametrize("n_tokens", [8, 200])
def test_replay_of_the_own_choice_is_identical_and_a_foreign_choice_is_obeyed(n_tokens):
    config = preset("micro")
    weights, x = _layer(config), jax.random.normal(jax.random.key(1), (n_tokens, config.d_model))
    out, routing = moe(x, weights, config)
    again, _ = moe(x, weights, config, replay_NxK=routing.experts_NxK)
    assert jnp.array_equal(out, again)
    foreign = (routing.experts_NxK + 1) % config.n_experts
    replayed, taken = moe(x, weights, config, replay_NxK=foreign)
    assert jnp.array_equal(taken.experts_NxK, foreign)
    np.testing.assert_allclose(replayed, loop(x, weights, config, foreign), atol=1e-5)


def test_replay_leaves_the_router_its_gradient():
    config = preset("micro")
    weights, x = _layer(config), jax.random.normal(jax.random.key(1), (100, config.d_model))
    ids = jnp.tile(jnp.asarray([[0, 3]]), (100, 1))
    gradient = jax.jit(jax.grad(lambda w: moe(x, w, config, replay_NxK=ids)[0].sum()))(weights)["router"]
    assert jnp.abs(gradient).max() > 0


def test_load_counts_real_tokens_and_even_routing_balances_to_one():
    config = preset("micro", n_experts=2, experts_per_token=1)
    weights, x = _layer(config), jnp.eye(4, config.d_model)
    weights["router"] = jnp.zeros_like(weights["router"]).at[:4].set(jnp.asarray([[9, 0], [9, 0], [0, 9], [0, 9]]))
    _, even = moe(x, weights, config)
    assert even.load_E.tolist() == [0.5, 0.5]
    assert even.balance == pytest.approx(1.0)
    _, padded = moe(x, weights, config, real_N=jnp.asarray([True, True, False, False]))
    assert padded.load_E.tolist() == [1.0, 0.0]
    assert padded.balance == pytest.approx(2.0, rel=1e-3)
