"""The weights of one layer of each kind: shapes, axes, initial spread and where a Hugging Face folder keeps them.

Letters as in the code that uses them: D model, H and G query and key heads of width K, F hidden width, E experts.
"""

from __future__ import annotations

from mlexpert.model import lora
from mlexpert.model.config import Layer, ModelConfig
from mlexpert.model.sources import Source
from mlexpert.model.weights import Params, Stack, Weight


def block(config: ModelConfig, position: int) -> Params:
    """The layers at `position` of the pattern."""
    stack, layer = Stack(config, position), config.pattern[position]
    d = config.d_model
    weights = {
        "mixer_norm": stack.gain("input_layernorm.weight", d, "model"),
        layer.mixer: _attention(stack) if layer.mixer == "attention" else _deltanet(stack),
        "mlp_norm": stack.gain("post_attention_layernorm.weight", d, "model"),
        **_after_mixer(stack, layer),
    }
    return weights | ({"lora": lora.declare(weights, config.lora)} if config.lora else {})


def _after_mixer(stack: Stack, layer: Layer) -> Params:
    c = stack.config
    if layer.mlp == "dense":
        return {"mlp": _mlp(stack, "mlp", c.d_ff)}
    return {"moe": _moe(stack)} | ({"shared": _shared(stack)} if c.d_shared else {})


# ---------------------------------------------------------------- attention
def _attention(stack: Stack) -> Params:
    """With a gate, the stored q_proj makes [query, gate] for each head."""
    c = stack.config
    h, g, k = c.n_heads, c.n_kv_heads, c.head_dim
    wide = 2 * k if c.attention_gate else k
    output = Source("self_attn.o_proj.weight", (c.d_model, h * k), (1, 2, 0))
    weights = {
        "query": _heads(stack, "q_proj", h, "head", (0, k), wide),
        "key": _heads(stack, "k_proj", g, "kv_head", (0, k), k),
        "value": _heads(stack, "v_proj", g, "kv_head", (0, k), k),
        "output": stack.matrix((h, k, c.d_model), ("head", "head_dim", "model"), 2, output, residual=True),
    }
    if c.attention_gate:
        weights["gate"] = _heads(stack, "q_proj", h, "head", (k, wide), wide)
    if c.qk_norm:
        weights["query_norm"] = stack.gain("self_attn.q_norm.weight", k, "head_dim", c.qk_norm_gain)
        weights["key_norm"] = stack.gain("self_attn.k_norm.weight", k, "head_dim")
    return weights | _attention_biases(stack, wide)


def _attention_biases(stack: Stack, wide: int) -> Params:
    c = stack.config
    h, g, k = c.n_heads, c.n_kv_heads, c.head_dim
    biases: Params = {}
    if c.qkv_bias:
        biases["query_bias"] = _head_bias(stack, "q_proj", h, "head", (0, k), wide)
        biases["key_bias"] = _head_bias(stack, "k_proj", g, "kv_head", (0, k), k)
        biases["value_bias"] = _head_bias(stack, "v_proj", g, "kv_head", (0, k), k)
        if c.attention_gate:
            biases["gate_bias"] = _head_bias(stack, "q_proj", h, "head", (k, wide), wide)
    if c.output_bias:
        biases["output_bias"] = stack.vector("self_attn.o_proj.bias", c.d_model, "model", ("constant", 0.0))
    return biases


def _heads(stack: Stack, name: str, heads: int, axis: str, part: tuple[int, int], wide: int) -> Weight:
    c = stack.config
    view = (heads, wide, c.d_model)
    source = Source(f"self_attn.{name}.weight", (heads * wide, c.d_model), (2, 0, 1), view, 1, part)
    return stack.matrix((c.d_model, heads, c.head_dim), ("model", axis, "head_dim"), 1, source)


def _head_bias(stack: Stack, name: str, heads: int, axis: str, part: tuple[int, int], wide: int) -> Weight:
    source = Source(f"self_attn.{name}.bias", (heads * wide,), (0, 1), (heads, wide), 1, part)
    return stack.weight((heads, stack.config.head_dim), (axis, "head_dim"), ("constant", 0.0), source)


# ---------------------------------------------------------------- deltanet
def _deltanet(stack: Stack) -> Params:
    c = stack.config
    key, value = (c.delta_key_heads, c.delta_key_dim), (c.delta_value_heads, c.delta_value_dim)
    n_key, n_value = key[0] * key[1], value[0] * value[1]
    output = Source("linear_attn.out_proj.weight", (c.d_model, n_value), (1, 2, 0))
    axes = ("delta_value_head", "delta_dim")
    return {
        **(_interleaved_inputs(stack) if c.family == "qwen3_next" else _plain_inputs(stack)),
        "query_conv": _taps(stack, key, "delta_key_head", 0),
        "key_conv": _taps(stack, key, "delta_key_head", n_key),
        "value_conv": _taps(stack, value, "delta_value_head", 2 * n_key),
        "decay_rate": stack.vector(
            "linear_attn.A_log", value[0], "delta_value_head", ("log_uniform", 16.0), dtype="float32"
        ),
        "decay_bias": stack.vector(
            "linear_attn.dt_bias", value[0], "delta_value_head", ("constant", 1.0), dtype="float32"
        ),
        "norm": stack.vector("linear_attn.norm.weight", value[1], "delta_dim", ("constant", 1.0)),
        "output": stack.matrix((*value, c.d_model), (*axes, "model"), 2, output, residual=True),
    }


def _plain_inputs(stack: Stack) -> Params:
    """Three projections in one tensor, one after the other, and three in their own."""
    c = stack.config
    d, key, value = c.d_model, (c.delta_key_heads, c.delta_key_dim), (c.delta_value_heads, c.delta_value_dim)
    n_key, n_value = key[0] * key[1], value[0] * value[1]

    def cut(start: int, n: int) -> Source:
        stored = (2 * n_key + n_value, d)
        return Source("linear_attn.in_proj_qkv.weight", stored, (2, 0, 1), axis=0, part=(start, start + n))

    gate = Source("linear_attn.in_proj_z.weight", (n_value, d), (2, 0, 1))
    per_head = ("model", "delta_value_head")
    return {
        "query": stack.matrix((d, *key), ("model", "delta_key_head", "delta_dim"), 1, cut(0, n_key)),
        "key": stack.matrix((d, *key), ("model", "delta_key_head", "delta_dim"), 1, cut(n_key, n_key)),
        "value": stack.matrix((d, *value), (*per_head, "delta_dim"), 1, cut(2 * n_key, n_value)),
        "gate": stack.matrix((d, *value), (*per_head, "delta_dim"), 1, gate),
        "write": stack.linear("linear_attn.in_proj_b.weight", (d, value[0]), per_head),
        "decay": stack.linear("linear_attn.in_proj_a.weight", (d, value[0]), per_head),
    }


def _interleaved_inputs(stack: Stack) -> Params:
    """Two tensors, each grouped by key head: [query, key, its values, their gates] and [its writes, their decays]."""
    c = stack.config
    d, key, value = c.d_model, (c.delta_key_heads, c.delta_key_dim), (c.delta_value_heads, c.delta_value_dim)
    repeats = value[0] // key[0]
    ends = (0, key[1], 2 * key[1], 2 * key[1] + repeats * value[1], 2 * key[1] + 2 * repeats * value[1])

    def cut(name: str, width: int, part: tuple[int, int], order: tuple[int, ...]) -> Source:
        return Source(f"linear_attn.{name}.weight", (key[0] * width, d), order, (key[0], width, d), 1, part)

    wide = [cut("in_proj_qkvz", ends[4], (ends[i], ends[i + 1]), (2, 0, 1)) for i in range(4)]
    thin = [cut("in_proj_ba", 2 * repeats, (i * repeats, (i + 1) * repeats), (1, 0)) for i in range(2)]
    per_head = ("model", "delta_value_head")
    return {
        "query": stack.matrix((d, *key), ("model", "delta_key_head", "delta_dim"), 1, wide[0]),
        "key": stack.matrix((d, *key), ("model", "delta_key_head", "delta_dim"), 1, wide[1]),
        "value": stack.matrix((d, *value), (*per_head, "delta_dim"), 1, wide[2]),
        "gate": stack.matrix((d, *value), (*per_head, "delta_dim"), 1, wide[3]),
        "write": stack.matrix((d, value[0]), per_head, 1, thin[0]),
        "decay": stack.matrix((d, value[0]), per_head, 1, thin[1]),
    }


def _taps(stack: Stack, heads: tuple[int, int], axis: str, start: int) -> Weight:
    """Depthwise taps, oldest token first, of the channels from `start` on."""
    c = stack.config
    channels = 2 * c.delta_key_heads * c.delta_key_dim + c.delta_value_heads * c.delta_value_dim
    part = (start, start + heads[0] * heads[1])
    source = Source(
        *("linear_attn.conv1d.weight", (channels, 1, c.delta_conv), (2, 0, 1)),
        *((channels, c.delta_conv), 0, part),
    )
    init = ("normal", c.delta_conv**-0.5)
    return stack.weight((c.delta_conv, *heads), ("conv", axis, "delta_dim"), init, source)


# ---------------------------------------------------------------- MLPs
def _mlp(stack: Stack, name: str, width: int) -> Params:
    d = stack.config.d_model
    return {
        "gate": stack.linear(f"{name}.gate_proj.weight", (d, width), ("model", "ff")),
        "up": stack.linear(f"{name}.up_proj.weight", (d, width), ("model", "ff")),
        "down": stack.linear(f"{name}.down_proj.weight", (width, d), ("ff", "model"), residual=True),
    }


def _shared(stack: Stack) -> Params:
    """The expert that every token goes through, scaled by a sigmoid of the token."""
    d = stack.config.d_model
    share = Source("mlp.shared_expert_gate.weight", (1, d), (0,), (d,))
    return {
        **_mlp(stack, "mlp.shared_expert", stack.config.d_shared),
        "share": stack.weight((d,), ("model",), ("normal", d**-0.5), share),
    }


def _moe(stack: Stack) -> Params:
    """Experts are stored one by one, or in two tensors a layer with gate and up in one."""
    c = stack.config
    e, d, f = c.n_experts, c.d_model, c.d_expert

    def expert(name: str, shape: tuple[int, int], fused: Source) -> tuple[Source, Source]:
        return Source(f"mlp.experts.{{expert}}.{name}.weight", shape[::-1], (1, 0)), fused

    def half(start: int) -> Source:
        return Source("mlp.experts.gate_up_proj", (e, 2 * f, d), (0, 2, 1), axis=1, part=(start, start + f))

    into, out_of = ("expert", "model", "ff"), ("expert", "ff", "model")
    whole = Source("mlp.experts.down_proj", (e, d, f), (0, 2, 1))
    return {
        "router": stack.linear("mlp.gate.weight", (d, e), ("model", "router")),
        "gate": stack.matrix((e, d, f), into, 1, *expert("gate_proj", (d, f), half(0))),
        "up": stack.matrix((e, d, f), into, 1, *expert("up_proj", (d, f), half(f))),
        "down": stack.matrix((e, f, d), out_of, 1, *expert("down_proj", (f, d), whole), residual=True),
    }
