import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


def by_hand(hidden, table, tokens, segments, temperature, support):
    logprob, entropy = np.zeros((B, T)), np.zeros((B, T))
    for b in range(B):
        for t in range(1, T):
            if segments[b, t] == 0 or segments[b, t] != segments[b, t - 1]:
                continue
            scaled = np.array(hidden[b, t - 1] @ table, np.float64) / temperature
            allowed = list(range(V)) if support is None else [i for i in support[b, t].tolist() if i >= 0]
            allowed = allowed or list(range(V))
            p = np.exp(scaled[allowed]) / np.exp(scaled[allowed]).sum()
            logprob[b, t] = np.log(p[allowed.index(int(tokens[b, t]))])
            entropy[b, t] = -(p * np.log(p)).sum()
    return logprob, entropy


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("supported", [False, True])
@pytest.mark.parametrize("chunk", [1, 5, 256])
def test_equals_the_definition_at_any_chunk(case, temperature, supported, chunk):
    hidden, table, tokens, segments, support = case
    support = support if supported else None
    got = token_logprobs_and_entropy(hidden, table, tokens, segments, temperature, support, chunk)
    for value, expected in zip(got, by_hand(hidden, table, tokens, segments, temperature, support), strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-5)


@pytest.mark.parametrize("supported", [False, True])
def test_gradient_does_not_depend_on_the_chunk_and_is_finite(case, supported):
    hidden, table, tokens, segments, support = case

    def f(chunk):
        def total(hidden, table):
            logprob, entropy = token_logprobs_and_entropy(
                hidden, table, tokens, segments, 0.6, support if supported else None, chunk
            )
            return logprob.sum() + 0.3 * entropy.sum()

        return jax.grad(total, (0, 1))(hidden, table)

    for a, b in zip(f(3), f(256), strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_hidden_states_before_a_border_get_no_gradient(case):
    hidden, table, tokens, segments, _ = case
    grad = jax.grad(lambda h: token_logprobs_and_entropy(h, table, tokens, segments, 1.0)[0].sum())(hidden)
    silent = np.abs(grad).sum(-1) == 0
    # The last token of each segment predicts nothing, nor does padding.
    assert silent.tolist() == [[False, False, True, False, True, True, True], [False] * 6 + [True]]


def test_logits_of_all_tokens_never_exist_at_once():
    n, wide, chunk = 4096, 512, 64
    shapes = (
        jax.ShapeDtypeStruct((1, n, 8), jnp.float32),
        jax.ShapeDtypeStruct((8, wide), jnp.float32),
        jax.ShapeDtypeStruct((1, n), jnp.int32),
        jax.ShapeDtypeStruct((1, n), jnp.int32),
    )

    def total(hidden, table, tokens, segments):
        return token_logprobs_and_entropy(hidden, table, tokens, segments, 1.0, chunk=chunk)[0].sum()

    compiled = jax.jit(jax.grad(total, (0, 1))).lower(*shapes).compile()
    memory = compiled.memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < n * wide * 4 / 4
