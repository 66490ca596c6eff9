"""What a model is: one frozen record for all families, and the presets that the project uses.

A layer is a mixer ("attention", or "deltanet": the gated delta rule) and an MLP ("dense", or "sparse": experts). The
layers of a model repeat a pattern, the smallest one that does: weights are stacked, and the depth scanned, over its
repetitions. What differs between families is said by fields, never asked of the family's name; the family decides only
how weights are called and laid out in a Hugging Face folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

MIXERS = ("attention", "deltanet")
MLPS = ("dense", "sparse")
FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe")
NORMS = ("scale", "one_plus")
REMATS = ("none", "layer", "matrices")


class Layer(NamedTuple):
    mixer: str
    mlp: str


@dataclass(frozen=True)
class RopeScaling:
    """How rotary angles are stretched to contexts longer than `original_length` (see rotary.py)."""

    kind: str  # "linear", "llama3" or "yarn"
    factor: float
    original_length: int = 0
    low: float = 0.0  # llama3: low_freq_factor; yarn: beta_slow (turns over the original length)
    high: float = 0.0  # llama3: high_freq_factor; yarn: beta_fast
    attention_factor: float = 0.0  # yarn: on cosine and sine; 0: 0.1 ln(factor) + 1


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters (Hu et al. 2022): each targeted matrix W acts as W + alpha / rank * A B, and only A and B are
    trained. A target is "attention.query" or, for all matrices of its kind but a router, "attention"."""

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = ("attention", "deltanet", "mlp", "shared")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of one model. Raises ValueError when they do not fit together."""

    name: str
    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    family: str = "qwen3_moe"
    layer_pattern: tuple[Layer, ...] = ()  # empty: attention in every layer, experts if there are any
    # MLPs: dense layers have width d_ff; sparse ones n_experts of width d_expert and, if d_shared, one for every token
    d_ff: int = 0
    n_experts: int = 0
    experts_per_token: int = 0
    d_expert: int = 0
    d_shared: int = 0
    norm_topk_prob: bool = True  # router weights of the chosen experts sum to 1
    # attention
    qkv_bias: bool = False
    output_bias: bool = False
    attention_gate: bool = False  # a sigmoid gate per head and channel, computed beside the query
    qk_norm: bool = True
    qk_norm_gain: float = 1.0  # initial gain of the query norm; above 1 a small model learns to copy names sooner
    rotary_dim: int = 0  # the first channels of a head, which rotate; 0: all
    rope_theta: float = 1e6
    rope_scaling: RopeScaling | None = None
    # deltanet
    delta_key_heads: int = 0
    delta_value_heads: int = 0
    delta_key_dim: int = 0
    delta_value_dim: int = 0
    delta_conv: int = 4  # taps of the causal convolution
    # the rest
    norm: str = "scale"  # "scale": cast, then times w; "one_plus": times 1 + w, then cast
    rms_eps: float = 1e-6
    tied_embedding: bool = False
    max_length: int = 0  # positions the model was made for; 0: unknown
    dtype: str = "float32"  # of weights and activations; norms, softmax, router and delta rule always run in float32
    remat: str = "none"  # what the backward pass finds: all, each layer's input, or that and its matrix products
    lora: Lora | None = None

    def __post_init__(self) -> None:
        found = list(_faults(self))
        if found:
            raise ValueError(f"ModelConfig {self.name!r}: " + "; ".join(found))

    @property
    def pattern(self) -> tuple[Layer, ...]:
        return self.layer_pattern or (Layer("attention", "sparse" if self.n_experts else "dense"),)

    @property
    def n_blocks(self) -> int:
        """Repetitions of the pattern: layer `b * len(pattern) + p` is position p of block b."""
        return self.n_layers // len(self.pattern)

    @property
    def sparse(self) -> bool:
        return any(layer.mlp == "sparse" for layer in self.pattern)

    @property
    def hybrid(self) -> bool:
        return any(layer.mixer == "deltanet" for layer in self.pattern)


def smallest_pattern(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The shortest pattern that gives `layers` when repeated; the whole list if nothing shorter does."""
    n = len(layers)
    period = next(p for p in range(1, n + 1) if n % p == 0 and all(layers[i] == layers[i % p] for i in range(n)))
    return tuple(layers[:period])


def _faults(c: ModelConfig) -> Iterator[str]:
    kinds = {layer.mlp for layer in c.pattern}
    checks = {
        f"family {c.family!r} is not one of {', '.join(FAMILIES)}": c.family not in FAMILIES,
        f"norm {c.norm!r} is not one of {', '.join(NORMS)}": c.norm not in NORMS,
        f"remat {c.remat!r} is not one of {', '.join(REMATS)}": c.remat not in REMATS,
        f"n_heads {c.n_heads} is not a multiple of n_kv_heads {c.n_kv_heads}": c.n_heads % c.n_kv_heads,
        f"head_dim {c.head_dim} is odd, rotary needs pairs": c.head_dim % 2,
        f"rotary_dim {c.rotary_dim} is odd or above head_dim {c.head_dim}": c.rotary_dim % 2
        or c.rotary_dim > c.head_dim,
        "a sparse layer needs 1 <= experts_per_token <= n_experts and d_expert >= 1": "sparse" in kinds
        and not (1 <= c.experts_per_token <= c.n_experts and c.d_expert >= 1),
        "a dense layer needs d_ff >= 1": "dense" in kinds and c.d_ff < 1,
    }
    yield from (text for text, wrong in checks.items() if wrong)
    yield from _pattern_faults(c)
    if c.lora and (c.lora.rank < 1 or c.lora.alpha <= 0 or not c.lora.targets):
        yield f"{c.lora} needs rank >= 1, alpha > 0 and targets"
    if c.hybrid:
        sizes = (c.delta_key_heads, c.delta_value_heads, c.delta_key_dim, c.delta_value_dim, c.delta_conv - 1)
        if min(sizes) < 1 or c.delta_value_heads % c.delta_key_heads:
            yield "a deltanet layer needs delta_key_heads, delta_value_heads (a multiple), both dims, delta_conv >= 2"


def _pattern_faults(c: ModelConfig) -> Iterator[str]:
    pattern = c.pattern
    foreign = [layer for layer in pattern if layer[0] not in MIXERS or layer[1] not in MLPS]
    if foreign:
        yield f"layer_pattern has {foreign[0]}: a layer is a mixer of {MIXERS} and an MLP of {MLPS}"
    elif c.n_layers < 1 or c.n_layers % len(pattern):
        yield f"n_layers {c.n_layers} is not a multiple of the {len(pattern)} layers of layer_pattern"
    elif smallest_pattern(pattern) != pattern:
        yield f"layer_pattern repeats itself: give {smallest_pattern(pattern)}"


_TINY = ModelConfig(
    name="tiny",
    vocab_size=1536,
    d_model=192,
    n_layers=4,
    n_heads=6,
    n_kv_heads=2,
    head_dim=32,
    n_experts=8,
    experts_per_token=2,
    d_expert=256,
    rope_theta=1e4,
    tied_embedding=True,
    qk_norm_gain=1.5,
)
_MICRO = replace(
    _TINY,
    name="micro",
    vocab_size=256,
    d_model=32,
    n_layers=2,
    n_heads=4,
    n_kv_heads=2,
    head_dim=8,
    n_experts=4,
    d_expert=32,
)
_THREE_TO_ONE = (*[Layer("deltanet", "sparse")] * 3, Layer("attention", "sparse"))

PRESETS: dict[str, ModelConfig] = {
    # Laptop policy, 5.4 M parameters of which 1.9 M act on a token, and its dense twin of the same active width.
    "tiny": _TINY,
    "tiny_dense": replace(
        _TINY, name="tiny_dense", family="qwen3", d_ff=512, n_experts=0, experts_per_token=0, d_expert=0
    ),
    # For tests and smoke runs: everything is there, nothing is large.
    "micro": _MICRO,
    "micro_hybrid": replace(
        _MICRO,
        name="micro_hybrid",
        family="qwen3_5_moe",
        n_layers=4,
        layer_pattern=(Layer("deltanet", "sparse"), Layer("attention", "sparse")),
        d_shared=16,
        attention_gate=True,
        rotary_dim=4,
        delta_key_heads=2,
        delta_value_heads=4,
        delta_key_dim=8,
        delta_value_dim=8,
        norm="one_plus",
    ),
    "qwen3_8b": ModelConfig(
        name="qwen3_8b",
        family="qwen3",
        vocab_size=151_936,
        d_model=4096,
        n_layers=36,
        n_heads=32,
        n_kv_heads=8,
        head_dim=128,
        d_ff=12_288,
        max_length=40_960,
        dtype="bfloat16",
        remat="layer",
    ),
    "qwen3_30b_a3b": ModelConfig(
        name="qwen3_30b_a3b",
        family="qwen3_moe",
        vocab_size=151_936,
        d_model=2048,
        n_layers=48,
        n_heads=32,
        n_kv_heads=4,
        head_dim=128,
        n_experts=128,
        experts_per_token=8,
        d_expert=768,
        max_length=40_960,
        dtype="bfloat16",
        remat="layer",
    ),
    "qwen3_6_35b_a3b": ModelConfig(
        name="qwen3_6_35b_a3b",
        family="qwen3_5_moe",
        vocab_size=248_320,
        d_model=2048,
        n_layers=40,
        layer_pattern=_THREE_TO_ONE,
        n_heads=16,
        n_kv_heads=2,
        head_dim=256,
        n_experts=256,
        experts_per_token=8,
        d_expert=512,
        d_shared=512,
        attention_gate=True,
        rotary_dim=64,
        rope_theta=1e7,
        delta_key_heads=16,
        delta_value_heads=32,
        delta_key_dim=128,
        delta_value_dim=128,
        norm="one_plus",
        max_length=262_144,
        dtype="bfloat16",
        remat="layer",
    ),
}


def preset(name: str, /, **overrides: Any) -> ModelConfig:
    """The named preset with fields replaced. Raises ValueError for an unknown name, TypeError for an unknown field."""
    if name not in PRESETS:
        raise ValueError(f"unknown model preset {name!r}; known: {', '.join(PRESETS)}")
    return replace(PRESETS[name], **overrides)
