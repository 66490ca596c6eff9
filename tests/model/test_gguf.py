import json
import os
from dataclasses import replace

import gguf
import jax
import numpy as np
import pytest
import tokenizers

from mlexpert.model import hf
from mlexpert.model.gguf import Gguf, tokenizer_json
from mlexpert.model.tensors import ModelFileError
from tests.model.families import FAMILIES, weights
from tests.model.gguf_files import TOKENS, write

Q8_0, Q4_1, F16 = (gguf.GGMLQuantizationType[name] for name in ("Q8_0", "Q4_1", "F16"))
CONFIGS = {
    family: replace(FAMILIES[family], rope_scaling=None, vocab_size=len(TOKENS), rms_eps=0.5**20, rope_theta=1e4)
    for family in ("llama", "qwen2", "qwen3")
}


def gap(one, other):
    """Largest relative difference of a leaf, in its norm."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.linalg.norm(np.subtract(a, b)) / np.linalg.norm(b)) for a, b in pairs)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_file_holds_the_model_that_was_written(tmp_path, family):
    """Names, shapes, biases and the order of the rows of q and k: unquantised, every bit comes back."""
    config = CONFIGS[family]
    tree = weights(config)
    opened = Gguf(write(tmp_path / "model.gguf", config, tree))
    assert opened.config() == replace(config, name="model")
    assert gap(hf.load_params(opened.config(), opened), tree) == 0.0


def test_quantised_weights_are_near(tmp_path):
    config = CONFIGS["qwen2"]
    tree = weights(config)
    kinds = [("ffn_down", Q4_1), ("ffn", Q8_0), ("attn_output.weight", F16)]
    opened = Gguf(write(tmp_path / "model.gguf", config, tree, kinds))
    loaded = hf.load_params(opened.config(), opened)["blocks"][0]
    wanted = tree["blocks"][0]
    assert 0.01 < gap(loaded["mlp"]["down"], wanted["mlp"]["down"]) < 0.1
    assert 0.001 < gap(loaded["mlp"]["up"], wanted["mlp"]["up"]) < 0.01
    assert 0.0 < gap(loaded["attention"]["output"], wanted["attention"]["output"]) < 0.001
    assert gap(loaded["attention"]["query"], wanted["attention"]["query"]) == 0.0


def test_an_embedding_that_was_quantised_twice_is_tied_again(tmp_path):
    config = CONFIGS["llama"]
    tree = weights(config)
    twice = Gguf(
        write(
            tmp_path / "twice.gguf",
            config,
            tree,
            [("token_embd", Q8_0)],
            lambda tensors: tensors | {"output.weight": tensors["token_embd.weight"]},
        )
    )
    assert twice.config().tied_embedding
    assert gap(hf.load_params(twice.config(), twice), tree) == 0.0  # the better copy serves
    untied = replace(config, tied_embedding=False)
    tree = weights(untied)
    opened = Gguf(write(tmp_path / "untied.gguf", untied, tree, [("token_embd", Q8_0)]))
    assert not opened.config().tied_embedding
    assert gap(hf.load_params(opened.config(), opened)["unembedding"], tree["unembedding"]) == 0.0


def test_the_tokenizer(tmp_path):
    config = CONFIGS["llama"]
    opened = Gguf(write(tmp_path / "model.gguf", config, weights(config)))
    core = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(opened.metadata, opened.where)))
    text = "<|im_start|>hello world 12 naïve 中<|im_end|>"
    ids = core.encode(text, add_special_tokens=False).ids
    assert [TOKENS[i] for i in ids[:5]] == ["<|im_start|>", "he", "ll", "o", "Ġw"]
    assert TOKENS[ids[-1]] == "<|im_end|>" and max(ids) < len(TOKENS) - 1
    assert core.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(architecture="gemma3"), "architecture 'gemma3'; GGUF files are read for llama, qwen2, qwen3"),
        (dict(metadata={"llama.attention.head_count": None}), "metadata key llama.attention.head_count is missing"),
        (dict(metadata={"llama.rope.scaling.type": "yarn"}), "rotary scaling 'yarn' of GGUF files is not built"),
        (
            dict(change=lambda tensors: tensors | {"rope_freqs.weight": np.ones(4, np.float32)}),
            "tensor rope_freqs.weight has no place in a llama model",
        ),
        (
            dict(change=lambda tensors: {name: a for name, a in tensors.items() if name != "output_norm.weight"}),
            "tensor model.norm.weight is missing",
        ),
    ],
)
def test_files_that_cannot_be_read_are_refused_by_name(tmp_path, fields, message):
    config = CONFIGS["llama"]
    with pytest.raises(ModelFileError, match=r"model\.gguf: " + message):
        Gguf(write(tmp_path / "model.gguf", config, weights(config), **fields))


def test_unknown_tokenizers_are_refused_by_name():
    with pytest.raises(ModelFileError, match=r"x: tokenizer 'llama' with pre-tokenizer 'default'; built is 'gpt2'"):
        tokenizer_json({"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"}, "x")


def test_damaged_files(tmp_path):
    config = CONFIGS["llama"]
    path = write(tmp_path / "model.gguf", config, weights(config))
    size = path.stat().st_size
    for cut in (size - 100, size // 3, 2000, 10):
        os.truncate(path, cut)
        with pytest.raises(ModelFileError, match=rf"model\.gguf \({cut:,} bytes\) is no GGUF file, is damaged"):
            Gguf(path)
    path.write_bytes(b"PK\x03\x04" + bytes(5000))
    with pytest.raises(ModelFileError, match="is no GGUF file"):
        Gguf(path)
