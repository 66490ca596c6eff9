"""Grouped products: every backend against one product per row, whatever the division; rows find their place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import grouped, grouped_triton
from mlexpert.model.grouped import BACKENDS, arrange, block_size, groups_of_blocks, take

A, G, D, F = 40, 5, 32, 48
RNG = np.random.default_rng(0)
# Group ids outside 0..4 mean "no group"; a group may have all rows or none.
DIVISIONS = {
    "mixed": RNG.integers(-1, G + 1, A),
    "all in the last": np.full(A, G - 1),
    "all in the first": np.zeros(A, int),
    "none": np.full(A, G),
}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(grouped_triton, "INTERPRET", True)


@pytest.mark.parametrize("block", [1, 4, 16])
@pytest.mark.parametrize("division", DIVISIONS)
def test_every_thing_gets_a_row_of_its_own_in_a_block_of_its_group(division, block):
    group = DIVISIONS[division]
    found = arrange(jnp.asarray(group), G, block)
    row, thing = np.asarray(found.row_A), np.asarray(found.thing_R)
    real = (group >= 0) & (group < G)
    assert len(np.unique(row[real])) == real.sum()
    assert (row[~real] == len(thing)).all()
    np.testing.assert_array_equal(thing[row[real]], np.flatnonzero(real))
    assert (thing < A).sum() == real.sum()
    blocks = np.asarray(groups_of_blocks(found.groups, len(thing)))
    np.testing.assert_array_equal(blocks[row[real] // block], group[real])
    assert (np.diff(row[real][np.argsort(group[real], kind="stable")]) > 0).all()


@pytest.fixture(scope="module")
def arrays():
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = (A, D), (G, D, F), (G, D, F), (G, F, D)
    return tuple(jax.random.normal(key, shape) / 4 for key, shape in zip(keys, shapes, strict=True))


def rows_of(function, division):
    """`function(x_RxD, groups)` on things instead of rows."""
    found = arrange(jnp.asarray(DIVISIONS[division]), G, 16)

    def apply(x_AxD):
        out = function(take(x_AxD, found.thing_R, found.row_A[:, None]), found.groups)
        return take(out, found.row_A, found.thing_R[:, None])

    return apply


def each_alone(x, w, division):
    group = DIVISIONS[division]
    real = jnp.asarray((group >= 0) & (group < G))
    return jnp.where(real[:, None], jnp.einsum("ad,adf->af", x, w[np.clip(group, 0, G - 1)]), 0)


def same(function, reference, *arguments):
    """Value and gradient agree."""

    def square(f):
        return jax.jit(jax.value_and_grad(lambda *a: (f(*a) ** 2).sum(), argnums=tuple(range(len(arguments)))))

    got, want = square(function)(*arguments), square(reference)(*arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), got, want)


@pytest.mark.parametrize("division", DIVISIONS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_product_is_that_of_each_row_alone(arrays, backend, division):
    x, w, *_ = arrays

    def product(x, w):
        return rows_of(lambda x, groups: grouped.grouped_matmul(x, w, groups, backend), division)(x)

    same(product, lambda x, w: each_alone(x, w, division), x, w)


@pytest.mark.parametrize("backend", BACKENDS)
def test_mlp_is_that_of_each_row_alone(arrays, backend):
    def mlp(x, *weights):
        return rows_of(lambda x, groups: grouped.grouped_mlp(x, *weights, groups, backend), "mixed")(x)

    def alone(x, gate, up, down):
        hidden = jax.nn.silu(each_alone(x, gate, "mixed")) * each_alone(x, up, "mixed")
        return each_alone(hidden, down, "mixed")

    same(mlp, alone, *arrays)


def test_triton_refuses_sizes_that_tensor_cores_cannot_take(arrays):
    found = arrange(jnp.zeros(A, jnp.int32), G, 16)
    with pytest.raises(ValueError, match="multiples of 16, got 20"):
        grouped.grouped_matmul(jnp.zeros((len(found.thing_R), D)), jnp.zeros((G, D, 20)), found.groups, "triton")
    with pytest.raises(ValueError, match="cutlass"):
        grouped.grouped_matmul(arrays[0], arrays[1], found.groups, "cutlass")


def test_take_has_the_gradient_of_a_gather():
    x = jax.random.normal(jax.random.key(0), (3, 2))
    source, back = jnp.asarray([2, 0, 2, 3]), jnp.asarray([[1, 4], [4, 4], [0, 2]])
    weight = jnp.arange(8.0).reshape(4, 2)

    def plain(x):
        return (jnp.concatenate((x, jnp.zeros((1, 2))))[source] * weight).sum()

    got = jax.value_and_grad(lambda x: (take(x, source, back) * weight).sum())(x)
    jax.tree.map(np.testing.assert_allclose, got, jax.value_and_grad(plain)(x))


def test_block_size_stays_a_small_power_of_two():
    sizes = [block_size(rows, experts) for rows in (1, 130, 8192, 10**6) for experts in (1, 8, 128)]
    assert all(16 <= size <= 128 and size & (size - 1) == 0 for size in sizes)
    assert block_size(8192, 8) == 128
