"""config.json of a Hugging Face folder <-> ModelConfig.

Read: every renamed field in both spellings (two that disagree are an error), text_config of a multimodal folder, and
the value that the model's class takes where a file leaves a field out. What this project cannot compute (a sliding
window, another activation, quantised weights, an unknown rotary scaling) is refused by name, never read past.
Written: both spellings, so that older and newer programs find what they look for. Reading back what was written gives
the same model, or it is not written.

Source: the configuration classes of transformers 5.24.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlexpert.model.config import FAMILIES, Layer, ModelConfig, RopeScaling, smallest_pattern
from mlexpert.model.tensors import ModelFileError

DTYPES = ("float32", "bfloat16", "float16")
_MIXERS = {"full_attention": "attention", "linear_attention": "deltanet"}
_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
}
_SPARSE = ("qwen3_moe", "qwen3_next", "qwen3_5_moe")
_HYBRID = ("qwen3_next", "qwen3_5", "qwen3_5_moe")
_SHARED = ("qwen3_next", "qwen3_5_moe")
_NOT_IN_THE_FILE = ("name", "qk_norm_gain", "remat", "layer_pattern")


def read_config(folder: Path) -> ModelConfig:
    """The model that `folder`/config.json describes. Raises ModelFileError."""
    return from_json(read_json(folder / "config.json"), folder.name, str(folder / "config.json"))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ModelFileError."""
    if not path.is_file():
        raise ModelFileError(f"{path} does not exist; a Hugging Face folder has config.json and *.safetensors")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelFileError(f"{path} is no JSON ({error}); fetch it again") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} holds a {type(value).__name__}, expected an object")
    return value


def from_json(raw: Mapping[str, Any], name: str, where: str) -> ModelConfig:
    """The model that the fields `raw` describe; `where` stands in front of messages. Raises ModelFileError."""
    fields = _Fields({**raw, **(raw.get("text_config") or {})}, where)
    family = str(fields.get("model_type", default="missing")).removesuffix("_text")
    if family not in FAMILIES:
        raise ModelFileError(
            f"{where}: model_type is {fields.get('model_type', default='missing')!r}; known are {', '.join(FAMILIES)} "
            "(those of 3.5 also with _text)"
        )
    _refuse(fields, family)
    try:
        return ModelConfig(name=name, family=family, **_core(fields, family), **_family_fields(fields, family))
    except ValueError as error:
        raise error if isinstance(error, ModelFileError) else ModelFileError(f"{where}: {error}") from error


def to_json(config: ModelConfig) -> dict[str, Any]:
    """The fields of config.json. Raises ModelFileError for a model that its family's file cannot describe."""
    layers = [config.pattern[i % len(config.pattern)] for i in range(config.n_layers)]
    raw = _written_core(config) | _written_rope(config)
    if config.family in _SPARSE:
        raw |= _written_experts(config, layers)
    if config.family in _HYBRID:
        raw |= _written_deltanet(config, layers)
    back = from_json(raw, config.name, "config.json")
    for name in ("pattern", *(field.name for field in dataclasses.fields(ModelConfig))):
        now, then = getattr(config, name), getattr(back, name)
        if now != then and name not in _NOT_IN_THE_FILE and (name, now) != _UNKNOWN_LENGTH:
            raise ModelFileError(
                f"model {config.name!r}: config.json of family {config.family} cannot say {name}={now!r} "
                f"(it would be read as {then!r}); choose the family that has it"
            )
    return raw


class _Fields:
    """The fields of one config.json, by any of their spellings."""

    def __init__(self, raw: Mapping[str, Any], where: str):
        self.raw, self.where = raw, where

    def get(self, *spellings: str, default: Any = ...) -> Any:
        found = {name: self.raw[name] for name in spellings if self.raw.get(name) is not None}
        values = list(found.values())
        if any(value != values[0] for value in values):
            raise ModelFileError(f"{self.where}: {found} are two names of one field and must agree")
        if not values and default is ...:
            raise ModelFileError(f"{self.where}: {' or '.join(spellings)} is missing")
        return values[0] if values else default

    def integer(self, *spellings: str, default: Any = ...) -> int:
        value = self.get(*spellings, default=default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ModelFileError(f"{self.where}: {spellings[0]} is {value!r}, expected a whole number")
        return value

    def number(self, *spellings: str, default: Any = ...) -> float:
        value = self.get(*spellings, default=default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ModelFileError(f"{self.where}: {spellings[0]} is {value!r}, expected a number")
        return float(value)


# ---------------------------------------------------------------- reading
def _refuse(fields: _Fields, family: str) -> None:
    window = fields.get("use_sliding_window", default=False) and fields.get("sliding_window", default=None)
    types = fields.get("layer_types", default=[])
    known = ("full_attention", "linear_attention") if family in _HYBRID else ("full_attention",)
    foreign = sorted(set(types) - set(known))
    dtype = fields.get("dtype", "torch_dtype", default="float32")
    checks = {
        f"hidden_act is {fields.get('hidden_act', default='silu')!r}, only silu is built": fields.get(
            "hidden_act", default="silu"
        )
        != "silu",
        f"layer_types has {', '.join(foreign)}, a {family} model has {', '.join(known)}": foreign,
        f"use_sliding_window with a window of {window} is not built": window and not types,
        "mlp_bias is not built": fields.get("mlp_bias", default=False),
        "the weights are quantised (quantization_config); take the bfloat16 release": fields.get(
            "quantization_config", default=None
        ),
        f"dtype is {dtype!r}, known are {', '.join(DTYPES)}": dtype not in DTYPES,
    }
    found = [text for text, wrong in checks.items() if wrong]
    if found:
        raise ModelFileError(f"{fields.where}: {'; '.join(found)}")


def _core(fields: _Fields, family: str) -> dict[str, Any]:
    """What every family has."""
    heads, d_model = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    usual = {"qwen3": 128, "qwen3_next": 256, "qwen3_5": 256, "qwen3_5_moe": 256}.get(family, d_model // max(heads, 1))
    head_dim = fields.integer("head_dim", default=usual)
    return dict(
        vocab_size=fields.integer("vocab_size"),
        d_model=d_model,
        n_layers=fields.integer("num_hidden_layers"),
        n_heads=heads,
        n_kv_heads=fields.integer("num_key_value_heads", default=heads),
        head_dim=head_dim,
        rms_eps=fields.number("rms_norm_eps", default=1e-6),
        tied_embedding=bool(fields.get("tie_word_embeddings", default=False)),
        max_length=fields.integer("max_position_embeddings", default=0),
        dtype=fields.get("dtype", "torch_dtype", default="float32"),
        **_rope(fields, family, head_dim),
    )


def _family_fields(fields: _Fields, family: str) -> dict[str, Any]:
    bias = bool(fields.get("attention_bias", default=False))
    layers = _layers(fields, family)
    pattern = smallest_pattern(layers)
    found: dict[str, Any] = dict(
        layer_pattern=() if len(pattern) == 1 and pattern[0].mixer == "attention" else pattern,
        qkv_bias=family == "qwen2" or bias,
        output_bias=family != "qwen2" and bias,
        attention_gate=family in _HYBRID,
        qk_norm=family not in ("llama", "qwen2"),
        norm="one_plus" if family in _HYBRID else "scale",
    )
    if any(layer.mlp == "dense" for layer in layers):
        found["d_ff"] = fields.integer("intermediate_size")
    if any(layer.mlp == "sparse" for layer in layers):
        found |= _experts(fields, family)
    if any(layer.mixer == "deltanet" for layer in layers):
        found |= dict(
            delta_key_heads=fields.integer("linear_num_key_heads", default=16),
            delta_value_heads=fields.integer("linear_num_value_heads", default=32),
            delta_key_dim=fields.integer("linear_key_head_dim", default=128),
            delta_value_dim=fields.integer("linear_value_head_dim", default=128),
            delta_conv=fields.integer("linear_conv_kernel_dim", default=4),
        )
    return found


def _experts(fields: _Fields, family: str) -> dict[str, Any]:
    return dict(
        n_experts=fields.integer("num_experts", "num_local_experts"),
        experts_per_token=fields.integer("num_experts_per_tok"),
        d_expert=fields.integer("moe_intermediate_size"),
        d_shared=fields.integer("shared_expert_intermediate_size", default=512) if family in _SHARED else 0,
        # Qwen3.5 always renormalises; the others' classes differ in what a missing field means.
        norm_topk_prob=family == "qwen3_5_moe" or bool(fields.get("norm_topk_prob", default=family == "qwen3_next")),
    )


def _layers(fields: _Fields, family: str) -> list[Layer]:
    n = fields.integer("num_hidden_layers")
    mixers = ["attention"] * n
    if family in _HYBRID:
        every = max(fields.integer("full_attention_interval", default=4), 1)
        usual = ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(n)]
        mixers = [_MIXERS[kind] for kind in fields.get("layer_types", default=usual)]
    if len(mixers) != n or n < 1:
        raise ModelFileError(f"{fields.where}: num_hidden_layers is {n}, layer_types names {len(mixers)}")
    return [Layer(mixer, _mlp(fields, family, i)) for i, mixer in enumerate(mixers)]


def _mlp(fields: _Fields, family: str, layer: int) -> str:
    if family not in _SPARSE:
        return "dense"
    if family == "qwen3_5_moe":
        return "sparse"
    step = max(fields.integer("decoder_sparse_step", default=1), 1)
    dense = layer in fields.get("mlp_only_layers", default=[]) or (layer + 1) % step
    return "dense" if dense or not fields.integer("num_experts", "num_local_experts") else "sparse"


def _rope(fields: _Fields, family: str, head_dim: int) -> dict[str, Any]:
    new = fields.get("rope_parameters", default={})
    old = fields.get("rope_scaling", default={})
    top = {name: fields.raw.get(name) for name in ("rope_theta", "partial_rotary_factor")}
    rope = _Fields({**{name: value for name, value in top.items() if value is not None}, **old, **new}, fields.where)
    share = rope.number("partial_rotary_factor", default=0.25 if family in _HYBRID else 1.0)
    return dict(
        rope_theta=rope.number("rope_theta", default=1e4),
        rotary_dim=0 if share == 1.0 else int(head_dim * share),
        rope_scaling=_scaling(rope, fields.integer("max_position_embeddings", default=0)),
    )


def _scaling(rope: _Fields, max_length: int) -> RopeScaling | None:
    kind = rope.get("rope_type", "type", default="default")
    if kind in ("default", "mrope"):  # text has one position per token: the three of mrope coincide
        return None
    unbuilt = [name for name in ("mscale", "mscale_all_dim", "truncate") if rope.get(name, default=None) is not None]
    if kind not in ("linear", "llama3", "yarn") or unbuilt:
        detail = f" with {', '.join(unbuilt)}" if unbuilt else ""
        raise ModelFileError(f"{rope.where}: rotary scaling {kind!r}{detail} is not built: linear, llama3 and yarn are")
    factor = rope.number("factor")
    if kind == "linear":
        return RopeScaling("linear", factor)
    length = rope.integer("original_max_position_embeddings", default=max_length)
    if kind == "llama3":
        return RopeScaling(kind, factor, length, rope.number("low_freq_factor"), rope.number("high_freq_factor"))
    slow, fast = rope.number("beta_slow", default=1.0), rope.number("beta_fast", default=32.0)
    return RopeScaling(kind, factor, length, slow, fast, rope.number("attention_factor", default=0.0))


# ---------------------------------------------------------------- writing
_UNKNOWN_LENGTH = ("max_length", 0)  # written as the classes' own default


def _written_core(config: ModelConfig) -> dict[str, Any]:
    text = "_text" if config.family.startswith("qwen3_5") else ""
    return dict(
        architectures=[_ARCHITECTURES[config.family]],
        model_type=config.family + text,
        dtype=config.dtype,
        torch_dtype=config.dtype,
        vocab_size=config.vocab_size,
        hidden_size=config.d_model,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
        num_key_value_heads=config.n_kv_heads,
        head_dim=config.head_dim,
        intermediate_size=config.d_ff or config.d_expert,
        hidden_act="silu",
        rms_norm_eps=config.rms_eps,
        attention_bias=config.qkv_bias,
        attention_dropout=0.0,
        tie_word_embeddings=config.tied_embedding,
        max_position_embeddings=config.max_length or 32_768,
        initializer_range=0.02,
        use_cache=True,
    )


def _written_rope(config: ModelConfig) -> dict[str, Any]:
    parameters: dict[str, Any] = dict(rope_type="default", rope_theta=config.rope_theta)
    top: dict[str, Any] = dict(rope_theta=config.rope_theta)
    if config.family in _HYBRID:
        share = (config.rotary_dim or config.head_dim) / config.head_dim
        parameters["partial_rotary_factor"] = top["partial_rotary_factor"] = share
    scaling = config.rope_scaling
    if scaling is not None:
        found: dict[str, Any] = dict(rope_type=scaling.kind, factor=scaling.factor)
        if scaling.kind != "linear":
            found["original_max_position_embeddings"] = scaling.original_length
        if scaling.kind == "llama3":
            found |= dict(low_freq_factor=scaling.low, high_freq_factor=scaling.high)
        if scaling.kind == "yarn":
            found |= dict(beta_slow=scaling.low, beta_fast=scaling.high)
            found |= dict(attention_factor=scaling.attention_factor) if scaling.attention_factor else {}
        parameters |= found
        top["rope_scaling"] = found
    return top | dict(rope_parameters=parameters)


def _written_experts(config: ModelConfig, layers: Iterable[Layer]) -> dict[str, Any]:
    found: dict[str, Any] = dict(
        num_experts=config.n_experts,
        num_local_experts=config.n_experts,
        num_experts_per_tok=config.experts_per_token,
        moe_intermediate_size=config.d_expert,
        norm_topk_prob=config.norm_topk_prob,
    )
    if config.family in _SHARED:
        found["shared_expert_intermediate_size"] = config.d_shared
    if config.family != "qwen3_5_moe":
        dense = [i for i, layer in enumerate(layers) if layer.mlp == "dense"]
        found |= dict(mlp_only_layers=dense, decoder_sparse_step=1)
    return found


def _written_deltanet(config: ModelConfig, layers: list[Layer]) -> dict[str, Any]:
    kinds = {mixer: kind for kind, mixer in _MIXERS.items()}
    found: dict[str, Any] = dict(
        layer_types=[kinds[layer.mixer] for layer in layers],
        linear_num_key_heads=config.delta_key_heads,
        linear_num_value_heads=config.delta_value_heads,
        linear_key_head_dim=config.delta_key_dim,
        linear_value_head_dim=config.delta_value_dim,
        linear_conv_kernel_dim=config.delta_conv,
    )
    mixers = [layer.mixer for layer in layers]
    every = mixers.index("attention") + 1 if "attention" in mixers else 0
    if every and all((mixer == "attention") == ((i + 1) % every == 0) for i, mixer in enumerate(mixers)):
        found["full_attention_interval"] = every
    return found
