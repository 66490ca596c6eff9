"""Configs: resolved, checked, printed, and told apart.

A config is an `ml_collections.ConfigDict` made by `configs/<name>.py:get_config(preset)`. Nothing here fills in a
value: an unknown key, a value of the wrong type or a combination that cannot work is an error that names the key.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from mlexpert.model.config import PRESETS
from mlexpert.sandbox.kinds import AUTO, STRENGTH
from mlexpert.sandmle.families import KINDS
from mlexpert.sandmle.names import SPLITS

# A locked ConfigDict. Its stubs give every attribute the union of all value types, so the type checker is told nothing.
Config = Any


class ConfigError(ValueError):
    """A config that cannot be run as it stands; the message names the key and the remedy."""


def parse_flags(argv: Sequence[str]) -> list[str]:
    """absl's parser, with an unknown `--config.key` turned into the nearest known keys. Raises ConfigError."""
    name = _config_name(argv)
    if name:
        path = Path(name.split(":", 1)[0])
        if not path.is_file():
            raise ConfigError(
                f"no config file {path}; there are: {', '.join(sorted(map(str, Path('configs').glob('*.py'))))}"
            )
    try:
        return flags.FLAGS(list(argv))
    except (AttributeError, KeyError) as error:
        raise ConfigError(unknown_key_message(argv)) from error
    except (flags.Error, ValueError, TypeError) as error:  # a missing config, another type, an unknown preset or flag
        raise ConfigError(str(error).strip().splitlines()[-1]) from error


def unknown_key_message(argv: Sequence[str]) -> str:
    """Which `--config.key` override does not exist, and the three nearest keys that do."""
    known = list(flatten(_as_written(_config_name(argv))))
    asked = [a[len("--config.") :].split("=", 1)[0] for a in argv if a.startswith("--config.")]
    lines = []
    for key in asked:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=3, cutoff=0.3)
            lines.append(f"unknown config key {key!r}; nearest: {', '.join(near) or 'none'}")
    return "\n".join(lines) or "the config could not be read; run with --dry_run to see what it resolves to"


def _config_name(argv: Sequence[str]) -> str:
    """The value of --config, in either spelling; "" if there is none."""
    for i, argument in enumerate(argv):
        if argument.startswith("--config="):
            return argument.split("=", 1)[1]
        if argument == "--config" and i + 1 < len(argv):
            return argv[i + 1]
    return ""


def _as_written(name: str) -> Config:
    """The config of `configs/<name>.py[:preset]` without overrides."""
    file, _, preset = name.partition(":")
    return runpy.run_path(file)["get_config"](*([preset] if preset else []))


def flatten(config: Config, prefix: str = "") -> dict[str, Any]:
    """`{"train.lr": 2e-4, ...}` in a stable order."""
    flat: dict[str, Any] = {}
    for key in sorted(config.keys()):
        value = config[key]
        name = f"{prefix}{key}"
        flat.update(flatten(value, f"{name}.") if isinstance(value, ConfigDict | dict) else {name: value})
    return flat


def as_json(config: Config) -> str:
    return json.dumps(flatten(config), indent=1, sort_keys=True, default=list)


def config_hash(config: Config) -> str:
    """First 12 hex digits of the SHA-256 of the resolved config."""
    return hashlib.sha256(as_json(config).encode()).hexdigest()[:12]


def differences(config: Config, saved_json: str) -> list[str]:
    """`key: saved -> now` for every key in which the two configs differ."""
    now, saved = json.loads(as_json(config)), json.loads(saved_json)
    keys = sorted(now.keys() | saved.keys())
    return [f"{k}: {saved.get(k, '(absent)')} -> {now.get(k, '(absent)')}" for k in keys if now.get(k) != saved.get(k)]


def validate(config: Config) -> Config:
    """The config itself, if it can work. Raises ConfigError that lists every fault found."""
    faults = list(_faults(config))
    if faults:
        raise ConfigError("this config cannot run:\n" + "\n".join(f"  {fault}" for fault in faults))
    return config


def _faults(config: Config) -> Iterator[str]:
    yield from _count_faults(config)
    yield from _choice_faults(config)
    if "preset" in config.get("model", {}) and config.model.preset not in PRESETS:
        yield f"model.preset={config.model.preset!r}: known presets are {', '.join(PRESETS)}"
    if "lora" in config.get("model", {}):
        yield from _lora_faults(config.model.lora)
    if "episode" in config and "engine" in config and config.episode.context_tokens > config.engine.length:
        yield f"episode.context_tokens={config.episode.context_tokens} exceeds engine.length={config.engine.length}"
    if "train" in config:
        yield from _train_faults(config)
    if "sampling" in config:
        if config.sampling.temperature <= 0:
            yield f"sampling.temperature={config.sampling.temperature}: must be above 0"
        if not 0 < config.sampling.top_p <= 1:
            yield f"sampling.top_p={config.sampling.top_p}: must be in (0, 1]"
    if isinstance(config.get("tasks"), ConfigDict) and config.tasks.n_held_out < 1:
        yield "tasks.n_held_out must be at least 1: a result without held-out tasks says nothing"


_COUNTS = (
    *("tasks.n_train", "tasks.n_held_out", "corpus.episodes", "base.steps", "base.rows", "base.probe_every"),
    *("sft.steps", "sft.rows", "sft.probe_every", "engine.slots", "engine.chunk", "episode.turn_tokens", "eval.runs"),
    *("budget.executions", "budget.steps", "budget.malformed"),
    *("sandbox.slots", "sandbox.memory_mb", "sandbox.pids", "sandbox.disk_mb", "train.batch_windows", "train.updates"),
    *("train.passes", "train.rows_per_micro", "train.concurrency", "train.save_every", "n", "max_tokens"),
    *("seq_len", "steps", "vocab_chunk"),
)
_CHOICES = {
    "train.correction": ("weight_and_mask", "mask_only", "off"),
    "tokenizer.style": ("tags", "json"),
    "budget.style": ("short", "full"),
    "budget.feedback": ("blind", "score"),
    "engine.kind": ("embedded", "sglang"),
    "sandbox.kind": (AUTO, *STRENGTH),
    "sandbox.floor": tuple(STRENGTH),
    "split": SPLITS,
    "policy": ("base", "sft", "rl", "loaded"),
    "compile": ("auto", "cpu", "none"),
    "exchange": ("padded", "ragged"),
    "attention": ("", "chunked", "splash", "triton"),
    "grouped": ("", "blocked", "ragged_dot", "triton"),
}


def _count_faults(config: Config) -> Iterator[str]:
    flat = flatten(config)
    yield from (f"{key}={flat[key]}: must be at least 1" for key in _COUNTS if key in flat and flat[key] < 1)
    for key in ("train.max_age", "rows", "support"):
        if flat.get(key, 0) < 0:
            yield f"{key}={flat[key]}: must not be negative"
    if flat.get("capacity", 1) <= 0:
        yield f"capacity={flat['capacity']}: a round between experts must be above 0"
    kinds = flat.get("tasks.kinds", flat["kinds"] if flat.get("loop") == "sandmle" else ())
    for kind in kinds:
        if kind not in KINDS:
            yield f"kind {kind!r}: known are {', '.join(KINDS)}; several are written \"('tabular','text')\""


def _choice_faults(config: Config) -> Iterator[str]:
    flat = flatten(config)
    for key, choices in _CHOICES.items():
        if key in flat and flat[key] not in choices:
            yield f"{key}={flat[key]!r}: one of {', '.join(choices)}"
    if "episode" in config and not config.episode.turn_tokens < config.episode.context_tokens:
        yield f"episode.turn_tokens={config.episode.turn_tokens} leaves no room in episode.context_tokens"
    if flat.get("policy") == "loaded" and not flat["model.load"]:
        yield "policy=loaded needs model.load: a Hugging Face folder or a .gguf file"
    small = flat.get("engine.kind") == "embedded" and "corpus" in config and not flat.get("model.load")
    if small and (flat["budget.style"], flat["budget.feedback"]) != ("short", "blind"):
        yield "budget.style and budget.feedback: policies trained from scratch read the short, blind protocol only"


def _lora_faults(lora: Config) -> Iterator[str]:
    if lora.rank < 0:
        yield f"model.lora.rank={lora.rank}: 0 trains all weights, from 1 on adapters of this rank"
    if lora.alpha <= 0 or not lora.targets:
        yield f"model.lora.alpha={lora.alpha}, model.lora.targets={lora.targets}: above 0, and at least one target"


def _train_faults(config: Config) -> Iterator[str]:
    train = config.train
    if train.lr < 0:
        yield f"train.lr={train.lr}: must not be negative"
    if not 0 < train.q_min < 1 < train.q_max:
        yield f"train.q_min={train.q_min}, train.q_max={train.q_max}: the band must contain 1"
    if train.row_length < config.episode.context_tokens:
        context = config.episode.context_tokens
        yield f"train.row_length={train.row_length} is shorter than episode.context_tokens={context}"


def describe(config: Config) -> str:
    """The resolved config as a readable page, its hash, and what the model would weigh."""
    from mlexpert.model import params
    from mlexpert.model.config import preset

    lines = [f"{key} = {value}" for key, value in flatten(config).items()]
    lines.append(f"config_hash = {config_hash(config)}")
    if "preset" in config.get("model", {}):
        lines.append(f"parameters = {params.count(preset(config.model.preset)):,}")
    return "\n".join(lines)
