"""Experts over devices: equal to one device for any routing, and no row is ever dropped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from mlexpert.model.config import preset
from mlexpert.model.expert_parallel import rounds
from mlexpert.model.moe import moe
from mlexpert.model.parallel import Parallel
from mlexpert.model.params import init
from mlexpert.model.sharding import MeshShape, make_mesh

N, DEVICES = 96, 4
CONFIG = preset("micro", n_experts=8)
SPECS = {"router": P(), "gate": P("expert"), "up": P("expert"), "down": P("expert")}
REPLAYS = {
    "own choice": None,
    "everyone to the same two": np.tile([[6, 7]], (N, 1)),
    "everyone to one expert of each of two devices": np.tile([[0, 7]], (N, 1)),
    "one device sends all to one, the others elsewhere": np.where(np.arange(N)[:, None] < N // DEVICES, [4, 5], [0, 2]),
}


@pytest.fixture(scope="module")
def layer():
    weights = jax.tree.map(lambda x: x[0], init(CONFIG, jax.random.key(0))["blocks"][0]["moe"])
    return weights, jax.random.normal(jax.random.key(1), (N, CONFIG.d_model))


def spread(capacity):
    """The layer over four devices: expert-parallel inside, one function outside."""
    mesh = make_mesh(MeshShape(expert=DEVICES), jax.devices()[:DEVICES])
    parallel = Parallel(tokens=("expert",), expert="expert", capacity=capacity)

    def local(x, weights, replay):
        y, routing = moe(x, weights, CONFIG, None, replay, parallel)
        return y, (routing.load_E, routing.balance)

    specs = (P("expert"), SPECS, P("expert"))
    out_specs = (P("expert"), (P(), P()))
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)


def alone(x, weights, replay):
    y, routing = moe(x, weights, CONFIG, None, replay)
    return y, (routing.load_E, routing.balance)


# Capacity 0.5 is the default; 0.02 takes many rounds, 9 takes one buffer for the worst case.
@pytest.mark.parametrize("capacity", [0.5, 0.02, 9.0])
@pytest.mark.parametrize("name", REPLAYS)
def test_equals_one_device_in_value_gradient_and_statistics(layer, name, capacity):
    weights, x = layer
    replay = None if REPLAYS[name] is None else jnp.asarray(REPLAYS[name], jnp.int32)

    def square(function):
        def total(x, weights):
            y, statistics = function(x, weights, replay)
            return (y**2).sum(), (y, statistics)

        return jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))(x, weights)

    ((value, (y, statistics)), gradients), ((want, (wanted, stated)), reference) = (
        square(spread(capacity)),
        square(alone),
    )
    # A dropped row would be a row of zeros, or of one expert's share only.
    np.testing.assert_allclose(y, wanted, atol=1e-6)
    assert float(value) == pytest.approx(float(want), rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), gradients, reference)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), statistics, stated)


@pytest.mark.parametrize("shape", [(1, 1), (7, 2), (96, 8), (16384, 8)])
@pytest.mark.parametrize("devices", [2, 8, 32])
@pytest.mark.parametrize("own", [1, 4, 32])
@pytest.mark.parametrize("share", [0.01, 0.5, 2.0])
def test_the_rounds_hold_the_worst_routing(shape, devices, own, share):
    capacity, n = rounds(shape, devices, own, share)
    worst = shape[0] * min(shape[1], own)
    assert capacity * (n - 1) < worst <= capacity * n
    assert capacity <= worst


def test_even_routing_costs_what_it_must():
    capacity, _ = rounds((16384, 8), 8, 32, 0.5)
    fair = 16384 * 8 / 8
    assert fair <= -(-fair // capacity) * capacity < 1.01 * fair


def test_memory_follows_the_capacity_and_not_the_worst_case(layer):
    weights, x = layer

    def temporaries(capacity):
        grad = jax.jit(jax.grad(lambda x, w: (spread(capacity)(x, w, None)[0] ** 2).sum(), (0, 1)))
        memory = grad.lower(jnp.tile(x, (16, 1)), weights).compile().memory_analysis()
        assert memory is not None
        return memory.temp_size_in_bytes

    assert temporaries(0.5) < temporaries(9.0) / 2


def test_unknown_exchange_is_refused():
    with pytest.raises(ValueError, match="carrier"):
        Parallel(exchange="carrier pigeon")
