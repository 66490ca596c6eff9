"""Invariances of the step: how rows are packed, cut or resumed must not change what is learnt."""

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mlexpert.model.config import preset
from mlexpert.model.params import init
from mlexpert.train import checkpoint
from mlexpert.train.losses import WirlLoss
from mlexpert.train.optimizer import rl_adamw, sft_muon
from mlexpert.train.packing import pack_examples, pack_windows
from mlexpert.train.step import StepShape, init_state, make_rl_step, make_score, make_sft_step, micro_batches
from mlexpert.types import Credit, Outcome, Sample, Span, Stop, Turn, Window

CONFIG = preset("micro", vocab_size=64, n_layers=1)
TEMPERATURE = 0.6
LENGTH = 24
# Plain SGD shows the gradient itself: Adam's normalisation would hide a wrong scale.
SGD = optax.sgd(1.0)
ADAMW = rl_adamw(1e-3, warmup=1)
LOSS = WirlLoss(kl=0.1, entropy=0.05)


@pytest.fixture(scope="module")
def params():
    return jax.jit(init, static_argnums=0)(CONFIG, jax.random.key(0))


@pytest.fixture(scope="module")
def reference():
    return jax.jit(init, static_argnums=0)(CONFIG, jax.random.key(1))


@pytest.fixture(scope="module")
def windows():
    """Six windows: two episodes of two windows that share a prefix, two single ones; lengths and rewards differ."""
    rng = np.random.default_rng(0)
    made = []
    for episode, n in (("a", 2), ("b", 2), ("c", 1), ("d", 1)):
        context = np.zeros(0, np.int32)
        for index in range(n):
            prompt = rng.integers(1, 64, 3 + index).astype(np.int32)
            ids = rng.integers(1, 64, 2 + len(made)).astype(np.int32)
            sample = Sample(ids, rng.normal(-4, 0.5, len(ids)).astype(np.float32), np.zeros(len(ids)), Stop.END_TURN)
            credit = Credit(Outcome.VALID, float(rng.normal()), 0.0)
            made.append(
                Window(f"{episode}/{index}", episode, "t", index, (Span(0, context, (Turn(prompt, sample),)),), credit)
            )
            context = np.concatenate([context, prompt, ids])
    return made


@functools.cache  # compiling is what these tests spend their time on
def rl(rows=2, optimizer=SGD, loss=LOSS, passes=1):
    return make_rl_step(CONFIG, optimizer, loss, TEMPERATURE, StepShape(rows, 32), passes)


@functools.cache
def scorer():
    return make_score(CONFIG, TEMPERATURE, StepShape(2, 32))


def assert_same(a, b, atol=2e-5):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, atol=atol)


def separately(windows):
    """The same windows, each told to be of another episode, so that none shares a row's tokens."""
    return [Window(w.id + "x", w.id, w.task, w.index, w.spans, w.credit) for w in windows]


def test_micro_batches_do_not_change_the_step(params, reference, windows):
    batch = pack_windows(separately(windows), LENGTH, rows_multiple=8)
    assert (batch.segments_BxT > 0).any(axis=1).sum() > 2
    base, base_metrics = rl(rows=2)(init_state(params, SGD), batch, reference)
    other, metrics = rl(rows=8)(init_state(params, SGD), batch, reference)
    assert_same(base.params, other.params)
    # A micro-batch's router statistics are its own; everything else is exact.
    for name in base_metrics.keys() - {"router_balance", "expert_load_max"}:
        assert metrics[name] == pytest.approx(base_metrics[name], rel=1e-4, abs=1e-6), name


def test_packed_equals_separate(params, reference, windows):
    step = rl()
    shared, metrics = step(init_state(params, SGD), pack_windows(windows, LENGTH, 2), reference)
    apart = pack_windows(separately(windows), LENGTH, 2)
    assert (apart.segments_BxT > 0).sum() > (pack_windows(windows, LENGTH).segments_BxT > 0).sum()
    single, single_metrics = step(init_state(params, SGD), apart, reference)
    assert_same(shared.params, single.params)
    assert metrics["loss"] == pytest.approx(single_metrics["loss"], rel=1e-4)


def test_the_batch_step_is_the_mean_over_its_windows(params, reference, windows):
    """Windows of different length and count per micro-batch weigh the same: no mean of means."""
    step = rl()
    whole, _ = step(init_state(params, SGD), pack_windows(windows, LENGTH, 2), reference)
    moved = jax.tree.map(lambda new, old: new - old, whole.params, params)
    total = jax.tree.map(jnp.zeros_like, params)
    for w in windows:
        alone, _ = step(init_state(params, SGD), pack_windows([w], LENGTH, 2), reference)
        total = jax.tree.map(lambda t, new, old: t + (new - old) / len(windows), total, alone.params, params)
    assert_same(moved, total)


def with_sampler(batch, params):
    """The batch as a sampler with these weights would have drawn it: l_roll from the learner's own scoring."""
    logprobs = np.concatenate([scorer()(params, micro) for micro in micro_batches(batch, 2)])
    batch = copy.copy(batch)
    object.__setattr__(batch, "logprobs_BxT", np.where(batch.window_BxT >= 0, logprobs, 0).astype(np.float32))
    return batch


def test_on_policy_the_correction_is_idle_and_the_reference_is_near(params, windows):
    batch = with_sampler(pack_windows(windows, LENGTH, 2), params)
    _, metrics = rl()(init_state(params, SGD), batch, params)
    assert metrics["q_mean"] == pytest.approx(1, abs=1e-5)
    assert metrics["keep_share"] == 1
    assert metrics["clip_share"] == 0
    assert abs(metrics["kl"]) < 1e-6
    # Ratio 1: the value of the policy term is minus the mean reward.
    assert metrics["policy_loss"] == pytest.approx(-np.mean([w.credit.reward for w in windows]), rel=1e-4)


def test_several_passes_measure_the_ratio_from_before_the_first(params, windows):
    batch = with_sampler(pack_windows(windows, LENGTH, 2), params)
    twice, metrics = rl(loss=WirlLoss(eps=1e-6, kl=0.0), passes=2)(init_state(params, SGD), batch, params)
    assert int(twice.step) == 2
    # The second pass sees the ratio of the first update, and a band of width 0 stops most of it.
    assert metrics["clip_share"] > 0.3
    assert metrics["q_mean"] == pytest.approx(1, abs=1e-5)


def test_learning_raises_the_rewarded_and_lowers_the_punished(params, windows):
    good, bad = (
        Window(w.id, w.episode, w.task, w.index, w.spans, Credit(Outcome.VALID, r, 0.0))
        for w, r in ((windows[4], 1.0), (windows[5], -1.0))
    )
    batch = with_sampler(pack_windows([good, bad], LENGTH, 2), params)
    step, state = rl(optimizer=ADAMW), init_state(params, ADAMW)
    for _ in range(5):
        state, _ = step(state, batch, params)
    after = with_sampler(batch, state.params).logprobs_BxT - batch.logprobs_BxT
    assert after[batch.window_BxT == 0].mean() > 0.1
    assert after[batch.window_BxT == 1].mean() < -0.1


def test_published_parameters_stay_readable(params, windows):
    published = jax.tree.map(jnp.array, params)
    state, _ = rl()(init_state(published, SGD), pack_windows(windows, LENGTH, 2), published)
    assert_same(published, params, atol=0)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(published))
    assert jax.tree.structure(state.params) == jax.tree.structure(published)


def test_one_compile_whatever_the_number_of_rows_and_windows(params, windows, caplog):
    step = rl()
    state, _ = step(init_state(params, SGD), pack_windows(windows[:1], LENGTH, 2), params)
    with jax.log_compiles():
        state, _ = step(state, pack_windows(separately(windows), LENGTH, 2), params)
    assert "Compiling jit" not in caplog.text


def test_non_finite_raises_and_leaves_the_state_usable(params, windows):
    step, batch = rl(), pack_windows(windows, LENGTH, 2)
    state = init_state(params, SGD)
    broken = jax.tree.map(lambda w: w.at[0].set(jnp.nan), {"final_norm": params["final_norm"]})
    with pytest.raises(FloatingPointError, match="update 0 not made"):
        step(init_state({**params, **broken}, SGD), batch, params)
    state, _ = step(state, batch, params)
    assert int(state.step) == 1


def test_rows_that_do_not_come_out_even_raise(params, windows):
    with pytest.raises(ValueError, match="rows_multiple=5"):
        rl(rows=5)(init_state(params, SGD), pack_windows(windows, LENGTH), params)


def examples(n=6):
    rng = np.random.default_rng(3)
    return [(rng.integers(1, 64, 6 + i).astype(np.int32), rng.random(6 + i) < 0.7) for i in range(n)]


def test_sft_packed_equals_separate_and_loss_is_the_token_mean(params):
    step = make_sft_step(CONFIG, SGD, StepShape(2, 32))
    packed, metrics = step(init_state(params, SGD), pack_examples(examples(), LENGTH, 2))
    weights, losses = [], []
    total = jax.tree.map(jnp.zeros_like, params)
    n = sum(int(mask[1:].sum()) for _, mask in examples())
    for example in examples():
        share = int(example[1][1:].sum()) / n
        alone, own = step(init_state(params, SGD), pack_examples([example], LENGTH, 2))
        total = jax.tree.map(lambda t, new, old, s=share: t + s * (new - old), total, alone.params, params)
        weights.append(share)
        losses.append(own["loss"])
    assert metrics["loss"] == pytest.approx(np.dot(weights, losses), rel=1e-4)
    assert_same(jax.tree.map(lambda new, old: new - old, packed.params, params), total)


def test_muon_learns_a_small_corpus_by_heart(params):
    optimizer = sft_muon(CONFIG, 0.02, n_steps=40, warmup=2)
    step, state = make_sft_step(CONFIG, optimizer, StepShape(2, 32)), init_state(params, optimizer)
    batch = pack_examples(examples(3), LENGTH, 2)
    state, first = step(state, batch)
    for _ in range(39):
        state, last = step(state, batch)
    assert last["loss"] < 0.5 * first["loss"]


def test_restored_equals_never_stopped(params, windows, tmp_path):
    step, batch = rl(optimizer=ADAMW), pack_windows(windows, LENGTH, 2)
    state = init_state(params, ADAMW)
    for _ in range(2):
        state, _ = step(state, batch, params)
    checkpoint.save(tmp_path, 2, state, {})
    for _ in range(2):
        state, metrics = step(state, batch, params)
    _, again, _ = checkpoint.restore_latest(tmp_path, jax.eval_shape(lambda: init_state(params, ADAMW)))
    for _ in range(2):
        again, again_metrics = step(again, batch, params)
    assert metrics == again_metrics
    assert_same(state, again, atol=0)


def test_small_updates_of_coarse_weights_are_kept_where_weights_are_held_in_float32(windows):
    config, tiny = preset("micro", vocab_size=64, n_layers=1, dtype="bfloat16"), rl_adamw(1e-6, warmup=1)
    coarse = jax.jit(init, static_argnums=0)(config, jax.random.key(0))
    fine = jax.tree.map(lambda w: w.astype(jnp.float32), coarse)
    step, batch = make_rl_step(config, tiny, LOSS, TEMPERATURE, StepShape(2)), pack_windows(windows, LENGTH, 2)

    def moved(params):
        state, metrics = step(init_state(params, tiny), batch, params)
        changed = jax.tree.map(lambda new, old: jnp.mean(new != old), state.params, params)
        return np.mean(jax.tree.leaves(changed)), metrics["loss"]

    (lost, loss), (kept, same_loss) = moved(coarse), moved(fine)
    assert lost < 0.2 < 0.8 < kept
    assert loss == pytest.approx(same_loss, rel=1e-5)
