import importlib.util
from pathlib import Path

import jax
import pytest

from mlexpert.loops import export
from mlexpert.loops.pretrained import open_model
from mlexpert.loops.settings import ConfigError
from mlexpert.loops.workdir import WorkdirError
from mlexpert.model import params
from mlexpert.model.config import preset
from mlexpert.rollout import tokenizer as tokenizers
from mlexpert.train import checkpoint, optimizer
from mlexpert.train.step import init_state

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "export.py"


def config_of(**fields):
    spec = importlib.util.spec_from_file_location("export", CONFIG)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config("smoke")
    config.update(fields)
    return config


def test_a_saved_policy_becomes_a_folder_that_loads_as_the_same_policy(tmp_path):
    tokenizer = tokenizers.train(["import pandas\n"] * 20, 300)
    tokenizers.save(tokenizer, tmp_path / "run" / "tokenizer.json")
    model = preset("micro", vocab_size=tokenizer.vocab_size)
    state = init_state(params.init(model, jax.random.key(0)), optimizer.rl_adamw(1e-4))
    checkpoint.save(tmp_path / "run" / "checkpoints" / "rl", 7, state, {}, keep=1)
    export.run(config_of(checkpoint=str(tmp_path / "run"), folder=str(tmp_path / "out")), tmp_path)
    opened = open_model(tmp_path / "out")
    assert opened.stop_ids == (tokenizer.reserved["<|im_end|>"],)
    same = jax.tree.map(lambda one, other: bool((one == other).all()), opened.params(), state.params)
    assert jax.tree.all(same) and opened.agent_tokenizer().reserved == tokenizer.reserved


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"folder is empty: --config\.folder"):
        export.run(config_of(), tmp_path)
    with pytest.raises(WorkdirError, match=r"tokenizer\.json does not exist: --config\.checkpoint must name"):
        export.run(config_of(checkpoint=str(tmp_path), folder=str(tmp_path / "out")), tmp_path)
