"""Makes the fixtures: a small random model of every family, and its logits by `transformers`. See README.md."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

LENGTH, ROWS = 70, 2  # longer than a chunk of the delta rule, no multiple of it
COMMON = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "rms_norm_eps": 1e-3,  # outputs of the delta rule pass near zero, and a norm then amplifies rounding
    "use_cache": True,
    "attn_implementation": "eager",
}
DENSE = {"intermediate_size": 48}
SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
ALTERNATING = {"layer_types": ["linear_attention", "full_attention"] * 2}
PARTIAL = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}}
SHARED = {"shared_expert_intermediate_size": 16}
PLAIN = {"rope_type": "default", "rope_theta": 1e6}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64}

FAMILIES = {
    "llama": ("Llama", DENSE | {"attention_bias": True, "rope_parameters": LLAMA3}),
    "qwen2": ("Qwen2", DENSE | {"tie_word_embeddings": True, "rope_parameters": PLAIN}),
    "qwen3": ("Qwen3", DENSE | {"rope_parameters": YARN}),
    "qwen3_moe": ("Qwen3Moe", DENSE | SPARSE | {"mlp_only_layers": [1], "norm_topk_prob": False}),
    "qwen3_next": ("Qwen3Next", DENSE | SPARSE | DELTA | SHARED | PARTIAL | ALTERNATING),
    "qwen3_5": ("Qwen3_5", DENSE | DELTA | PARTIAL | ALTERNATING | {"tie_word_embeddings": True}),
    "qwen3_5_moe": ("Qwen3_5Moe", SPARSE | DELTA | SHARED | PARTIAL),
}
VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
    "spatial_merge_size": 1,
    "temporal_patch_size": 1,
    "num_position_embeddings": 4,
}


def main(folder: Path) -> None:
    for name, (prefix, fields) in FAMILIES.items():
        config_class = getattr(transformers, f"{prefix}TextConfig", None) or getattr(transformers, f"{prefix}Config")
        model = build(getattr(transformers, f"{prefix}ForCausalLM"), config_class(**COMMON, **fields))
        save(model, fresh(folder / name))
    multimodal(fresh(folder / "qwen3_5_moe_full"))


def multimodal(folder: Path) -> None:
    """The folder of a whole Qwen3.5-MoE, experts fused as they are on the hub."""
    text = COMMON | SPARSE | DELTA | SHARED | PARTIAL
    config = transformers.Qwen3_5MoeConfig(
        text_config=text, vision_config=VISION, tie_word_embeddings=False, attn_implementation="eager"
    )
    config.text_config._attn_implementation = "eager"
    model = build(transformers.Qwen3_5MoeForConditionalGeneration, config)
    save(model, folder)
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in model.state_dict().items()}
    tensors["mtp.fc.weight"] = torch.zeros(32, 64)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert any(name.endswith("experts.gate_up_proj") for name in tensors)
    reloaded = transformers.Qwen3_5MoeForCausalLM.from_pretrained(folder)
    assert np.abs(run(reloaded, inputs()) - np.load(folder / "logits.npz")["logits"]).max() < 1e-5


def build(model_class: type, config: object) -> torch.nn.Module:
    torch.manual_seed(0)
    model = model_class(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith(("bias", "A_log")):
                parameter.add_(0.3 * torch.randn_like(parameter))
            if name.endswith("A_log"):
                parameter.sub_(4.0)  # a memory that lasts beyond a chunk, as in trained models
    return model


def save(model: torch.nn.Module, folder: Path) -> None:
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = inputs()
    logits = run(model, ids)
    np.savez_compressed(folder / "logits.npz", ids=ids.astype(np.int32), logits=logits)
    size = sum(file.stat().st_size for file in folder.iterdir())
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    print(f"{folder.name:18} {size / 1000:5.0f} kB  logits std {logits.std():.2f}  {kind}")


def inputs() -> np.ndarray:
    return np.random.default_rng(0).integers(0, COMMON["vocab_size"], (ROWS, LENGTH))


def run(model: torch.nn.Module, ids: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(ids), use_cache=False).logits.float().numpy()


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    main(Path(sys.argv[1]))
