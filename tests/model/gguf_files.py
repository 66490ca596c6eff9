"""Writes a model as a GGUF file, the way converters do."""

import gguf
import numpy as np

from mlexpert.model import hf
from mlexpert.model.gguf import _INSIDE, _OUTSIDE
from mlexpert.model.tensors import Folder

ALPHABET = [
    chr(i) for i in [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324)]
]  # of byte-level BPE
TOKENS = [*ALPHABET, "he", "ll", "Ġw", "<|im_start|>", "<|im_end|>", "[PAD]"]
TYPES = [1] * (len(ALPHABET) + 3) + [3, 3, 5]
MERGES = ["h e", "l l", "Ġ w"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def permuted(weight, heads):
    """Half-split rotary pairs -> interleaved ones, in the rows of each head (convert_hf_to_gguf's `permute`)."""
    return weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write(path, config, tree, kinds=(), change=lambda tensors: tensors, metadata=None, architecture=None):
    """`kinds`: (part of a name, quantisation); the rest is F32. `metadata`: replaces, or leaves out what is None."""
    arch = architecture or config.family
    writer = gguf.GGUFWriter(path, arch)
    facts = {
        f"{arch}.block_count": config.n_layers,
        f"{arch}.context_length": config.max_length,
        f"{arch}.embedding_length": config.d_model,
        f"{arch}.feed_forward_length": config.d_ff,
        f"{arch}.attention.head_count": config.n_heads,
        f"{arch}.attention.head_count_kv": config.n_kv_heads,
        f"{arch}.attention.key_length": config.head_dim,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.chat_template": TEMPLATE,
        "tokenizer.ggml.eos_token_id": TOKENS.index("<|im_end|>"),
    }
    for key, value in (facts | (metadata or {})).items():
        if value is not None:
            (writer.add_string if isinstance(value, str) else writer.add_uint32)(key, value)
    writer.add_float32(f"{arch}.rope.freq_base", config.rope_theta)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", config.rms_eps)
    writer.add_array("tokenizer.ggml.tokens", TOKENS)
    writer.add_array("tokenizer.ggml.token_type", TYPES)
    writer.add_array("tokenizer.ggml.merges", MERGES)
    for name, array in change(_tensors(path, config, tree)).items():
        kind = next((kind for part, kind in kinds if part in name), gguf.GGMLQuantizationType.F32)
        writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(path, config, tree):
    """GGUF name -> float32, by way of a Hugging Face folder."""
    folder = path.with_suffix(".hf")
    if not folder.exists():
        hf.save(folder, config, tree)
    stored, heads = Folder(folder), {"q_proj": config.n_heads, "k_proj": config.n_kv_heads}
    found = {}
    for name in stored.names():
        array = np.asarray(stored.read(name), np.float32)
        outside = [key for key, other in _OUTSIDE.items() if other == name]
        if outside:
            found[outside[0]] = array
            continue
        _, _, layer, *middle, kind = name.split(".")
        if config.family == "llama" and middle[-1] in heads:
            array = permuted(array, heads[middle[-1]])
        inside = next(key for key, other in _INSIDE.items() if other == ".".join(middle))
        found[f"blk.{layer}.{inside}.{kind}"] = array
    return found
