"""The table from logical to mesh axes, and a training step that gives the same gradients on every mesh."""

import functools

import jax
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from mlexpert.model import sharding
from mlexpert.model.config import preset
from mlexpert.model.params import declare, init
from mlexpert.model.sharding import MeshError, MeshShape, make_mesh
from mlexpert.model.weights import Weight
from mlexpert.train import checkpoint, spread
from mlexpert.train.losses import WirlLoss
from mlexpert.train.optimizer import rl_adamw
from mlexpert.train.step import StepShape, init_state, make_rl_step, make_score, micro_batches
from mlexpert.types import Batch

ROWS, LENGTH = 8, 32
SPARSE = preset("micro", n_experts=8, n_layers=1, vocab_size=64)
CONFIGS = {
    "sparse": SPARSE,
    "dense": preset("tiny_dense", vocab_size=64, d_model=32, n_layers=2, n_heads=4, head_dim=8, d_ff=48),
    "untied": preset("micro", n_experts=8, n_layers=1, vocab_size=64, tied_embedding=False, remat="layer"),
    "hybrid": preset("micro_hybrid", n_experts=8, vocab_size=64),
}
LOSS = WirlLoss(kl=0.1, entropy=0.05)
SGD = optax.sgd(1e3)  # shows the gradient itself, not drowned in the rounding of the weights that it is added to


def mesh_of(**sizes):
    shape = MeshShape(**sizes)
    return make_mesh(shape, jax.devices()[: shape.devices])


def batch(seed=0):
    """Packed rows: segments of several lengths, padding, windows that cross nothing, supports of two ids, of which an
    untrained policy takes either: log-probs of about -0.7."""
    rng = np.random.default_rng(seed)
    shape = (ROWS, LENGTH)
    tokens = rng.integers(1, 64, shape).astype(np.int32)
    cuts = np.sort(rng.integers(4, LENGTH - 2, (ROWS, 2)), axis=1)
    at = np.arange(LENGTH)[None]
    segments = np.where(at < cuts[:, :1], 1, np.where(at < cuts[:, 1:], 2, 0)).astype(np.int32)
    positions = np.where(segments == 2, at - cuts[:, :1], np.where(segments == 0, at - cuts[:, 1:], at)).astype(
        np.int32
    )
    first = (at == 0) | (at == cuts[:, :1])
    window = np.where((segments > 0) & ~first & (rng.random(shape) < 0.6), np.arange(ROWS)[:, None], -1).astype(
        np.int32
    )
    support = np.where(window[..., None] >= 0, np.stack([tokens, (tokens + 7) % 64, np.full(shape, -1)], -1), -1)
    counts = np.maximum((window >= 0).sum(axis=1), 1).astype(np.int32)
    logprobs = np.where(window >= 0, rng.normal(-0.7, 0.3, shape), 0).astype(np.float32)
    rewards = rng.normal(size=ROWS).astype(np.float32)
    return Batch(tokens, segments, positions, window, logprobs, support.astype(np.int32), rewards, counts)


def step_on(config, mesh, optimizer=SGD, rows=ROWS):
    """(parameters after one step, metrics), everything on the mesh."""
    shape = StepShape(rows=rows, chunk=24, mesh=mesh)
    place = shape.placement(config)
    params, reference = (spread.init_params(config, jax.random.key(seed), place) for seed in (0, 1))
    step = make_rl_step(config, optimizer, LOSS, 0.6, shape)
    state, metrics = step(init_state(params, optimizer, place), batch(), reference)
    return state, metrics


@functools.cache
def alone(name):
    # One row at a time: sums over a large micro-batch round worse than those of devices with few rows each.
    state, metrics = step_on(CONFIGS[name], None, rows=1)
    return jax.device_get(state.params), metrics


def gradient(name, params):
    start = jax.jit(init, static_argnums=0)(CONFIGS[name], jax.random.key(0))
    return jax.tree.map(lambda new, old: np.asarray(new) - np.asarray(old), params, start)


def assert_same_gradient(name, params):
    """The whole within 1e-5; each weight's part, which may be small, within a few times that."""
    got, wanted = gradient(name, params), gradient(name, alone(name)[0])
    distance = jax.tree.map(lambda a, b: np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-3), got, wanted)
    for path, error in jax.tree_util.tree_leaves_with_path(distance):
        assert error < 5e-5, f"{jax.tree_util.keystr(path)}: {error}"
    whole, apart = (np.concatenate([x.ravel() for x in jax.tree.leaves(tree)]) for tree in (wanted, got))
    assert np.linalg.norm(whole) > 0
    assert np.linalg.norm(apart - whole) < 1e-5 * np.linalg.norm(whole)


MESHES = [
    ("sparse", dict(data=8)),
    ("sparse", dict(fsdp=8)),
    ("sparse", dict(expert=8)),
    ("sparse", dict(data=2, fsdp=2, expert=2)),
    ("untied", dict(fsdp=2, expert=4)),
    ("dense", dict(data=2, fsdp=2, expert=2)),
    ("dense", dict(sequence=8)),
    ("hybrid", dict(expert=2, sequence=4)),
    ("hybrid", dict(data=2, fsdp=2, sequence=2)),
]


@pytest.mark.parametrize(("name", "sizes"), MESHES, ids=lambda x: x if isinstance(x, str) else str(MeshShape(**x)))
def test_every_mesh_gives_the_gradient_of_one_device(name, sizes):
    state, metrics = step_on(CONFIGS[name], mesh_of(**sizes))
    assert_same_gradient(name, jax.device_get(state.params))
    for key, value in alone(name)[1].items():
        if key not in ("router_balance", "expert_load_max"):  # these are of a micro-batch
            assert metrics[key] == pytest.approx(value, rel=1e-4, abs=1e-5), key


def test_what_a_device_holds_is_its_share():
    mesh = mesh_of(fsdp=4, expert=2)
    state, _ = step_on(SPARSE, mesh, rl_adamw(1e-3))
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert whole / 8 < held < whole / 8 * 1.1  # vectors are whole everywhere


def test_scores_do_not_depend_on_the_mesh():
    found = []
    for mesh in (None, mesh_of(fsdp=2, expert=4)):
        shape = StepShape(ROWS, 24, mesh)
        place = shape.placement(SPARSE)
        params = spread.init_params(SPARSE, jax.random.key(0), place)
        micro = next(micro_batches(batch(), ROWS, place))
        found.append(np.asarray(make_score(SPARSE, 0.6, shape)(params, micro)))
    np.testing.assert_allclose(*found, atol=2e-5)


def test_a_checkpoint_restores_on_another_mesh(tmp_path):
    optimizer = rl_adamw(1e-3)
    state, _ = step_on(SPARSE, mesh_of(fsdp=4, expert=2), optimizer)
    checkpoint.save(tmp_path, 1, state, {})
    for mesh in (mesh_of(fsdp=2, expert=2), mesh_of(data=2), None):
        place = spread.placement(SPARSE, mesh)
        like = jax.eval_shape(lambda: init_state(init(SPARSE, jax.random.key(0)), optimizer))
        wanted = spread.state_shardings(like, place)
        if wanted is not None:
            like = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), like, wanted)
        _, restored, _ = checkpoint.restore_latest(tmp_path, like)
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(restored), jax.device_get(state))
        if wanted is not None:
            assert all(jax.tree.leaves(jax.tree.map(lambda x, s: x.sharding == s, restored, wanted)))


# ---------------------------------------------------------------- the table
def test_split_axes_follow_the_table():
    found = sharding.specs(CONFIGS["untied"], MeshShape(data=2, fsdp=2, expert=2))
    assert found["embedding"] == P(None, ("fsdp", "expert"))
    assert found["unembedding"] == P(("fsdp", "expert"), None)
    layer = found["blocks"][0]
    assert layer["moe"]["gate"] == P(None, "expert", "fsdp", None)
    assert layer["moe"]["down"] == P(None, "expert", None, "fsdp")
    assert layer["attention"]["output"] == P(None, None, None, ("fsdp", "expert"))
    assert layer["mixer_norm"] == P(None, None)


def test_every_large_weight_of_the_published_models_is_split():
    shape = MeshShape(fsdp=4, expert=8, sequence=2)
    for name in ("qwen3_8b", "qwen3_30b_a3b", "qwen3_6_35b_a3b"):
        config = preset(name)
        weights = jax.tree.leaves(declare(config))
        splits = jax.tree.leaves(sharding.specs(config, shape))
        whole = sum(np.prod(w.shape) for w, s in zip(weights, splits, strict=True) if not any(s))
        assert whole < 1e-3 * sum(np.prod(w.shape) for w in weights)


def test_a_mesh_axis_is_never_used_twice(monkeypatch):
    monkeypatch.setattr(sharding, "TABLE", {"model": ("fsdp",), "ff": ("fsdp",)})
    weight = Weight((4, 8), "float32", ("model", "ff"), ("constant", 0.0))
    with pytest.raises(MeshError, match="gate would be split twice over mesh axis 'fsdp'"):
        sharding.spec(weight, MeshShape(fsdp=2), "gate")


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (lambda: sharding.specs(preset("micro", n_experts=6), MeshShape(expert=4)), "'expert' axis of 6 .* by 4"),
        (lambda: sharding.specs(preset("micro", d_model=36), MeshShape(fsdp=8)), "'model' axis of 36 .* divide by 8"),
        (lambda: make_mesh(MeshShape(data=3, fsdp=2)), "needs 6 devices, there are 8"),
        (lambda: sharding.check_rows(MeshShape(data=8), 4, 64), "4 rows of 64 positions"),
        (lambda: sharding.check_rows(MeshShape(sequence=8), 4, 60), "positions over 8"),
    ],
)
def test_what_does_not_come_out_even_is_told_by_name(attempt, complaint):
    with pytest.raises(MeshError, match=complaint):
        attempt()
