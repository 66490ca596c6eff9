import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from mlexpert.loops import settings
from mlexpert.loops.settings import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "configs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments):
    command = [sys.executable, str(ROOT / "experiments" / "run.py"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("preset", ["laptop", "smoke", "qwen3_8b", "qwen3_6_35b_a3b"])
def test_every_preset_resolves_validates_and_prints(preset):
    config = settings.validate(load("wirl").get_config(preset))
    assert f"config_hash = {settings.config_hash(config)}" in settings.describe(config)


def test_the_papers_settings():
    config = load("wirl").get_config("qwen3_6_35b_a3b")
    sampling = config.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.6, 0.95, 20)
    assert (config.train.batch_windows, config.train.kl, config.train.entropy) == (32, 1e-3, 1e-4)
    assert (config.train.q_min, config.train.q_max, config.episode.context_tokens) == (0.2, 4.0, 131072)


def test_the_hash_knows_every_value():
    one, other = load("wirl").get_config(), load("wirl").get_config()
    assert settings.config_hash(one) == settings.config_hash(other)
    other.train.lr = 1e-3
    assert settings.config_hash(one) != settings.config_hash(other)


def test_faults_are_listed_together():
    config = load("wirl").get_config()
    config.train.lr = -1.0
    config.sampling.temperature = 0.0
    config.model.preset = "gpt"
    with pytest.raises(ConfigError) as error:
        settings.validate(config)
    assert all(key in str(error.value) for key in ("train.lr", "sampling.temperature", "model.preset"))


def test_an_unknown_key_names_the_nearest():
    result = run("--config=configs/wirl.py", "--config.train.lrr=1", "--dry_run")
    assert result.returncode == 2
    assert "unknown config key 'train.lrr'" in result.stderr and "train.lr" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_config_file_names_those_that_exist():
    result = run("--config=configs/nope.py")
    assert result.returncode == 2
    assert "configs/wirl.py" in result.stderr and "Traceback" not in result.stderr


def test_dry_run_prints_an_override():
    result = run("--config=configs/wirl.py:qwen3_8b", "--config.train.lr=3e-6", "--dry_run")
    assert result.returncode == 0, result.stderr
    assert "train.lr = 3e-06" in result.stdout and "parameters = 8,19" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "config"),
        (("--config=configs/wirl.py:foo",), "unknown preset 'foo'"),
        (("--config=configs/wirl.py", "--config.train.lr=abc"), "abc"),
        (("--config=configs/wirl.py", "--config.train.updates=1.5"), "1.5"),
        (("--config=configs/wirl.py", "--foo=1"), "foo"),
        (("--config", "configs/wirl.py", "--config.trian.lr=1"), "trian.lr"),
        (("--config=configs/wirl.py", "--config.eval.runs=0", "--dry_run"), "eval.runs=0"),
        (("--config=configs/wirl.py:qwen3_8b",), "not built yet"),
    ],
)
def test_a_bad_command_is_one_line_and_no_traceback(arguments, said):
    result = run(*arguments)
    assert result.returncode == 2, result.stderr
    assert said in result.stderr and "Traceback" not in result.stderr
