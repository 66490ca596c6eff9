"""One process of a run: a training step on all devices of all processes; process 0 writes what came out.

python hosts_program.py <coordinator> <processes> <process> <result.npz> <checkpoint folder>
"""

import sys
from pathlib import Path

import jax
import numpy as np
import optax
from jax.experimental import multihost_utils

from mlexpert.loops import hosts
from mlexpert.model.config import preset
from mlexpert.model.sharding import MeshShape, make_mesh
from mlexpert.train import checkpoint, spread
from mlexpert.train.losses import WirlLoss
from mlexpert.train.step import StepShape, init_state, make_rl_step
from mlexpert.types import Batch

ROWS, LENGTH = 4, 16


def batch():
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 64, (ROWS, LENGTH)).astype(np.int32)
    at = np.broadcast_to(np.arange(LENGTH, dtype=np.int32), (ROWS, LENGTH))
    window = np.where(at > 4, np.arange(ROWS)[:, None], -1).astype(np.int32)
    logprobs = np.where(window >= 0, rng.normal(-5, 1.0, tokens.shape), 0).astype(np.float32)
    counts = (window >= 0).sum(axis=1).astype(np.int32)
    rewards = rng.normal(size=ROWS).astype(np.float32)
    return Batch(tokens, np.ones_like(tokens), at, window, logprobs, None, rewards, counts)


def main(coordinator, processes, process, result, folder):
    hosts.start(hosts.read(coordinator, processes, process), timeout_s=120)
    config, optimizer = preset("micro", n_layers=1, vocab_size=64), optax.sgd(1e3)
    shape = StepShape(ROWS, 64, make_mesh(MeshShape(fsdp=2, expert=2)))
    place = shape.placement(config)
    params, reference = (spread.init_params(config, jax.random.key(seed), place) for seed in (0, 1))
    state = init_state(params, optimizer, place)
    state, metrics = make_rl_step(config, optimizer, WirlLoss(kl=0.1), 1.0, shape)(state, batch(), reference)
    saved = checkpoint.restore_latest(Path(folder), state)
    if saved is None:
        checkpoint.save(Path(folder), 1, state, {"made_by": int(processes)})
        saved = checkpoint.restore_latest(Path(folder), state)
    leaves = [multihost_utils.process_allgather(x, tiled=True) for x in jax.tree.leaves(state.params)]
    same = [multihost_utils.process_allgather(x, tiled=True) for x in jax.tree.leaves(saved[1].params)]
    if jax.process_index() == 0:
        arrays = {f"w{i}": leaf for i, leaf in enumerate(leaves)} | {f"s{i}": leaf for i, leaf in enumerate(same)}
        numbers = dict(loss=metrics["loss"], devices=jax.device_count(), made_by=saved[2]["made_by"])
        np.savez(result, **arrays, **numbers, processes=jax.process_count())


if __name__ == "__main__":
    main(*sys.argv[1:])
