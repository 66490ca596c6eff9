"""What a training step needs, in closed form: bytes per device and FLOPs. Nothing is compiled or allocated.

What is kept (weights, optimizer, gradients, inputs of layers, caches) is exact: it follows from the declaration of the
weights and the table that splits them. What a layer or the head needs while it works is an estimate that counts the
large arrays of its backward pass; compilers overlap and fuse, so a compile may find a third more or less.

FLOPs count products of matrices: 2 per weight and token, of the experts only those that a token chooses; attention over
the keys that a causal row lets a token see; the delta rule in its recurrent form.

Letters: n tokens of a device, b bytes of an activation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from mlexpert.model import attention_chunked, lora, sharding
from mlexpert.model.config import ModelConfig
from mlexpert.model.delta_rule import CHUNK
from mlexpert.model.expert_parallel import rounds
from mlexpert.model.grouped import block_size
from mlexpert.model.params import declare
from mlexpert.model.sequence import HEAD_TOKENS
from mlexpert.model.sharding import MeshShape
from mlexpert.model.weights import Params, Weight

F32 = 4
STRETCH = 2**15  # tokens of a row on one device: longer ones need larger batches and are no faster


@dataclass(frozen=True)
class Load:
    """One micro-batch and how it is trained."""

    rows: int
    length: int
    chunk: int = 8192  # of the vocabulary
    capacity: float = 0.5  # of a round between experts
    float32_weights: bool = True  # the trainer's copy; the model computes in its own precision
    reference: bool = True  # a second set of weights, for the KL term


class Memory(NamedTuple):
    """Bytes on one device. The first five are always there; then either the model works, or the optimizer does."""

    weights: int
    optimizer: int
    gradients: int
    reference: int
    computed_in: int  # the weights in the model's precision, where the trainer's differs
    layer_inputs: int
    layer: int
    head: int
    update: int

    @property
    def total(self) -> int:
        return sum(self[:5]) + max(self.layer_inputs + max(self.layer, self.head), self.update)


def memory(config: ModelConfig, shape: MeshShape, load: Load) -> Memory:
    """Bytes of one device for one micro-batch of RL. Raises MeshError when mesh, model and batch do not go together."""
    sharding.check_rows(shape, load.rows, load.length)
    n, b = load.rows * load.length // shape.devices, _bytes(config)
    weights, specs = declare(config), sharding.specs(config, shape)
    held, trained = (_held(*pair, shape) for pair in ((weights, specs), (lora.split(weights)[0], lora.split(specs)[0])))
    trainer = F32 if load.float32_weights else b
    return Memory(
        weights=held * trainer,
        optimizer=2 * trained * trainer,
        gradients=trained * (F32 + trainer),  # the sum, and what a micro-batch adds
        reference=held * b if load.reference else 0,
        computed_in=held * b if trainer != b else 0,
        layer_inputs=config.n_layers * n * config.d_model * b,
        layer=max(_layer(config, shape, load, position) for position in range(len(config.pattern))),
        head=_head(config, load, n),
        update=2 * trained * trainer,  # the new weights, and the step to them
    )


def cache_bytes(config: ModelConfig, length: int) -> int:
    """What one sequence of `length` tokens keeps while it is sampled: keys and values, states of linear attention."""
    c, b = config, _bytes(config)
    keys = 2 * length * c.n_kv_heads * c.head_dim * b
    inputs = (c.delta_conv - 1) * (2 * c.delta_key_heads * c.delta_key_dim + c.delta_value_heads * c.delta_value_dim)
    state = inputs * b + c.delta_value_heads * c.delta_key_dim * c.delta_value_dim * F32
    return sum(c.n_blocks * (keys if layer.mixer == "attention" else state) for layer in c.pattern)


# ---------------------------------------------------------------- FLOPs
class Flops(NamedTuple):
    """Of one token's forward pass, averaged over a row."""

    matrices: float
    attention: float
    delta_rule: float
    head: float

    @property
    def total(self) -> float:
        return sum(self)


def flops(config: ModelConfig, length: int) -> Flops:
    """Forward FLOPs per token of rows that are one sequence of `length` tokens; shorter sequences need less."""
    c = config
    layers = [c.n_blocks * [layer.mixer for layer in c.pattern].count(mixer) for mixer in ("attention", "deltanet")]
    return Flops(
        matrices=2.0 * sum(_active(weight, c) for weight in jax.tree.leaves(declare(c)["blocks"])),
        attention=layers[0] * 4 * c.n_heads * c.head_dim * (length + 1) / 2,
        delta_rule=layers[1] * 7.0 * c.delta_value_heads * c.delta_key_dim * c.delta_value_dim,
        head=2.0 * c.d_model * c.vocab_size,
    )


def step_flops(config: ModelConfig, load: Load) -> tuple[float, float]:
    """(FLOPs that learning from a micro-batch takes, FLOPs that are executed) over all devices: a backward pass is two
    forward passes; layers and head computed again and the reference's own pass come on top."""
    each = flops(config, load.length)
    tokens = load.rows * load.length
    layers = each.total - each.head
    again = each.head + (layers if config.remat != "none" else 0.0)
    return 3 * each.total * tokens, (3 * each.total + again + (each.total if load.reference else 0.0)) * tokens


def active_parameters(config: ModelConfig) -> int:
    """Weights that act on a token: of the experts only the chosen ones, of the embedding one row."""
    tree = declare(config)
    leaves = [*jax.tree.leaves(tree["blocks"]), tree["final_norm"]]
    return sum(_chosen(weight, config) for weight in leaves) + config.d_model * (config.vocab_size + 1)


def _active(weight: Weight, config: ModelConfig) -> int:
    return _chosen(weight, config) if weight.fan_in else 0


def _chosen(weight: Weight, config: ModelConfig) -> int:
    size = math.prod(weight.shape)
    return size // config.n_experts * config.experts_per_token if "expert" in weight.axes else size


# ---------------------------------------------------------------- what is held
def _bytes(config: ModelConfig) -> int:
    return jnp.dtype(config.dtype).itemsize


def _held(weights: Params, specs: Params, shape: MeshShape) -> int:
    """Parameters of which a device holds the numbers."""
    return sum(jax.tree.leaves(jax.tree.map(lambda w, s: math.prod(w.shape) // _parts(s, shape), weights, specs)))


def _parts(spec: PartitionSpec, shape: MeshShape) -> int:
    return math.prod(getattr(shape, axis) for axis in sharding.axes_of(spec))


# ---------------------------------------------------------------- what works
def _head(config: ModelConfig, load: Load, n: int) -> int:
    chunk, d, b = min(load.chunk, config.vocab_size), config.d_model, _bytes(config)
    return 3 * n * chunk * F32 + n * d * (F32 + 2 * b) + 2 * chunk * d * (b + F32)


def _layer(config: ModelConfig, shape: MeshShape, load: Load, position: int) -> int:
    """The backward pass of one layer: its whole weights and their gradients, the stream, and both halves, since what
    the mixer keeps waits while the MLP is differentiated."""
    n, b = load.rows * load.length // shape.devices, _bytes(config)
    layer = config.pattern[position]
    mixer = _attention(config, shape, load, n) if layer.mixer == "attention" else _deltanet(config, n)
    mlp = _experts(config, shape, load, n) if layer.mlp == "sparse" else 6 * n * config.d_ff * b
    return 2 * _gathered(config, shape, position) * b + 4 * n * config.d_model * (b + F32) + mixer + mlp


def _gathered(config: ModelConfig, shape: MeshShape, position: int) -> int:
    """Numbers in one layer's weights when they are whole, but for experts that live elsewhere."""
    leaves = jax.tree.leaves(declare(config)["blocks"][position])
    away = shape.expert if config.sparse else 1
    return sum(math.prod(w.shape[1:]) // (away if "expert" in w.axes else 1) for w in leaves)


def _attention(config: ModelConfig, shape: MeshShape, load: Load, n: int) -> int:
    c, b = config, _bytes(config)
    rows = -(-load.rows // shape.row_holders)
    queries = n * c.n_heads * c.head_dim * ((9 if c.attention_gate else 6) * b + F32)
    keys = 2 * n * shape.sequence * c.n_kv_heads * c.head_dim * (2 * b + F32)
    pair = min(attention_chunked.QUERIES, load.length) * min(attention_chunked.KEYS, load.length)
    return queries + keys + 4 * rows * c.n_heads * pair * F32


def _deltanet(config: ModelConfig, n: int) -> int:
    """All float32. Per token and value head: numbers of its own, and a row of each matrix of its chunk."""
    c = config
    streams = 2 * c.delta_key_heads * c.delta_key_dim + c.delta_value_heads * c.delta_value_dim
    head = 6 * c.delta_key_dim + 6 * c.delta_value_dim + 6 * CHUNK
    at_once = min(n * c.delta_value_heads, HEAD_TOKENS)
    return F32 * (8 * n * streams + 3 * at_once * head)


def _experts(config: ModelConfig, shape: MeshShape, load: Load, n: int) -> int:
    c, b = config, _bytes(config)
    k, d, f = c.experts_per_token, c.d_model, c.d_expert
    own = c.n_experts // shape.expert
    slots = n * k
    if shape.expert > 1:
        slots = rounds((n, k), shape.expert, own, load.capacity)[0] * shape.expert
    rows = slots + own * block_size(slots, own)
    shared = 6 * n * c.d_shared * b
    return rows * b * (6 * d + 6 * f) + 2 * n * k * d * b + own * 3 * d * f * F32 + shared


# ---------------------------------------------------------------- choices
def largest_length(config: ModelConfig, shape: MeshShape, load: Load, capacity_bytes: int, step: int = 1024) -> int:
    """The longest row, in steps of `step` per stretch, whose micro-batch fits; 0 if none does."""
    unit = step * shape.sequence
    limit = (config.max_length or 2**20) // unit

    def fits(i: int) -> bool:
        return memory(config, shape, replace(load, length=i * unit)).total <= capacity_bytes

    low, high = 0, limit + 1  # the memory of a step grows with its length
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * unit


def suggest(config: ModelConfig, devices: int, load: Load, capacity_bytes: int, node: int = 8) -> MeshShape:
    """A mesh on which one row per row-holder fits: stretches of about `STRETCH` tokens, experts spread over a node (its
    links are fast), weights over all. The one that needs least, if none fits.

    Raises MeshError when no mesh of so many devices divides the model.
    """
    found = []
    for shape in _shapes(devices):
        rows = shape.row_holders
        try:
            need = memory(config, shape, replace(load, rows=rows)).total
        except sharding.MeshError:
            continue
        fits = need <= capacity_bytes
        wish = abs(math.log2(load.length / shape.sequence / STRETCH)), abs(math.log2(shape.expert / node))
        found.append((not fits, *(wish if fits else (need, 0)), need, shape))
    if not found:
        raise sharding.MeshError(f"no mesh of {devices} devices divides {config.name} at {load.length} tokens")
    return min(found, key=lambda item: item[:-1])[-1]


def _shapes(devices: int) -> Iterator[MeshShape]:
    divisors = [i for i in range(1, devices + 1) if devices % i == 0]
    for expert in divisors:
        for sequence in divisors:
            if devices % (expert * sequence) == 0:
                yield MeshShape(fsdp=devices // (expert * sequence), sequence=sequence, expert=expert)
