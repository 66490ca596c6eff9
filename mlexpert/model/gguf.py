"""GGUF files, read as data: a config.json, tensors under Hugging Face names, a tokenizer.json.

1. Metadata becomes the config.json that the model would have in a Hugging Face folder: one reader knows the families.
2. Tensors are dequantised to float32 one at a time, when they are asked for. They are near the released weights, not
   equal to them: whoever starts from a quantised file says so.
3. Converters of the llama kind store the rows of each q and k head as interleaved rotary pairs; that is undone here.
4. A file that quantised a tied embedding twice, each its own way, is tied again: the better of the two serves for both.

Source: the GGUF specification of ggml, conversion of the llama family in llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from mlexpert.model.config import ModelConfig
from mlexpert.model.hf_config import from_json
from mlexpert.model.tensors import ModelFileError

ARCHITECTURES = ("llama", "qwen2", "qwen3")
_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "model.norm.weight",
}
_INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# metadata key below the architecture -> (config.json key, its type); None: GGUF's own default is the class's
_SIZES = {
    "embedding_length": ("hidden_size", int),
    "block_count": ("num_hidden_layers", int),
    "attention.head_count": ("num_attention_heads", int),
    "feed_forward_length": ("intermediate_size", int),
    "context_length": ("max_position_embeddings", int),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", float),
}
_OPTIONAL = {
    "attention.head_count_kv": ("num_key_value_heads", int),
    "attention.key_length": ("head_dim", int),
    "rope.freq_base": ("rope_theta", float),
}
_SAME = 0.15  # two quantisations of one matrix differ by a few percent, two matrices by 140 %
_SAMPLE_ROWS = 1024


class Gguf:
    """One file: `metadata`, `config_json`, and its tensors (a `Tensors`)."""

    def __init__(self, path: Path):
        """Raises ModelFileError for a file that is damaged, cut short or of an architecture that is not built."""
        self.where = str(path)
        reader = _open(path)
        self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        self._tensors = {self._plain_name(tensor.name): tensor for tensor in reader.tensors}
        if self._embedded_twice():
            self._tensors["model.embed_tokens.weight"] = self._tensors.pop("lm_head.weight")
        self.config_json = self._config_json()

    def config(self, dtype: str = "float32") -> ModelConfig:
        return from_json({**self.config_json, "dtype": dtype}, Path(self.where).stem, self.where)

    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(int(size) for size in reversed(self._tensors[name].shape))

    def dtype(self, name: str) -> str:
        """Always that of what `read` gives: which layers are quantised how is the file's own affair."""
        return "F32"

    def read(self, name: str, first: slice = slice(None)) -> np.ndarray:
        tensor = self._tensors[name]
        try:
            values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(self.shape(name))
        except (NotImplementedError, ValueError) as error:
            raise ModelFileError(
                f"{self.where}: {name} is quantised as {tensor.tensor_type.name}, which cannot be read ({error}); "
                "take a file quantised as Q4_K_M, Q8_0 or F16"
            ) from error
        return self._unpermuted(name, values)[first]

    def _get(self, key: str) -> Any:
        if key not in self.metadata:
            raise ModelFileError(
                f"{self.where}: metadata key {key} is missing; is this the first part of several files?"
            )
        return self.metadata[key]

    @property
    def architecture(self) -> str:
        name = self._get("general.architecture")
        if name not in ARCHITECTURES:
            raise ModelFileError(
                f"{self.where}: architecture {name!r}; GGUF files are read for {', '.join(ARCHITECTURES)}"
            )
        return name

    def _plain_name(self, name: str) -> str:
        block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
        if block and block[2] in _INSIDE:
            return f"model.layers.{block[1]}.{_INSIDE[block[2]]}.{block[3]}"
        if name not in _OUTSIDE:
            raise ModelFileError(
                f"{self.where}: tensor {name} has no place in a {self.architecture} model as built here"
            )
        return _OUTSIDE[name]

    def _config_json(self) -> dict[str, Any]:
        arch = self.architecture
        found: dict[str, Any] = {"model_type": arch}
        for key, (name, kind) in (_SIZES | _OPTIONAL).items():
            if key in _SIZES or f"{arch}.{key}" in self.metadata:
                found[name] = kind(self._get(f"{arch}.{key}"))
        for name in ("model.embed_tokens.weight", "model.norm.weight"):
            if name not in self._tensors:
                raise ModelFileError(f"{self.where}: tensor {name} is missing")
        scaling = self.metadata.get(f"{arch}.rope.scaling.type", "none")
        if scaling != "none":
            raise ModelFileError(f"{self.where}: rotary scaling {scaling!r} of GGUF files is not built")
        found["vocab_size"] = self.shape("model.embed_tokens.weight")[0]
        found["tie_word_embeddings"] = "lm_head.weight" not in self._tensors
        return found | self._token_ids()

    def _token_ids(self) -> dict[str, int]:
        keys = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
        found = {name: self.metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
        return {name: int(value) for name, value in found.items() if value is not None}

    def _embedded_twice(self) -> bool:
        """Both matrices are there and are one."""
        if not {"model.embed_tokens.weight", "lm_head.weight"} <= self._tensors.keys():
            return False
        one, other = (self._tensors[name] for name in ("model.embed_tokens.weight", "lm_head.weight"))
        if tuple(one.shape) != tuple(other.shape) or other.n_bytes < one.n_bytes:
            return False
        one, other = (gguf.dequantize(t.data[:_SAMPLE_ROWS], t.tensor_type) for t in (one, other))
        return bool(np.linalg.norm(one - other) < _SAME * np.linalg.norm(other))

    def _unpermuted(self, name: str, values: np.ndarray) -> np.ndarray:
        if self.architecture != "llama" or not re.search(r"\.(q|k)_proj\.", name):
            return values
        key = "num_attention_heads" if ".q_proj." in name else "num_key_value_heads"
        heads = self.config_json.get(key, self.config_json["num_attention_heads"])
        pairs = values.reshape(heads, len(values) // heads // 2, 2, *values.shape[1:])
        return pairs.swapaxes(1, 2).reshape(values.shape)


def _open(path: Path) -> Any:
    if not path.is_file():
        raise ModelFileError(f"{path} does not exist")
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError, MemoryError) as error:
        raise ModelFileError(
            f"{path} ({path.stat().st_size:,} bytes) is no GGUF file, is damaged or is cut short ({error}); "
            "fetch it again"
        ) from error


# ---------------------------------------------------------------- the tokenizer
_GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5


def _split(regex: str) -> list[dict[str, Any]]:
    return [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}, _BYTES]


# tokenizer.ggml.pre -> how text is cut before merges
_PRE_TOKENIZERS = {
    "gpt-2": [_GPT2],
    "smollm": [{"type": "Digits", "individual_digits": True}, _GPT2],
    "qwen2": _split(_WORDS % r"\p{N}"),
    "llama-bpe": _split(_WORDS % r"\p{N}{1,3}"),
}


def tokenizer_json(metadata: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content of the tokenizer.json that the metadata describe. Raises ModelFileError for another kind than
    byte-level BPE and for a pre-tokenizer that is not known by name."""
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise ModelFileError(
            f"{where}: tokenizer {kind!r} with pre-tokenizer {pre!r}; built is 'gpt2' with {', '.join(_PRE_TOKENIZERS)}"
        )
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    if len(tokens) != len(types) or len(set(tokens)) != len(tokens):
        raise ModelFileError(f"{where}: its vocabulary of {len(tokens)} tokens has doubles, or {len(types)} types")
    added = [
        {"id": i, "content": token, "special": kind == _CONTROL, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    vocab = {token: i for i, token in enumerate(tokens) if types[i] != _UNUSED}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[pre]},
        "post_processor": None,
        "decoder": _GPT2,
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": metadata["tokenizer.ggml.merges"],
            "ignore_merges": pre == "llama-bpe",
            **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
            **dict.fromkeys(("fuse_unk", "byte_fallback"), False),
        },
    }
