"""One small model of each family, with everything that sets the family apart switched on."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from mlexpert.model import params
from mlexpert.model.config import Layer, ModelConfig, RopeScaling

_SIZES = dict(vocab_size=128, d_model=64, n_layers=4, n_heads=4, n_kv_heads=2, head_dim=16, max_length=128)
_EXPERTS = dict(n_experts=8, experts_per_token=2, d_expert=32)
_DELTANET = dict(
    delta_key_heads=2,
    delta_value_heads=4,
    delta_key_dim=16,
    delta_value_dim=16,
    attention_gate=True,
    rotary_dim=4,
    norm="one_plus",
)


def _hybrid(mlp):
    return (*[Layer("deltanet", mlp)] * 3, Layer("attention", mlp))


def _model(family, **fields):
    return ModelConfig(name=family, family=family, **(_SIZES | fields))


FAMILIES = {
    "llama": _model(
        "llama", d_ff=128, qk_norm=False, tied_embedding=True, rope_scaling=RopeScaling("llama3", 8.0, 16, 1.0, 4.0)
    ),
    "qwen2": _model("qwen2", d_ff=128, qk_norm=False, qkv_bias=True),
    "qwen3": _model("qwen3", d_ff=128, rope_scaling=RopeScaling("yarn", 4.0, 32, 1.0, 32.0)),
    "qwen3_moe": _model(
        "qwen3_moe",
        d_ff=96,
        norm_topk_prob=False,
        layer_pattern=(Layer("attention", "dense"), Layer("attention", "sparse")),
        **_EXPERTS,
    ),
    "qwen3_next": _model("qwen3_next", layer_pattern=_hybrid("sparse"), d_shared=32, **_EXPERTS, **_DELTANET),
    "qwen3_5": _model("qwen3_5", layer_pattern=_hybrid("dense"), d_ff=128, tied_embedding=True, **_DELTANET),
    "qwen3_5_moe": _model("qwen3_5_moe", layer_pattern=_hybrid("sparse"), d_shared=32, **_EXPERTS, **_DELTANET),
}


def weights(config, seed=0):
    """Initial values, moved away from the ones and zeros under which a wrong convention would not show."""
    rng = np.random.default_rng(seed)

    def draw(weight):
        kind, value = weight.init
        spread = value if kind == "normal" else 0.1
        centre = value if kind == "constant" else 0.0
        return jnp.asarray(centre + spread * rng.standard_normal(weight.shape), weight.dtype)

    return jax.tree.map(draw, params.declare(config))


def micro(**fields):
    """The smallest dense llama."""
    return replace(FAMILIES["llama"], name="micro", d_model=32, n_layers=2, d_ff=48, rope_scaling=None, **fields)
