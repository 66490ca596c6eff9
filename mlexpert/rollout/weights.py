"""New weights reach the engine, or the run stops and says why.

1. What the engine must become is computed from the learner's own arrays, without the engine's serving path.
2. Swap; then measure what is served: version, checksum of every leaf, log-probs of a probe text.
3. One retry. Sampling goes on in any case: `swap` never leaves an engine paused.
"""

from __future__ import annotations

import asyncio
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from mlexpert.rollout.engine import Engine, EngineError, Fingerprint, Params

_BITS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}


async def publish(engine: Engine, params: Params, version: int, tolerance: float = 1e-3, attempts: int = 2) -> None:
    """Serve `params` as `version`. Raises EngineError if the engine still differs after `attempts` swaps.

    `tolerance` bounds the difference of a probe log-prob in nats between the learner's forward and the engine's.
    `params` must stay undonated until this returns.
    """
    expected = await asyncio.to_thread(engine.expected, params)
    reason = ""
    for _ in range(attempts):
        await engine.swap(params, version)
        reason = difference(expected, await engine.fingerprint(), tolerance)
        if engine.version != version:
            reason = f"it reports version {engine.version}"
        if not reason:
            return
    raise EngineError(f"weights of version {version} did not reach the engine in {attempts} attempts: {reason}")


def difference(expected: Fingerprint, served: Fingerprint, tolerance: float) -> str:
    """Why `served` is not `expected`, "" if it is."""
    if served.checksum != expected.checksum:
        return f"its weights have checksum {served.checksum}, the learner's {expected.checksum}"
    gap = np.abs(served.logprobs_P - expected.logprobs_P)
    if not (gap <= tolerance).all():
        return f"probe log-probs differ by up to {gap.max():.2e} nats (bound {tolerance:.0e}) with equal weights"
    return ""


def checksum(params: Params) -> str:
    """Of names, shapes, dtypes and bits of all leaves; computed where the arrays are, 4 bytes a leaf travel."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    sums = jax.device_get(_leaf_sums([leaf for _, leaf in leaves]))
    digest = hashlib.sha256()
    for (path, leaf), total in zip(leaves, sums, strict=True):
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype} {int(total)};".encode())
    return digest.hexdigest()[:16]


@jax.jit
def _leaf_sums(leaves: list[jax.Array]) -> list[jax.Array]:
    return [_bit_sum(leaf) for leaf in leaves]


def _bit_sum(leaf: jax.Array) -> jax.Array:
    """Sum of bit patterns times odd weights, mod 2**32: any single changed element, and nearly any swap, changes it."""
    bits = jax.lax.bitcast_convert_type(leaf.ravel(), _BITS[leaf.dtype.itemsize]).astype(jnp.uint32)
    return jnp.sum(bits * (2 * jnp.arange(bits.size, dtype=jnp.uint32) + 1), dtype=jnp.uint32)
