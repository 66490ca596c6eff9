"""One optimizer step over micro-batches of one fixed shape, [rows, T]: one compile per program, however many rows come.

1. Gradients of SUMS are added up over micro-batches and divided once by the global number of windows, so 1 x 8 rows and
   8 x 1 give the same step.
2. Buffers: gradients and optimizer state are donated; parameters never are. The sampling engine of the same process
   reads the arrays it was last given while the step runs, and each step returns fresh ones, so publishing is handing
   over a reference. The price is one extra copy of the parameters during the update. A state that went into a step is
   spent: its optimizer state is gone.
3. A non-finite loss, metric or gradient raises BEFORE anything is updated or donated.
4. With one pass over a batch the policy before the update is the current one: l_old is the stopped l_theta, ratio 1 in
   value, no extra forward. With more passes l_old is computed once, before the first.
5. The router's balance is reported and never part of a loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec

from mlexpert.model import lora
from mlexpert.model.config import ModelConfig
from mlexpert.model.parallel import ALONE
from mlexpert.model.params import Params
from mlexpert.model.transformer import hidden_and_routing, unembedding
from mlexpert.train import masked, spread
from mlexpert.train.logprobs import token_logprobs_and_entropy
from mlexpert.train.losses import WirlLoss, sft_loss, wirl_loss
from mlexpert.types import Batch


@flax.struct.dataclass
class TrainState:
    params: Params
    opt_state: optax.OptState
    step: jax.Array  # int32, updates made


@dataclass(frozen=True)
class StepShape:
    """`rows` of a micro-batch; `chunk` entries of the vocabulary whose logits exist at once; `mesh` None: one device.
    The others say how attention and experts run (see model/parallel.py)."""

    rows: int = 4
    chunk: int = 4096
    mesh: Mesh | None = None
    attention: str = ""
    grouped: str = ""
    exchange: str = "padded"
    capacity: float = 0.5

    def placement(self, config: ModelConfig) -> spread.Placement:
        kernels = dict(attention=self.attention, grouped=self.grouped)
        return spread.placement(config, self.mesh, exchange=self.exchange, capacity=self.capacity, **kernels)


class Micro(NamedTuple):
    """The rows of one micro-batch, windows resolved to numbers per token: weight is 1/N_m, 0 where not trained."""

    tokens_BxT: jax.Array
    segments_BxT: jax.Array
    positions_BxT: jax.Array
    rollout_BxT: jax.Array
    support_BxTxK: jax.Array | None
    advantage_BxT: jax.Array
    weight_BxT: jax.Array


ONE_DEVICE = spread.Placement(None, ALONE, {}, None)


class Programs(NamedTuple):
    """The jitted parts of a step."""

    zeros: Callable  # params -> empty gradient sum of what is trained
    add: Callable  # params, gradient sum, micro-batch, fixed arrays -> gradient sum, metrics
    update: Callable  # trained params, optimizer state, step, gradients -> TrainState of these


Loss = Callable[[Any, Micro, jax.Array, jax.Array], tuple[jax.Array, dict[str, masked.Metric]]]


def init_state(
    params: Params, optimizer: optax.GradientTransformation, place: spread.Placement = ONE_DEVICE
) -> TrainState:
    """Parameters must lie where `place` wants them (see `spread.init_params`)."""
    return TrainState(params, spread.init_optimizer(lora.split(params)[0], optimizer, place), jnp.zeros((), jnp.int32))


def make_sft_step(
    config: ModelConfig, optimizer: optax.GradientTransformation, shape: StepShape = StepShape()
) -> Callable[[TrainState, Batch], tuple[TrainState, dict[str, float]]]:
    """A step that minimises the mean negative log-likelihood of the trained tokens of a batch from `pack_examples`.

    The step raises FloatingPointError (non-finite, see 3. above) and ValueError (rows not a multiple of `shape.rows`).
    """

    def loss(_: None, micro: Micro, logprob_BxT: jax.Array, entropy_BxT: jax.Array):
        del entropy_BxT
        return sft_loss(logprob_BxT, micro.weight_BxT)

    place = shape.placement(config)
    programs = _programs(config, optimizer, shape, place, 1.0, loss)

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, dict[str, float]]:
        micros = [(micro, None) for micro in micro_batches(batch, shape.rows, place)]
        return _step(state, micros, len(batch.counts_W), programs)

    return step


def make_rl_step(
    config: ModelConfig,
    optimizer: optax.GradientTransformation,
    loss: WirlLoss,
    temperature: float,
    shape: StepShape = StepShape(),
    passes: int = 1,
) -> Callable[[TrainState, Batch, Params], tuple[TrainState, dict[str, float]]]:
    """A step of MLExpert's windowed objective: `step(state, batch, reference_params)`, one update per pass.

    `temperature` is the sampler's. `state.step` counts updates. Metrics are those of the last pass.
    The step raises FloatingPointError (non-finite, see 3. above) and ValueError (rows not a multiple of `shape.rows`).
    """
    if passes < 1:
        raise ValueError(f"{passes} passes over a batch: at least one is needed")
    place = shape.placement(config)
    programs = rl_programs(config, optimizer, loss, temperature, shape)
    score = make_score(config, temperature, shape)

    def step(state: TrainState, batch: Batch, reference: Params) -> tuple[TrainState, dict[str, float]]:
        micros = []
        for micro in micro_batches(batch, shape.rows, place):
            old_BxT = score(state.params, micro) if passes > 1 else None
            reference_BxT = score(reference, micro) if loss.kl else None
            micros.append((micro, (old_BxT, reference_BxT)))
        metrics: dict[str, float] = {}
        for _ in range(passes):
            state, metrics = _step(state, micros, len(batch.counts_W), programs)
        return state, metrics

    return step


def rl_programs(
    config: ModelConfig, optimizer: optax.GradientTransformation, loss: WirlLoss, temperature: float, shape: StepShape
) -> Programs:
    """The jitted parts of a step of `make_rl_step`; the fixed arrays of a micro-batch are (l_old, l_ref), each [B, T],
    or None for the stopped current ones."""

    def objective(fixed: tuple, micro: Micro, logprob_BxT: jax.Array, entropy_BxT: jax.Array):
        old_BxT, reference_BxT = fixed
        old_BxT = jax.lax.stop_gradient(logprob_BxT) if old_BxT is None else old_BxT
        reference_BxT = jax.lax.stop_gradient(logprob_BxT) if reference_BxT is None else reference_BxT
        return wirl_loss(
            logprob_BxT,
            old_BxT,
            micro.rollout_BxT,
            reference_BxT,
            entropy_BxT,
            micro.advantage_BxT,
            micro.weight_BxT,
            loss,
        )

    return _programs(config, optimizer, shape, shape.placement(config), temperature, objective)


def make_score(config: ModelConfig, temperature: float, shape: StepShape) -> Callable[[Params, Micro], jax.Array]:
    """Jitted log-prob [rows, T] of every token of a micro-batch under given parameters; no gradient."""

    place = shape.placement(config)

    def score(params: Params, micro: Micro) -> jax.Array:
        return _forward(params, config, micro, temperature, shape.chunk, place)[0]

    return spread.on_devices(score, place, (place.specs, spread.TOKENS), spread.TOKENS)


def micro_batches(batch: Batch, rows: int, place: spread.Placement = ONE_DEVICE) -> Iterator[Micro]:
    """Cuts a batch into micro-batches of `rows` rows. Raises ValueError if they do not come out even."""
    if len(batch.tokens_BxT) % rows:
        raise ValueError(f"{len(batch.tokens_BxT)} rows in micro-batches of {rows}: pack with rows_multiple={rows}")
    trained_BxT = batch.window_BxT >= 0
    whole = (
        batch.tokens_BxT,
        batch.segments_BxT,
        batch.positions_BxT,
        batch.logprobs_BxT,
        batch.support_BxTxK,
        np.where(trained_BxT, batch.advantages_W[batch.window_BxT], 0).astype(np.float32),
        np.where(trained_BxT, 1.0 / batch.counts_W[batch.window_BxT], 0).astype(np.float32),
    )
    for start in range(0, len(batch.tokens_BxT), rows):
        part = (None if array is None else array[start : start + rows] for array in whole)
        yield Micro(*spread.put_tokens(tuple(part), place))


def head(
    params: Params,
    config: ModelConfig,
    hidden_BxTxD: jax.Array,
    micro: Micro,
    temperature: float,
    chunk: int,
    place: spread.Placement,
) -> tuple[jax.Array, jax.Array]:
    """(log-probs, entropies) of the tokens, [B, T] each; of `params` only the unembedding is read."""
    return token_logprobs_and_entropy(
        hidden_BxTxD,
        unembedding(params, config),  # rows may be split: the head gathers them, chunk by chunk
        micro.tokens_BxT,
        micro.segments_BxT,
        temperature,
        micro.support_BxTxK,
        spread.head_layout(config, place, chunk),
        place.parallel,
    )


def _forward(
    params: Params, config: ModelConfig, micro: Micro, temperature: float, chunk: int, place: spread.Placement
) -> tuple[jax.Array, jax.Array, dict[str, masked.Metric]]:
    params = spread.as_declared(params, config)
    hidden_BxTxD, routing = hidden_and_routing(
        params, config, micro.tokens_BxT, micro.segments_BxT, micro.positions_BxT, parallel=place.parallel
    )
    logprob_BxT, entropy_BxT = head(params, config, hidden_BxTxD, micro, temperature, chunk, place)
    if routing is None:
        return logprob_BxT, entropy_BxT, {}
    n_real = jnp.sum(micro.segments_BxT > 0).astype(jnp.float32)
    return (
        logprob_BxT,
        entropy_BxT,
        {
            "router_balance": masked.Mean(jnp.mean(routing.balance) * n_real, n_real),
            "expert_load_max": masked.Most(jnp.max(routing.load_E)),
        },
    )


def _programs(
    config: ModelConfig,
    optimizer: optax.GradientTransformation,
    shape: StepShape,
    place: spread.Placement,
    temperature: float,
    loss: Loss,
) -> Programs:
    add = _make_add(config, shape.chunk, place, temperature, loss)
    return Programs(spread.zeros(place), add, _make_update(optimizer, place))


def _make_add(config: ModelConfig, chunk: int, place: spread.Placement, temperature: float, loss: Loss) -> Callable:

    def objective(trained: Params, stays: Params, micro: Micro, fixed: Any):
        params = lora.join(trained, stays)
        logprob_BxT, entropy_BxT, router = _forward(params, config, micro, temperature, chunk, place)
        value, metrics = loss(fixed, micro, logprob_BxT, entropy_BxT)
        return value, {**metrics, **jax.lax.stop_gradient(router)}

    def add(params: Params, grads: Params, micro: Micro, fixed: Any):
        fresh, metrics = jax.grad(objective, has_aux=True)(*lora.split(params), micro, fixed)
        fresh = spread.complete(fresh, place)
        grads = jax.tree.map(lambda total, g: total + g.astype(total.dtype), grads, fresh)
        return grads, spread.merge(metrics, place)

    trained = lora.split(place.specs)[0] if place.specs else {}
    specs = (place.specs, trained, spread.TOKENS, spread.TOKENS)
    return spread.on_devices(add, place, specs, (trained, PartitionSpec()), donate_argnums=1)


def _make_update(optimizer: optax.GradientTransformation, place: spread.Placement) -> Callable:
    def update(params: Any, opt_state: optax.OptState, step: jax.Array, grads: Params):
        updates, opt_state = optimizer.update(grads, opt_state, params)
        fresh: Any = optax.apply_updates(params, updates)
        return spread.keep(TrainState(fresh, opt_state, step + 1), place)

    return jax.jit(update, donate_argnums=(1, 3))


@partial(jax.jit, donate_argnums=0)
def _divide(grads: Params, count: jax.Array) -> tuple[Params, jax.Array]:
    grads = jax.tree.map(lambda g: g / count, grads)
    return grads, optax.global_norm(grads)


def _step(
    state: TrainState, micros: list[tuple[Micro, Any]], count: int, programs: Programs
) -> tuple[TrainState, dict[str, float]]:
    grads, parts = programs.zeros(state.params), []
    for micro, fixed in micros:
        grads, metrics = programs.add(state.params, grads, micro, fixed)
        parts.append(metrics)
    grads, norm = _divide(grads, np.float32(count))
    metrics = {**masked.report(jax.device_get(parts)), "grad_norm": float(norm)}
    _require_finite(metrics, int(state.step))
    trained, stays = lora.split(state.params)
    after = programs.update(trained, state.opt_state, state.step, grads)
    return replace(after, params=lora.join(after.params, stays)), metrics


def _require_finite(metrics: dict[str, float], step: int) -> None:
    wrong = {name: value for name, value in metrics.items() if not math.isfinite(value)}
    if wrong:
        raise FloatingPointError(f"update {step} not made, non-finite: {wrong}. Restart from the last checkpoint")
