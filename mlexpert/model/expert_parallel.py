"""Experts spread over devices: rows travel to the device of their expert and back, in rounds, and none is dropped.

A buffer that holds whatever routing may bring would have to be as many times too large as there are devices: all may
choose one. So rows are sent in rounds of fixed capacity, those of a destination in their order, until the last is
served. A round runs only if some device still has a row to send, so even routing costs few, and any routing is
complete. A smaller capacity costs more rounds and less memory, and less padding is multiplied.

All devices agree on the number of rounds: a collective that some enter and others skip would hang.

Shape letters: N own tokens, K choices of a token, A = N * K assignments, P devices that share the experts, C rows to
one of them in a round, S = P * C.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mlexpert.model.grouped import arrange, block_size, default_backend, grouped_mlp, take
from mlexpert.model.parallel import Parallel
from mlexpert.model.weights import Params


def run_experts(
    x_NxD: jax.Array, weights: Params, share_NxK: jax.Array, experts_NxK: jax.Array, parallel: Parallel
) -> jax.Array:
    """[N, D]: the shares' sum of the chosen experts' outputs. `weights` are those of this device's experts."""
    n_devices, own = jax.lax.axis_size(parallel.expert), weights["gate"].shape[0]
    capacity, n_rounds = rounds(experts_NxK.shape, n_devices, own, parallel.capacity)
    device_A = experts_NxK.reshape(-1) // own
    order_A, most = _order(device_A, n_devices)
    needed = jax.lax.pmax(-(-most // capacity), parallel.tokens)

    def one(x_NxD: jax.Array, weights: Params, share_NxK: jax.Array, i: jax.Array) -> jax.Array:
        place_A = order_A - i * capacity
        slot_A = jnp.where((place_A >= 0) & (place_A < capacity), device_A * capacity + place_A, n_devices * capacity)
        return _round(x_NxD, weights, share_NxK, experts_NxK % own, slot_A, n_devices * capacity, parallel)

    @jax.checkpoint  # what a round saves would be saved for all rounds that might be
    def maybe(x_NxD: jax.Array, weights: Params, share_NxK: jax.Array, i: jax.Array) -> jax.Array:
        return jax.lax.cond(i < needed, one, lambda x, *_: jnp.zeros_like(x), x_NxD, weights, share_NxK, i)

    def step(sum_NxD: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        return sum_NxD + maybe(x_NxD, weights, share_NxK, i), None

    return jax.lax.scan(step, jnp.zeros_like(x_NxD), jnp.arange(n_rounds))[0]


def rounds(shape_NxK: tuple[int, ...], n_devices: int, own_experts: int, share: float) -> tuple[int, int]:
    """(rows to one device in a round, rounds that suffice if all tokens choose the same device)."""
    n, k = shape_NxK
    most = n * min(k, own_experts)  # a token chooses an expert once
    capacity = min(-(-int(n * k * share / n_devices + 1) // 8) * 8, most)
    return capacity, -(-most // capacity)


def _order(device_A: jax.Array, n_devices: int) -> tuple[jax.Array, jax.Array]:
    """The place of each assignment among those to the same device, and the most that any device is sent."""
    rows = arrange(device_A, n_devices, 1)
    first_P = jnp.cumsum(rows.groups.sizes_G) - rows.groups.sizes_G
    return rows.row_A - first_P[device_A], rows.groups.sizes_G.max()


def _round(
    x_NxD: jax.Array,
    weights: Params,
    share_NxK: jax.Array,
    own_expert_NxK: jax.Array,
    slot_A: jax.Array,
    n_slots: int,
    parallel: Parallel,
) -> jax.Array:
    """What the assignments with a slot (below `n_slots`) contribute to the output."""
    (n, k), own = share_NxK.shape, weights["gate"].shape[0]
    assignment_S = jnp.full(n_slots, n * k, jnp.int32).at[slot_A].set(jnp.arange(n * k, dtype=jnp.int32), mode="drop")
    x_SxD = take(x_NxD, assignment_S // k, slot_A.reshape(n, k))
    expert_S = own_expert_NxK.reshape(-1).at[assignment_S].get(mode="fill", fill_value=own)
    n_sent_P = (expert_S < own).reshape(jax.lax.axis_size(parallel.expert), -1).sum(axis=1)
    expert_S = jax.lax.all_to_all(expert_S, parallel.expert, 0, 0, tiled=True)
    n_got_P = (expert_S < own).reshape(n_sent_P.shape[0], -1).sum(axis=1)
    rows = arrange(expert_S, own, block_size(n_slots, own))
    got_RxD = take(_travel(x_SxD, n_sent_P, n_got_P, parallel), rows.thing_R, rows.row_A[:, None])
    backend = parallel.grouped or default_backend()
    done_RxD = grouped_mlp(got_RxD, weights["gate"], weights["up"], weights["down"], rows.groups, backend)
    done_SxD = _travel(take(done_RxD, rows.row_A, rows.thing_R[:, None]), n_got_P, n_sent_P, parallel)
    y_NxKxD = take(done_SxD, slot_A, assignment_S[:, None]).reshape(n, k, -1)
    return jnp.einsum("nk,nkd->nd", share_NxK.astype(x_NxD.dtype), y_NxKxD)


def _travel(x_SxD: jax.Array, n_send_P: jax.Array, n_get_P: jax.Array, parallel: Parallel) -> jax.Array:
    """Rows p * C and following to device p, where they lie behind those of lower devices."""
    if parallel.exchange == "padded":
        return jax.lax.all_to_all(x_SxD, parallel.expert, 0, 0, tiled=True)
    n_devices = n_send_P.shape[0]
    capacity = x_SxD.shape[0] // n_devices
    from_P = jnp.arange(n_devices, dtype=jnp.int32) * capacity
    to_P = jnp.full(n_devices, jax.lax.axis_index(parallel.expert) * capacity, jnp.int32)
    sizes = (from_P, n_send_P.astype(jnp.int32), to_P, n_get_P.astype(jnp.int32))
    return jax.lax.ragged_all_to_all(x_SxD, jnp.zeros_like(x_SxD), *sizes, axis_name=parallel.expert)
