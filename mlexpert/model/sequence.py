"""Mixers over rows that are cut into stretches, one per device of the mesh's sequence axis.

Attention gathers keys and values: with grouped queries they are a small part of a layer, and one collective moves them.
Linear attention needs of the past only a state, and what a stretch does to a state is linear:

    state after = transition @ state before + what the stretch writes into an empty state

so every device finds transition and writing from its own tokens, all exchange them (their size does not depend on the
length), and each composes those of the stretches before its own. Only the sweep over chunk states runs twice.

Shape letters: G key heads, H value heads, K and V widths of keys and values, W taps of the convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from mlexpert.model import attention_splash, attention_triton, backends
from mlexpert.model.attention import Keys, self_attend
from mlexpert.model.attention_chunked import chunked_attend
from mlexpert.model.delta_rule import CHUNK, Tokens, prepare, rows_of, sweep
from mlexpert.model.parallel import Parallel

Rule = Callable[[Tokens, jax.Array], tuple[jax.Array, jax.Array]]  # tokens, memory before -> out, memory behind

HEAD_TOKENS = 2**16  # tokens times value heads that the delta rule works on at once: a few GiB in its backward pass
WHOLE_LENGTH = 1024  # rows up to this length are attended to whole: faster, and their scores are small


def attend_rows(
    q_BxTxHxK: jax.Array,
    k_BxGxTxK: jax.Array,
    v_BxGxTxK: jax.Array,
    segments_BxT: jax.Array,
    positions_BxT: jax.Array,
    parallel: Parallel,
) -> jax.Array:
    """Attention of packed rows over themselves, [B, T, H, K], T being the device's own stretch.

    Raises ValueError for an unknown backend, or rows that the one asked for cannot take."""
    length, start, keys = q_BxTxHxK.shape[1], 0, Keys(k_BxGxTxK, v_BxGxTxK, segments_BxT, positions_BxT)
    if parallel.sequence:
        axes = (2, 2, 1, 1)
        gathered = (
            jax.lax.all_gather(x, parallel.sequence, axis=i, tiled=True) for x, i in zip(keys, axes, strict=True)
        )
        start, keys = jax.lax.axis_index(parallel.sequence) * length, Keys(*gathered)
    backend = backends.attention(parallel.attention, q_BxTxHxK.shape, keys.k_BxGxCxK.shape).name
    if backend == "splash":
        return attention_splash.attend(q_BxTxHxK, segments_BxT, positions_BxT, keys, start=start)
    if backend == "triton":
        return attention_triton.attend(q_BxTxHxK, segments_BxT, positions_BxT, keys, start=start)
    if not parallel.sequence and length <= WHOLE_LENGTH:
        return self_attend(q_BxTxHxK, k_BxGxTxK, v_BxGxTxK, segments_BxT, positions_BxT)
    return chunked_attend(q_BxTxHxK, segments_BxT, positions_BxT, keys)


def left_inputs(x_BxTxD: jax.Array, fresh_BxT: jax.Array, n: int, parallel: Parallel) -> jax.Array:
    """The last n tokens of the stretch to the left [B, n, D], zero where they belong to an earlier run than its last
    token, or to nothing. Raises ValueError for a stretch shorter than n."""
    if x_BxTxD.shape[1] < n:
        raise ValueError(f"a stretch of {x_BxTxD.shape[1]} tokens is shorter than the convolution's past of {n}")
    run_BxT = jnp.cumsum(fresh_BxT, axis=1)
    same_BxN = run_BxT[:, -n:] == run_BxT[:, -1:]
    last_BxNxD = jnp.where(same_BxN[..., None], x_BxTxD[:, -n:], 0)
    n_devices = jax.lax.axis_size(parallel.sequence)
    return jax.lax.ppermute(last_BxNxD, parallel.sequence, [(i, i + 1) for i in range(n_devices - 1)])


def in_head_groups(rule: Rule, tokens: Tokens, memory_BxHxKxV: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The rule, on some heads after the others where all at once would take much memory; heads do not mix."""
    work, groups = math.prod(tokens.v_BxTxHxV.shape[:3]), tokens.k_BxTxGxK.shape[2]
    n = next(n for n in range(1, groups + 1) if groups % n == 0 and (work <= n * HEAD_TOKENS or n == groups))
    if n == 1:
        return rule(tokens, memory_BxHxKxV)

    def cut(x: jax.Array, axis: int) -> jax.Array:
        return jnp.moveaxis(x.reshape(*x.shape[:axis], n, -1, *x.shape[axis + 1 :]), axis, 0)

    @jax.checkpoint
    def some(parts: tuple[list[jax.Array], jax.Array]) -> tuple[jax.Array, jax.Array]:
        return rule(Tokens(*parts[0], fresh_BxT=tokens.fresh_BxT), parts[1])

    out, memory = jax.lax.map(some, ([cut(x, 2) for x in tokens[:-1]], cut(memory_BxHxKxV, 1)))
    out_BxTxHxV = jnp.moveaxis(out, 0, 2).reshape(tokens.v_BxTxHxV.shape)
    return out_BxTxHxV, jnp.moveaxis(memory, 0, 1).reshape(memory_BxHxKxV.shape)


def delta_rule_over(tokens: Tokens, memory_BxHxKxV: jax.Array, parallel: Parallel) -> tuple[jax.Array, jax.Array]:
    """`delta_rule.chunked` of whole rows, for devices that hold stretches: (out [B, T, H, V], memory behind the row).

    `memory` is what the whole row finds; `tokens.fresh` must know of the tokens to the left.
    """
    batch, length, heads, width = tokens.v_BxTxHxV.shape
    groups, keys = tokens.k_BxTxGxK.shape[2:]
    chunks = prepare(tokens, min(CHUNK, length))
    # One sweep finds both: the state's columns do not mix, so the identity rides beside an empty memory.
    nothing = jnp.zeros((*chunks.value_NxBxGxRxCxV.shape[:-1], keys), jnp.float32)
    wider = chunks._replace(value_NxBxGxRxCxV=jnp.concatenate([chunks.value_NxBxGxRxCxV, nothing], axis=-1))
    shape = (batch, groups, heads // groups, keys)
    identity = jnp.broadcast_to(jnp.eye(keys, dtype=jnp.float32), (*shape, keys))
    _, found = sweep(wider, jnp.concatenate([jnp.zeros((*shape, width), jnp.float32), identity], axis=-1))
    all_found = jax.lax.all_gather(found, parallel.sequence)  # [devices, B, G, R, K, V + K]
    before, behind = _compose(all_found, memory_BxHxKxV.reshape(*shape, width), parallel)
    out_NxBxGxRxCxV, _ = sweep(chunks, before)
    return rows_of(out_NxBxGxRxCxV, length), behind.reshape(memory_BxHxKxV.shape)


def _compose(all_found: jax.Array, memory: jax.Array, parallel: Parallel) -> tuple[jax.Array, jax.Array]:
    """The memory before this device's stretch, and behind the last one."""
    width, here = memory.shape[-1], jax.lax.axis_index(parallel.sequence)

    def add(carry: tuple[jax.Array, jax.Array], one: tuple[jax.Array, jax.Array]):
        memory, mine = carry
        i, found = one
        mine = jnp.where(i == here, memory, mine)
        written, transition = found[..., :width], found[..., width:]
        return (jnp.matmul(transition, memory, precision=jax.lax.Precision.HIGHEST) + written, mine), None

    (behind, before), _ = jax.lax.scan(add, (memory, memory), (jnp.arange(len(all_found)), all_found))
    return before, behind
