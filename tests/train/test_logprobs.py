"""Log-prob and entropy from hidden states: the one definition, whatever the chunk, and never all logits at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model import distribution
from mlexpert.train.head import Layout
from mlexpert.train.logprobs import token_logprobs_and_entropy

B, T, D, V, K = 2, 7, 4, 11, 3


@pytest.fixture(scope="module")
def case():
    keys = jax.random.split(jax.random.key(0), 4)
    hidden = jax.random.normal(keys[0], (B, T, D))
    table = jax.random.normal(keys[1], (D, V))
    tokens = jax.random.randint(keys[2], (B, T), 0, V)
    segments = jnp.array([[1, 1, 1, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1, 1]])
    support = jnp.concatenate([tokens[..., None], (tokens[..., None] + 3) % V, jnp.full((B, T, 1), -1)], -1)
    return hidden, table, tokens, segments, support.at[0, 1].set(-1)


def by_definition(hidden, table, tokens, segments, temperature, support):
    """All logits at once, through `distribution`."""
    first = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    known, logits = ~first & (segments > 0), jnp.roll(hidden, 1, axis=1) @ table
    logprob = distribution.log_probs(logits, tokens, temperature, support)
    return jnp.where(known, logprob, 0), jnp.where(known, distribution.entropy(logits, temperature, support), 0)


# 4 does not divide the vocabulary of 11: the last chunk reaches back over what was counted before.
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("supported", [False, True])
@pytest.mark.parametrize("chunk", [1, 4, 11, 256])
def test_equals_the_definition_at_any_chunk(case, temperature, supported, chunk):
    hidden, table, tokens, segments, support = case
    support = support if supported else None
    got = token_logprobs_and_entropy(hidden, table, tokens, segments, temperature, support, Layout(chunk))
    for value, expected in zip(got, by_definition(*case[:4], temperature, support), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("chunk", [4, 256])
def test_large_logits_lose_nothing(case, chunk):
    hidden, table, *rest = case
    got = token_logprobs_and_entropy(100 * hidden, table, *rest[:2], 1.0, None, Layout(chunk))
    for value, expected in zip(got, by_definition(100 * hidden, table, *rest[:2], 1.0, None), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("supported", [False, True])
@pytest.mark.parametrize("chunk", [4, 256])
def test_gradient_is_that_of_the_definition(case, supported, chunk):
    *arrays, segments, support = case
    support = support if supported else None

    def total(function, hidden, table):
        logprob, entropy = function(hidden, table, case[2], segments, 0.6, support)
        return (logprob * jnp.arange(T)[None]).sum() + 0.3 * entropy.sum()

    def chunked(*args):
        return token_logprobs_and_entropy(*args, Layout(chunk))

    got, wanted = (jax.grad(lambda *a, f=f: total(f, *a), (0, 1))(*arrays[:2]) for f in (chunked, by_definition))
    for value, expected in zip(got, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


def test_an_id_outside_its_support_is_impossible_and_harmless(case):
    hidden, table, tokens, segments, support = case
    outside = support.at[1, 3].set(jnp.array([(tokens[1, 3] + 1) % V, -1, -1]))

    def total(hidden):
        logprob, _ = token_logprobs_and_entropy(hidden, table, tokens, segments, 1.0, outside, Layout(4))
        return jnp.where(jnp.isfinite(logprob), logprob, 0).sum(), logprob

    gradient, logprob = jax.grad(total, has_aux=True)(hidden)
    assert logprob[1, 3] == -jnp.inf
    assert jnp.isfinite(gradient).all()
    assert not jnp.abs(gradient[1, 2]).any()


def test_hidden_states_before_a_border_get_no_gradient(case):
    hidden, table, tokens, segments, _ = case
    grad = jax.grad(lambda h: token_logprobs_and_entropy(h, table, tokens, segments, 1.0)[0].sum())(hidden)
    silent = np.abs(grad).sum(-1) == 0
    # The last token of each segment predicts nothing, nor does padding.
    assert silent.tolist() == [[False, False, True, False, True, True, True], [False] * 6 + [True]]


def temporaries(vocab, chunk, n=2048, width=8):
    """Bytes the compiler sets aside for value and gradient, over every argument and result."""

    def total(hidden, table, tokens, segments):
        logprob, entropy = token_logprobs_and_entropy(hidden, table, tokens, segments, 1.0, None, Layout(chunk))
        return logprob.sum() + entropy.sum()

    ints = jax.ShapeDtypeStruct((1, n), jnp.int32)
    shapes = jax.ShapeDtypeStruct((1, n, width), jnp.float32), jax.ShapeDtypeStruct((width, vocab), jnp.float32)
    compiled = jax.jit(jax.value_and_grad(total, (0, 1))).lower(*shapes, ints, ints).compile()
    memory = compiled.memory_analysis()
    assert memory is not None
    return memory.temp_size_in_bytes


def test_memory_follows_the_chunk_and_not_the_vocabulary():
    small, large, whole = temporaries(1024, 128), temporaries(8192, 128), temporaries(8192, 8192)
    assert large < 1.5 * small
    assert large < whole / 16
