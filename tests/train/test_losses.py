"""Closed forms of MLExpert eq. (4), its edges, and where gradients may not flow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlexpert.train import masked
from mlexpert.train.losses import WirlLoss, sft_loss, wirl_loss

PLAIN = WirlLoss(kl=0.0, entropy=0.0)


def run(config=PLAIN, *, theta=(0.0,), old=None, roll=None, ref=None, entropy=None, advantage=1.0, weight=None):
    """Loss, gradient in (theta, entropy) and reported metrics of a row of tokens; unnamed log-probs equal `old`."""
    theta = jnp.array(theta, jnp.float32)[None]
    old = theta if old is None else jnp.array(old, jnp.float32)[None]
    roll, ref = (old if x is None else jnp.array(x, jnp.float32)[None] for x in (roll, ref))
    entropy = jnp.zeros_like(theta) if entropy is None else jnp.array(entropy, jnp.float32)[None]
    weight = jnp.ones_like(theta) if weight is None else jnp.array(weight, jnp.float32)[None]
    advantage = jnp.broadcast_to(jnp.array(advantage, jnp.float32), theta.shape)

    def f(theta, entropy):
        return wirl_loss(theta, old, roll, ref, entropy, advantage, weight, config)

    (loss, metrics), grads = jax.value_and_grad(f, (0, 1), has_aux=True)(theta, entropy)
    return float(loss), np.array(grads[0][0]), np.array(grads[1][0]), masked.report([metrics])


def test_by_hand_two_windows_all_terms():
    """Window 1: tokens 0, 1 (A = 2, N = 2); window 2: token 2 (A = -1, N = 1)."""
    config = WirlLoss(kl=0.1, entropy=0.01)
    log = np.log
    loss, *_ = run(
        config,
        theta=[log(0.5), log(0.3), log(0.2)],
        old=[log(0.5), log(0.25), log(0.2)],
        roll=[log(0.4), log(0.25), log(0.1)],
        ref=[log(0.5), log(0.6), log(0.2)],
        entropy=[1.0, 2.0, 3.0],
        advantage=[2.0, 2.0, -1.0],
        weight=[0.5, 0.5, 1.0],
    )
    policy = 0.5 * (1.25 * -2.0) + 0.5 * (-1.2 * 2.0) + 2.0 * 1.0
    kl = 0.5 * (2.0 - log(2.0) - 1)
    assert loss == pytest.approx(policy + 0.1 * kl - 0.01 * (0.5 * 1 + 0.5 * 2 + 3), rel=1e-5)


def test_on_policy_gradient_is_plain_policy_gradient():
    _, grad, _, metrics = run(theta=[-1.0, -2.0], advantage=[2.0, -0.6], weight=[0.5, 0.25])
    np.testing.assert_allclose(grad, [-1.0, 0.15], rtol=1e-6)
    assert (metrics["clip_share"], metrics["keep_share"], metrics["q_mean"], metrics["q_log_max"]) == (0, 1, 1, 0)


@pytest.mark.parametrize(
    ("advantage", "ratio", "value", "flows"),
    [
        (1.0, 1.5, -1.2, False),  # good token already pushed up enough: stop
        (1.0, 0.5, -0.5, True),  # good token that fell: pull it back
        (-1.0, 1.5, 1.5, True),  # bad token that rose: push it down
        (-1.0, 0.5, 0.8, False),  # bad token already pushed down enough: stop
        (1.0, 1.1, -1.1, True),
        (-1.0, 0.9, 0.9, True),
    ],
)
def test_clip_by_sign_of_advantage(advantage, ratio, value, flows):
    loss, grad, _, metrics = run(theta=[np.log(ratio)], old=[0.0], advantage=advantage)
    assert loss == pytest.approx(value, rel=1e-5)
    assert grad[0] == pytest.approx(-ratio * advantage if flows else 0.0, rel=1e-5)
    assert metrics["clip_share"] == (0.0 if flows else 1.0)


@pytest.mark.parametrize(("q", "kept"), [(0.19, 0), (0.21, 1), (1.0, 1), (3.99, 1), (4.01, 0), (1e-30, 0), (1e30, 0)])
def test_keep_band(q, kept):
    loss, grad, entropy_grad, metrics = run(
        WirlLoss(kl=0.5, entropy=0.1), theta=[-1.0], roll=[-1.0 - np.log(q)], ref=[-2.0], entropy=[1.0]
    )
    assert metrics["keep_share"] == kept
    kl = np.exp(-1.0) + 1 - 1
    assert loss == pytest.approx(kept * (-q + 0.5 * kl - 0.1), rel=1e-4)
    assert (grad[0] != 0, entropy_grad[0] != 0) == (bool(kept), bool(kept))


def test_keep_band_edges_are_inside():
    config = WirlLoss(q_min=0.5, q_max=2.0, kl=0.0, entropy=0.0)
    for log_q in (np.float32(np.log(0.5)), np.float32(np.log(2.0))):
        q = float(jnp.exp(log_q))
        edge = WirlLoss(q_min=min(q, 1.0), q_max=max(q, 1.0), kl=0.0, entropy=0.0)
        assert run(edge, theta=[0.0], roll=[-log_q])[3]["keep_share"] == 1
    assert run(config, theta=[0.0], roll=[-0.694])[3]["keep_share"] == 0


@pytest.mark.parametrize(
    ("correction", "expected"), [("weight_and_mask", [-2.0, 0.0]), ("mask_only", [-1.0, 0.0]), ("off", [-1.0, -1.0])]
)
def test_corrections(correction, expected):
    config = WirlLoss(kl=0.0, entropy=0.0, correction=correction)
    _, grad, _, _ = run(config, theta=[0.0, 0.0], roll=[-np.log(2.0), -np.log(8.0)])
    np.testing.assert_allclose(grad, expected, rtol=1e-5)


def test_correction_factor_carries_no_gradient():
    """If q had one, the gradient at theta == old would double."""
    theta = jnp.zeros((1, 1))
    roll = jnp.full((1, 1), -np.log(2.0))

    def f(theta):
        return wirl_loss(theta, theta, roll, theta, theta * 0, jnp.ones((1, 1)), jnp.ones((1, 1)), PLAIN)[0]

    assert float(jax.grad(f)(theta)[0, 0]) == pytest.approx(-2.0)


def test_kl_is_zero_at_the_reference_and_positive_on_both_sides():
    config = WirlLoss(kl=1.0, entropy=0.0)
    for ref, sign in ((-1.0, 0), (-0.5, -1), (-1.5, 1)):
        loss, grad, _, metrics = run(config, theta=[-1.0], ref=[ref], advantage=0.0)
        d = ref + 1.0
        assert loss == pytest.approx(np.exp(d) - d - 1, abs=1e-6) == pytest.approx(metrics["kl"], abs=1e-6)
        assert np.sign(grad[0]) == sign


def test_tokens_outside_windows_are_invisible():
    kept = run(WirlLoss(), theta=[-1.0], ref=[-1.1], roll=[-1.2], entropy=[1.0])
    padded = run(
        WirlLoss(),
        theta=[-1.0, -3.0, -500.0],
        ref=[-1.1, 9.0, 0.0],
        roll=[-1.2, 0.0, np.nan],
        entropy=[1.0, 7.0, np.nan],
        weight=[1.0, 0.0, 0.0],
    )
    assert kept[0] == pytest.approx(padded[0])
    np.testing.assert_allclose(padded[1], [kept[1][0], 0, 0], rtol=1e-6)
    assert kept[3] == pytest.approx(padded[3])


def test_a_hopeless_token_is_masked_without_poisoning_the_gradient():
    _, grad, _, metrics = run(WirlLoss(), theta=[-1.0, -200.0], old=[-1.0, 300.0], roll=[-1.0, -300.0], ref=[-1, 500.0])
    assert np.isfinite(grad).all()
    assert grad[1] == 0
    assert np.isfinite(list(metrics.values())).all()
    assert metrics["q_log_max"] == 600


def test_a_nan_log_prob_is_not_silent():
    assert np.isnan(run(theta=[-1.0, -1.0], roll=[-1.0, np.nan])[3]["q_log_max"])


def test_mismatch_is_zero_on_policy_and_closed_form_off_policy():
    assert run(theta=[-1.0, -2.0])[3]["mismatch_kl"] == 0
    metrics = run(theta=[0.0, 0.0], roll=[-np.log(2.0), np.log(2.0)])[3]
    assert metrics["mismatch_kl"] == pytest.approx((2 + 0.5) / 2 - 1)
    assert (metrics["q_min"], metrics["q_max"]) == pytest.approx((0.5, 2.0))


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="keep band"):
        WirlLoss(q_min=1.5)
    with pytest.raises(ValueError, match="correction"):
        WirlLoss(correction="weights")


def test_sft_is_the_mean_negative_log_likelihood():
    logprob = jnp.array([[-1.0, -2.0, -9.0]])
    weight = jnp.array([[0.5, 0.5, 0.0]])
    loss, metrics = sft_loss(logprob, weight)
    assert loss == 1.5
    assert masked.report([metrics]) == {"loss": 1.5}
    np.testing.assert_allclose(jax.grad(lambda x: sft_loss(x, weight)[0])(logprob), [[-0.5, -0.5, 0.0]])
