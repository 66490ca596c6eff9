"""One definition of a token's log-prob: closed forms of truncation, renormalisation, entropy, and unbiased draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.model.distribution import draw, entropy, log_probs, truncate

LOGITS = jnp.log(jnp.asarray([[0.1, 0.4, 0.2, 0.3], [0.97, 0.01, 0.01, 0.01]]))


@pytest.mark.parametrize(
    ("top_k", "top_p", "want"),
    [
        (3, 1.0, [[1, 3, 2], [0, 1, 2]]),
        (0, 0.5, [[1, 3, -1, -1], [0, -1, -1, -1]]),
        (0, 0.75, [[1, 3, 2, -1], [0, -1, -1, -1]]),
        (2, 0.5, [[1, -1], [0, -1]]),  # after top-k the best token alone holds 4/7
        (1, 1.0, [[1], [0]]),
        (0, 1e-9, [[1, -1, -1, -1], [0, -1, -1, -1]]),
        (9, 1.0, [[1, 3, 2, 0], [0, 1, 2, 3]]),
    ],
)
def test_truncation(top_k, top_p, want):
    support = truncate(LOGITS, 1.0, top_k, top_p)
    assert support is not None
    assert support.tolist() == want


def test_truncation_acts_on_the_tempered_distribution():
    logits = jnp.log(jnp.asarray([[0.6, 0.4]]))
    cool, warm = truncate(logits, 0.5, 0, 0.65), truncate(logits, 1.0, 0, 0.65)
    assert cool is not None and warm is not None
    assert (cool.tolist(), warm.tolist()) == ([[0, -1]], [[0, 1]])


def test_nothing_is_cut_without_a_setting_and_bad_settings_raise():
    assert truncate(LOGITS, 1.0, 0, 1.0) is None
    for setting in ((1.0, -1, 1.0), (1.0, 0, 0.0), (1.0, 0, 1.1), (0.0, 1, 1.0)):
        with pytest.raises(ValueError):
            truncate(LOGITS, *setting)


def test_log_probs_closed_form():
    ids = jnp.asarray([3, 0])
    np.testing.assert_allclose(log_probs(LOGITS, ids, 1.0), np.log([0.3, 0.97]), rtol=1e-5)
    squares = np.array([0.3, 0.97]) ** 2 / (np.exp(np.asarray(LOGITS)) ** 2).sum(axis=1)
    np.testing.assert_allclose(log_probs(LOGITS, ids, 0.5), np.log(squares), atol=1e-6)
    support = jnp.asarray([[1, 3, -1], [0, -1, -1]])
    np.testing.assert_allclose(log_probs(LOGITS, ids, 1.0, support), [np.log(3 / 7), 0.0], atol=1e-6)


def test_empty_support_means_uncut_and_an_id_outside_is_impossible():
    support = jnp.asarray([[-1, -1], [1, 2]])
    got = log_probs(LOGITS, jnp.asarray([3, 0]), 1.0, support)
    assert got[0] == pytest.approx(np.log(0.3), rel=1e-5)
    assert got[1] == -jnp.inf


def test_entropy_is_exact_over_the_support():
    support = jnp.asarray([[1, 3, -1], [-1, -1, -1]])
    p = np.exp(np.asarray(LOGITS))
    whole = -(p * np.log(p)).sum(axis=1)
    np.testing.assert_allclose(entropy(LOGITS, 1.0), whole, rtol=1e-5)
    cut = -(4 / 7 * np.log(4 / 7) + 3 / 7 * np.log(3 / 7))
    np.testing.assert_allclose(entropy(LOGITS, 1.0, support), [cut, whole[1]], rtol=1e-5)


def test_gradients_stay_finite_and_inside_the_support():
    support = jnp.asarray([[1, 3, -1], [-1, -1, -1]])

    def total(logits):
        return (log_probs(logits, jnp.asarray([3, 0]), 0.6, support) + entropy(logits, 0.6, support)).sum()

    gradient = jax.grad(total)(LOGITS)
    assert jnp.isfinite(gradient).all()
    assert gradient[0, jnp.asarray([0, 2])].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(gradient.sum(axis=1), 0.0, atol=1e-5)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 0.9)])
def test_draws_follow_the_reported_log_probs(top_k, top_p):
    n = 20_000
    logits = jnp.broadcast_to(LOGITS[0], (n, 4))
    support = truncate(logits, 0.7, top_k, top_p)
    ids = draw(jax.random.split(jax.random.key(0), n), logits, 0.7, support)
    share = np.bincount(np.asarray(ids), minlength=4) / n
    one = None if support is None else jnp.broadcast_to(support[0], (4, support.shape[1]))
    want = np.exp(log_probs(logits[:4], jnp.arange(4), 0.7, one))
    np.testing.assert_allclose(share, want, atol=4 * np.sqrt(0.25 / n))


def test_a_draw_depends_on_its_own_row_only():
    keys = jax.random.split(jax.random.key(3), 8)
    logits = jax.random.normal(jax.random.key(4), (8, 50))
    alone = [int(draw(keys[i : i + 1], logits[i : i + 1], 1.0, None)[0]) for i in range(8)]
    assert draw(keys, logits, 1.0, None).tolist() == alone
