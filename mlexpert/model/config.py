"""What a model is: one frozen record, and the presets that the project uses.

The layer pattern is the seam for other mixers: it names the mixer of each layer and repeats over the depth. Only
"attention" is built; "deltanet" (gated linear attention, three layers in four of Qwen3.6-35B-A3B) is declared so that
such a model is refused by name instead of being run as something else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

MIXERS = ("attention", "deltanet")
BUILT_MIXERS = ("attention",)


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of one model. `n_experts` 0 means a dense gated MLP of width `d_ff` in every layer."""

    name: str
    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int = 0
    n_experts: int = 0
    experts_per_token: int = 0
    d_expert: int = 0
    norm_topk_prob: bool = True  # router weights of the chosen experts sum to 1
    rope_theta: float = 1e6
    rms_eps: float = 1e-6
    tied_embedding: bool = False
    qk_norm_gain: float = 1.0  # initial gain of the query norm; above 1 a small model learns to copy names sooner
    layer_pattern: tuple[str, ...] = ("attention",)
    dtype: str = "float32"  # of weights and activations; norms, softmax and router always run in float32
    remat: bool = False  # recompute each layer in the backward pass

    def __post_init__(self) -> None:
        problems = {
            f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}": self.n_heads % self.n_kv_heads,
            f"head_dim {self.head_dim} is odd, rotary needs pairs": self.head_dim % 2,
            f"n_layers {self.n_layers} is not a multiple of layer_pattern {self.layer_pattern}": not self.layer_pattern
            or self.n_layers % len(self.layer_pattern),
            f"layer_pattern {self.layer_pattern} names a mixer outside {MIXERS}": set(self.layer_pattern) - set(MIXERS),
            "a sparse model needs 1 <= experts_per_token <= n_experts and d_expert >= 1": self.n_experts
            and not (1 <= self.experts_per_token <= self.n_experts and self.d_expert >= 1),
            "a dense model needs d_ff >= 1": not self.n_experts and self.d_ff < 1,
        }
        found = [text for text, wrong in problems.items() if wrong]
        if found:
            raise ValueError(f"ModelConfig {self.name!r}: " + "; ".join(found))

    @property
    def sparse(self) -> bool:
        return self.n_experts > 0


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

PRESETS: dict[str, ModelConfig] = {
    # Laptop policy, 5.5 M parameters of which 1.9 M act on a token, and its dense twin of the same active width.
    "tiny": _TINY,
    "tiny_dense": replace(_TINY, name="tiny_dense", d_ff=512, n_experts=0, experts_per_token=0, d_expert=0),
    # For tests and smoke runs: everything is there, nothing is large.
    "micro": replace(
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
    ),
    "qwen3_8b": ModelConfig(
        name="qwen3_8b",
        vocab_size=151_936,
        d_model=4096,
        n_layers=36,
        n_heads=32,
        n_kv_heads=8,
        head_dim=128,
        d_ff=12_288,
        dtype="bfloat16",
        remat=True,
    ),
    "qwen3_30b_a3b": ModelConfig(
        name="qwen3_30b_a3b",
        vocab_size=151_936,
        d_model=2048,
        n_layers=48,
        n_heads=32,
        n_kv_heads=4,
        head_dim=128,
        n_experts=128,
        experts_per_token=8,
        d_expert=768,
        dtype="bfloat16",
        remat=True,
    ),
    # Declared, not built: besides the linear mixer it has a shared expert, gated attention and partial rotary.
    "qwen3_6_35b_a3b": ModelConfig(
        name="qwen3_6_35b_a3b",
        vocab_size=248_320,
        d_model=2048,
        n_layers=40,
        n_heads=16,
        n_kv_heads=2,
        head_dim=256,
        n_experts=256,
        experts_per_token=8,
        d_expert=512,
        rope_theta=1e7,
        layer_pattern=("deltanet", "deltanet", "deltanet", "attention"),
        dtype="bfloat16",
        remat=True,
    ),
}


def preset(name: str, /, **overrides: Any) -> ModelConfig:
    """The named preset with fields replaced. Raises ValueError for an unknown name, TypeError for an unknown field."""
    if name not in PRESETS:
        raise ValueError(f"unknown model preset {name!r}; known: {', '.join(PRESETS)}")
    return replace(PRESETS[name], **overrides)


def require_built(config: ModelConfig) -> None:
    """Raises NotImplementedError when a layer's mixer is declared but not built."""
    missing = sorted(set(config.layer_pattern) - set(BUILT_MIXERS))
    if missing:
        raise NotImplementedError(
            f"model {config.name!r} has {', '.join(missing)} layers, which are not built; "
            "choose a model with attention in every layer"
        )
