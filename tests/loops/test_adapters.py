"""`model.lora` in the loops: adapters alone are trained, saved and resumed; merged they are sampled and exported."""

import asyncio
import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from mlexpert.loops import export, policies, saved, settings, setup, sft
from mlexpert.loops.pretrained import open_model
from mlexpert.loops.settings import ConfigError
from mlexpert.loops.workdir import Workdir
from mlexpert.model import hf, lora, params, transformer
from mlexpert.model.config import Lora
from mlexpert.rollout import tokenizer as tokenizers
from mlexpert.rollout.weights import checksum
from mlexpert.train import optimizer
from mlexpert.train.checkpoint import CheckpointError
from mlexpert.train.packing import pack_examples
from mlexpert.train.step import init_state, make_sft_step
from tests.model.families import FAMILIES, weights

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
CALL = {"name": "execute_code", "arguments": {"code": 'print("cv 0.5")'}}
RECORD = {
    "opening": {"system": "You write scripts.", "tools": [], "user": "Predict `soil_depth`."},
    "turns": [{"prompt": {"kind": "opening", "text": ""}, "think": "try trees", "call": CALL, "finish": ""}],
}


def config_of(name="wirl", **lora_fields):
    spec = importlib.util.spec_from_file_location(name, CONFIGS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config("smoke")
    config.model.lora.update(dict(rank=4, alpha=8.0), **lora_fields)
    return config


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.train((), 300)


async def no_probe(stage, params):
    return {"copy_error_rate": 0.0}


def stage_in(folder, tokenizer, **lora_fields):
    config = config_of(**lora_fields)
    config.sft.update(steps=3, rows=2, row_length=384, lr=1e-2)
    tokenizers.save(tokenizer, folder / "tokenizer.json")
    return setup.make(config, Workdir(folder), tokenizer, None, None)


def base_of(stage, seed=0):
    return params.init(replace(stage.model, lora=None), jax.random.key(seed))


def save_base(stage, base):
    """As the stage before SFT leaves it."""
    plain = replace(stage.model, lora=None)
    state = init_state(base, optimizer.sft_muon(plain, 1e-2, 100))
    saved.save(stage.workdir / "checkpoints" / "base", 1, state, {}, keep=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tokenizer):
    """(stage, base, policy after SFT)"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies.probe, "first_turns", no_probe)
        patch.setattr(policies, "reskin", lambda record, rng: record)
        stage = stage_in(tmp_path_factory.mktemp("run"), tokenizer, targets=("attention", "moe"))
        base = base_of(stage)
        save_base(stage, base)
        return stage, base, asyncio.run(policies.train_sft(stage, base, [RECORD, RECORD]))


def same(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), one, other))


def test_sft_leaves_the_base_as_it_was_to_the_bit(trained):
    stage, base, policy = trained
    adapters, stays = lora.split(policy)
    assert same(stays, base)
    fresh, _ = lora.split(params.adapt(base, stage.model, jax.random.key(stage.config.seed)))
    assert all(bool((a != b).any()) for a, b in zip(jax.tree.leaves(adapters), jax.tree.leaves(fresh), strict=True))


def test_a_checkpoint_holds_adapters_and_nothing_that_is_frozen(trained):
    stage, _, policy = trained
    books = json.loads(next((stage.workdir / "checkpoints" / "sft").glob("step_*/books.json")).read_text())
    arrays = [name for name in books["leaves"] if name.startswith(".params")]
    assert arrays and all("['lora']" in name for name in arrays)
    numbers = sum(int(np.prod(shape)) for shape, _ in books["leaves"].values())
    assert numbers < 3 * sum(leaf.size for leaf in jax.tree.leaves(lora.split(policy)[0])) + 100


def test_a_saved_policy_is_its_adapters_on_the_base_policy(trained):
    stage, base, policy = trained
    restored, version = policies.restore(stage, "sft")
    assert version == 3 and same(restored, policy)
    before, _ = policies.restore(stage, "base")
    assert same(lora.merged(before, stage.model)[0], base)


def test_adapters_of_another_base_are_refused(trained, tmp_path, tokenizer):
    stage, _, _ = trained
    other = init_state(
        params.adapt(base_of(stage, 1), stage.model, jax.random.key(0)), policies._optimizer(stage.model, "sft")
    )
    with pytest.raises(CheckpointError, match="adapters of other weights"):
        saved.restore(stage.workdir / "checkpoints" / "sft", other)
    none = replace(stage, model=replace(stage.model, lora=None))
    with pytest.raises(CheckpointError, match="another model or optimizer"):
        policies.restore(none, "sft")


def test_the_engine_serves_the_merged_policy(trained):
    stage, _, policy = trained
    plain = replace(stage.model, lora=None)
    engine = setup.engine(stage, policy)
    assert engine.config == plain
    assert engine.checksum() == checksum(setup.served(stage, policy)) == checksum(lora.merged(policy, stage.model)[0])
    row = np.arange(20, dtype=np.int32)[None], np.ones((1, 20), np.int32), np.arange(20, dtype=np.int32)[None]
    adapted = jax.jit(transformer.hidden, static_argnums=1)(policy, stage.model, *row)
    merged = jax.jit(transformer.hidden, static_argnums=1)(setup.served(stage, policy), plain, *row)
    np.testing.assert_allclose(merged, adapted, atol=1e-6)


def test_an_exported_policy_is_the_merged_one(trained, tmp_path):
    stage, _, policy = trained
    config = config_of("export", targets=("attention", "moe"))
    config.update(checkpoint=str(stage.workdir.path), folder=str(tmp_path / "out"), policy="sft")
    export.run(config, tmp_path)
    opened = open_model(tmp_path / "out")
    assert opened.config.lora is None and same(opened.params(), setup.served(stage, policy))


def test_training_goes_on_from_saved_adapters_as_if_it_had_not_stopped(trained, tmp_path):
    stage, base, _ = trained
    rng = np.random.default_rng(0)
    batch = pack_examples([(rng.integers(1, 299, 30).astype(np.int32), np.ones(30, bool)) for _ in range(4)], 64, 4)
    muon = optimizer.sft_muon(stage.model, 1e-2, 100)
    step = make_sft_step(stage.model, muon)

    def fresh():
        return init_state(params.adapt(base, stage.model, jax.random.key(0)), muon)

    whole, _ = step(step(fresh(), batch)[0], batch)
    part, _ = step(fresh(), batch)
    saved.save(tmp_path, 1, part, {"at": 1})
    _, part, books = saved.restore(tmp_path, fresh())
    part, _ = step(part, batch)
    assert books == {"at": 1} and same(part.params, whole.params) and same(part.opt_state, whole.opt_state)


# ---------------------------------------------------------------- beside a loaded model
@pytest.fixture
def model(tmp_path, tokenizer):
    config = replace(FAMILIES["qwen3_moe"], vocab_size=320, max_length=400)
    tokenizers.save(tokenizer, tmp_path / "tokenizer.json")
    files = {"tokenizer.json": (tmp_path / "tokenizer.json").read_text()}
    hf.save(tmp_path / "model", config, weights(config), hf.Companions({}, files))
    return tmp_path / "model"


def test_a_loaded_model_is_opened_once_and_gets_adapters(model, tmp_path, monkeypatch):
    times = []
    monkeypatch.setattr(setup, "open_model", lambda *asked: times.append(asked) or open_model(*asked))

    async def records(*_):
        return []

    async def no_training(stage, base, kept):
        return params.adapt(base, stage.model, jax.random.key(0))

    monkeypatch.setattr(sft, "teacher_episodes", records)
    monkeypatch.setattr(policies, "train_sft", no_training)
    config = config_of()
    config.model.load = str(model)
    stage, policy = asyncio.run(sft.policy_before_rl(config, Workdir(tmp_path), None, [], 5))
    assert len(times) == 1
    assert stage.model.lora == Lora(4, 8.0, tuple(config.model.lora.targets))
    assert same(setup.served(stage, policy), weights(replace(stage.model, lora=None)))
    evaluation = config_of("evaluate")
    evaluation.update(policy="loaded")
    evaluation.model.load = str(model)
    stage, policy, _ = policies.load(evaluation, None, None)
    assert len(times) == 2 and same(setup.served(stage, policy), weights(replace(stage.model, lora=None)))


# ---------------------------------------------------------------- what cannot be
def test_wrong_adapters_are_refused_by_key(tokenizer):
    with pytest.raises(ConfigError, match=r"model\.lora\.rank=-1: 0 trains all weights.*(?s:.)*model\.lora\.alpha"):
        settings.validate(config_of(rank=-1, alpha=0.0))
    with pytest.raises(ConfigError, match=r"model\.lora: adapters target attention\.qury.*it has attention\.key"):
        setup.model_of(config_of(targets=("attention.qury",)), tokenizer, None)


def test_rank_0_means_no_adapters(tokenizer):
    assert setup.model_of(config_of(rank=0), tokenizer, None).lora is None
