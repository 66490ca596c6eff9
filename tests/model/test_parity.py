"""Logit parity with `transformers`: small models of all families that it made (third_party/transformers_fixtures)."""

import json
from functools import lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import transformer
from mlexpert.model.hf import load

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = (
    *("llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe"),
    "qwen3_5_moe_full",  # multimodal: `language_model` prefix, fused experts
)
ALL = pytest.mark.parametrize("name", NAMES)
LIMIT = 1e-4

hidden = jax.jit(transformer.hidden, static_argnums=1)
extend = jax.jit(transformer.extend, static_argnums=1, static_argnames="read")


@lru_cache
def _case(name):
    config, params = load(FIXTURES / name)
    stored = np.load(FIXTURES / name / "logits.npz")
    return config, params, jnp.asarray(stored["ids"]), stored["logits"]


@lru_cache
def _logits(name):
    config, params, ids, _ = _case(name)
    rows, length = ids.shape
    states = hidden(params, config, ids, jnp.ones_like(ids), jnp.tile(jnp.arange(length), (rows, 1)))
    return np.asarray(states @ transformer.unembedding(params, config))


def _gap(got, want):
    return float(np.abs(np.asarray(got) - want).max())


@ALL
def test_logits_are_those_of_transformers(name):
    want = _case(name)[3]
    assert want.std() > 0.5
    assert _gap(_logits(name), want) <= LIMIT


@ALL
def test_decoding_from_the_cache_gives_the_same_logits(name):
    config, params, ids, want = _case(name)
    rows, length = ids.shape
    cache, start, states = transformer.init_cache(config, rows, length), 0, []
    for width in (48, 16, *[1] * (length - 64)):
        piece = ids[:, start : start + width]
        out, cache = extend(params, config, cache, piece, jnp.full(rows, start), jnp.full(rows, width))
        states.append(out)
        start += width
    assert _gap(jnp.concatenate(states, axis=1) @ transformer.unembedding(params, config), want) <= LIMIT


@ALL
def test_both_rows_packed_into_one_give_the_same_logits(name):
    config, params, ids, want = _case(name)
    rows, length = ids.shape
    segments = jnp.repeat(jnp.arange(rows) + 1, length)[None]
    states = hidden(params, config, ids.reshape(1, -1), segments, jnp.tile(jnp.arange(length), rows)[None])
    logits = states @ transformer.unembedding(params, config)
    assert _gap(logits.reshape(rows, length, -1), want) <= LIMIT


@pytest.mark.parametrize(
    ("name", "kind", "weight"),
    [
        ("llama", "attention", "output_bias"),
        ("qwen2", "attention", "key_bias"),
        ("qwen3", "attention", "query_norm"),
        ("qwen3_moe", "moe", "router"),
        ("qwen3_next", "shared", "share"),
        ("qwen3_next", "deltanet", "decay_bias"),
        ("qwen3_5", "deltanet", "norm"),
        ("qwen3_5", "attention", "gate"),
        ("qwen3_5_moe", "deltanet", "key_conv"),
    ],
)
def test_the_fixtures_can_tell(name, kind, weight):
    """Parity is no proof if a weight hardly matters: nudged by 10 %, each must show."""
    config, params, ids, want = _case(name)
    blocks = []
    for block in params["blocks"]:
        there = kind in block
        blocks.append({**block, kind: {**block[kind], weight: block[kind][weight] * 1.1}} if there else block)
    states = hidden(
        {**params, "blocks": tuple(blocks)},
        config,
        ids,
        jnp.ones_like(ids),
        jnp.tile(jnp.arange(ids.shape[1]), (len(ids), 1)),
    )
    assert _gap(states @ transformer.unembedding(params, config), want) > 20 * LIMIT


def test_fixtures_are_small():
    sizes = {p: sum(f.stat().st_size for f in (FIXTURES / p).iterdir()) for p in NAMES}
    assert all(size <= 300_000 for size in sizes.values()), sizes
    assert json.loads((FIXTURES / "qwen3_5_moe_full" / "config.json").read_text())["model_type"] == "qwen3_5_moe"
