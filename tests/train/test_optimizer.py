import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mlexpert.model.config import preset
from mlexpert.model.params import init
from mlexpert.train.optimizer import cosine, matrix_axes, rl_adamw, sft_muon

CONFIG = preset("micro")


@pytest.fixture(scope="module")
def case():
    params = jax.jit(init, static_argnums=0)(CONFIG, jax.random.key(0))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    grads = tree.unflatten([jax.random.normal(k, w.shape) for k, w in zip(keys, leaves, strict=True)])
    optimizer = sft_muon(CONFIG, 0.02, n_steps=100, warmup=1, weight_decay=0.0)
    updates, _ = jax.jit(optimizer.update)(grads, jax.jit(optimizer.init)(params), params)
    return params, grads, jax.device_get(updates)


def test_muon_takes_the_matrices_and_nothing_else():
    axes = matrix_axes(CONFIG)
    layers = axes["blocks"][0]
    assert layers["attention"]["query"] == ((1,), (2, 3))
    assert layers["attention"]["output"] == ((1, 2), (3,))
    assert layers["moe"]["up"] == ((2,), (3,))
    for adam in (axes["embedding"], axes["final_norm"], layers["mlp_norm"], layers["moe"]["router"]):
        assert adam is None


@pytest.mark.parametrize(
    ("name", "n_matrices", "shape"), [("query", 2, (32, 32)), ("value", 2, (32, 16)), ("output", 2, (32, 32))]
)
def test_each_layer_of_an_attention_weight_is_orthogonalised_alone(case, name, n_matrices, shape):
    update = case[2]["blocks"][0]["attention"][name].reshape(n_matrices, *shape)
    _assert_orthogonal(update)


@pytest.mark.parametrize("name", ["gate", "up", "down"])
def test_each_expert_is_orthogonalised_alone(case, name):
    update = case[2]["blocks"][0]["moe"][name]
    assert update.shape[:2] == (2, 4)
    _assert_orthogonal(update.reshape(8, *update.shape[2:]))


def _assert_orthogonal(matrices):
    """Five Newton-Schulz steps bring singular values near 1, but for the one or two near-null directions that a random
    square matrix has; were several matrices orthogonalised as one, each would have most of them far below."""
    for matrix in matrices:
        singular = np.linalg.svd(matrix / 0.02, compute_uv=False)
        assert singular[-3] > 0.3 and singular[0] < 1.4


def test_stacked_update_equals_the_update_of_each_matrix_alone(case):
    _, grads, updates = case
    alone = optax.contrib.muon(0.02)
    stack = grads["blocks"][0]["moe"]["up"]
    for layer, expert in ((0, 0), (1, 3)):
        matrix = {"w": stack[layer, expert]}
        expected, _ = alone.update(matrix, alone.init(matrix), matrix)
        np.testing.assert_allclose(updates["blocks"][0]["moe"]["up"][layer, expert], expected["w"], atol=2e-5)


def test_one_experts_gradient_moves_no_other_expert(case):
    params, grads, _ = case
    optimizer = sft_muon(CONFIG, 0.02, n_steps=100, warmup=1, weight_decay=0.0)
    only = jax.tree.map(jnp.zeros_like, grads)
    only["blocks"][0]["moe"]["up"] = only["blocks"][0]["moe"]["up"].at[1, 2].set(1.0)
    updates, _ = jax.jit(optimizer.update)(only, optimizer.init(params), params)
    moved = np.abs(updates["blocks"][0]["moe"]["up"]).sum((2, 3)) > 0
    assert np.argwhere(moved).tolist() == [[1, 2]]


def test_adamw_warms_up_then_stays():
    optimizer = rl_adamw(1e-3, warmup=4)
    params = {"w": jnp.zeros(3)}
    state, sizes = optimizer.init(params), []
    for _ in range(7):
        updates, state = optimizer.update({"w": jnp.ones(3)}, state, params)
        sizes.append(float(-updates["w"][0]))
    np.testing.assert_allclose(sizes, np.array([0.25, 0.5, 0.75, 1, 1, 1, 1]) * 1e-3, rtol=1e-3)


def test_cosine_ends_at_five_percent():
    schedule = cosine(0.02, 100, 10)
    assert [float(schedule(i)) for i in (0, 10, 100)] == pytest.approx([0.002, 0.02, 0.001])
    with pytest.raises(ValueError, match="warm-up"):
        cosine(0.02, 10, 10)
