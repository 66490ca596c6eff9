"""Adapters: merged they are the same model to the bit, untrained they change nothing, and each has a gradient."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import hf, lora, params, transformer
from mlexpert.model.config import Lora, preset

ALL = Lora(rank=3, alpha=6.0, targets=("attention", "deltanet", "moe", "shared"))
ADAPTED = preset("micro_hybrid", lora=ALL)
PLAIN = replace(ADAPTED, lora=None)

hidden = jax.jit(transformer.hidden, static_argnums=1)
init = jax.jit(params.init, static_argnums=0)


@pytest.fixture(scope="module")
def weights():
    """With adapters that do something."""
    values = init(ADAPTED, jax.random.key(0))
    trained, stays = lora.split(values)
    leaves, tree = jax.tree.flatten(trained)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [x + 0.1 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return lora.join(tree.unflatten(noisy), stays)


def rows():
    tokens = jax.random.randint(jax.random.key(2), (2, 20), 0, ADAPTED.vocab_size)
    return tokens, jnp.ones_like(tokens), jnp.tile(jnp.arange(20), (2, 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_merged_model_is_the_adapted_one_to_the_bit(weights, dtype):
    config = replace(ADAPTED, dtype=dtype)
    cast = jax.tree.map(lambda w, declared: w.astype(declared.dtype), weights, params.declare(config))
    merged, plain = lora.merged(cast, config)
    assert plain == replace(PLAIN, dtype=dtype)
    assert jax.tree.structure(merged) == jax.tree.structure(params.declare(plain))
    assert jnp.array_equal(hidden(cast, config, *rows()), hidden(merged, plain, *rows()))


def test_saving_merges(weights, tmp_path):
    hf.save(tmp_path / "saved", ADAPTED, weights)
    config, reloaded = hf.load(tmp_path / "saved")
    assert config.lora is None
    merged = jax.tree.leaves(lora.merged(weights, ADAPTED)[0])
    assert all(jnp.array_equal(got, want) for got, want in zip(jax.tree.leaves(reloaded), merged, strict=True))


def test_the_sum_is_what_adapters_mean(weights):
    """On a query projection: x W + alpha / rank * (x A) B, heads unfolded."""
    block = weights["blocks"][1]
    pair, x = block["lora"]["attention"]["query"], jax.random.normal(jax.random.key(3), (5, ADAPTED.d_model))
    merged = lora.merged(weights, ADAPTED)[0]["blocks"][1]["attention"]["query"]
    want = jnp.einsum("nd,dhk->nhk", x, block["attention"]["query"][0])
    want = want + 2.0 * jnp.einsum("nr,rhk->nhk", x @ pair["into"][0], pair["out_of"][0])
    np.testing.assert_allclose(jnp.einsum("nd,dhk->nhk", x, merged[0]), want, atol=1e-5)
    up, pair = block["moe"]["up"], block["lora"]["moe"]["up"]
    merged = lora.merged(weights, ADAPTED)[0]["blocks"][1]["moe"]["up"]
    np.testing.assert_allclose(merged[1, 2] - up[1, 2], 2.0 * pair["into"][1, 2] @ pair["out_of"][1, 2], atol=1e-5)


def test_fresh_adapters_change_nothing_and_leave_initial_values_alone():
    fresh, plain = init(ADAPTED, jax.random.key(0)), init(PLAIN, jax.random.key(0))
    assert all(jax.tree.leaves(jax.tree.map(jnp.array_equal, lora.split(fresh)[1], plain)))
    assert jnp.array_equal(hidden(fresh, ADAPTED, *rows()), hidden(plain, PLAIN, *rows()))
    merged, _ = lora.merged(fresh, ADAPTED)
    assert all(jax.tree.leaves(jax.tree.map(jnp.array_equal, merged, plain)))


def test_decoding_with_adapters_equals_the_full_forward(weights):
    tokens, segments, positions = rows()
    cache = transformer.init_cache(ADAPTED, 2, 20)
    extend = jax.jit(transformer.extend, static_argnums=1)
    out, cache = extend(weights, ADAPTED, cache, tokens[:, :19], jnp.zeros(2, int), jnp.full(2, 19))
    last, _ = extend(weights, ADAPTED, cache, tokens[:, 19:], jnp.full(2, 19), jnp.ones(2, int))
    want = hidden(weights, ADAPTED, tokens, segments, positions)
    np.testing.assert_allclose(jnp.concatenate((out, last), axis=1), want, atol=1e-4)


def test_every_adapter_has_a_gradient(weights):
    trained, stays = lora.split(weights)

    def loss(trained):
        return (transformer.hidden(lora.join(trained, stays), ADAPTED, *rows()) ** 3).sum()

    gradient = jax.jit(jax.grad(loss))(trained)
    assert all(jnp.isfinite(leaf).all() and jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))


def test_targets_are_kinds_or_single_weights_and_routers_only_by_name():
    def names(*targets):
        block = params.declare(preset("micro", lora=Lora(2, 2.0, targets)))["blocks"][0]
        return {f"{kind}.{name}" for kind, pairs in block["lora"].items() for name in pairs}

    assert names("attention.query") == {"attention.query"}
    assert names("moe") == {"moe.gate", "moe.up", "moe.down"}
    assert names("moe.router", "attention.value") == {"moe.router", "attention.value"}


@pytest.mark.parametrize(("targets", "said"), [(("mlp",), "attention.query"), (("attention.qury",), "attention.qury")])
def test_targets_that_name_nothing_are_refused(targets, said):
    with pytest.raises(ValueError, match=said):
        params.declare(preset("micro", lora=Lora(2, 2.0, targets)))


def test_adapters_are_small_and_declared_like_any_weight():
    declared = params.declare(ADAPTED)["blocks"][0]["lora"]["moe"]["down"]
    assert declared["into"].axes == ("layer", "expert", "ff", "rank")
    assert declared["out_of"].axes == ("layer", "expert", "rank", "model")
    assert declared["into"].dtype == "float32" and declared["into"].layers == (0, 2)
    big = preset("qwen3_8b", lora=Lora(rank=16, targets=("attention", "mlp")))
    share = params.count(big) / params.count(replace(big, lora=None)) - 1
    assert 0.001 < share < 0.01
