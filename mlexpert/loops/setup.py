"""From a config to the things that a loop works with: model, renderer, sandbox, environments, engine."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from mlexpert.harness import observation
from mlexpert.harness.environment import Environment
from mlexpert.harness.journal import Journal
from mlexpert.harness.state import Budget
from mlexpert.loops.pretrained import Pretrained, open_model
from mlexpert.loops.settings import Config, ConfigError
from mlexpert.loops.workdir import Workdir
from mlexpert.model import backends, lora
from mlexpert.model.config import Lora, ModelConfig, preset
from mlexpert.model.params import Params, declare
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.rollout.episode import EpisodeLimits
from mlexpert.rollout.renderer import Renderer, ToolStyle
from mlexpert.rollout.tokenizer import Tokenizer
from mlexpert.sandbox import choose
from mlexpert.sandbox.api import Sandbox
from mlexpert.tasks.grader_process import ProcessGrader
from mlexpert.tasks.task import Task
from mlexpert.types import CreditRule, Isolation, Limits, Sampling


class InfrastructureError(RuntimeError):
    """Episodes fail for reasons that are not the policy's; the message says where to look and what to do."""


@dataclass(frozen=True)
class Stage:
    """Everything that episodes need beside the engine and the weights."""

    config: Config
    workdir: Workdir
    model: ModelConfig  # as it is trained: with adapters, if there are any
    renderer: Renderer
    sandbox: Sandbox
    loaded: Pretrained | None  # what `model.load` names

    @property
    def limits(self) -> EpisodeLimits:
        return EpisodeLimits(**self.config.episode.to_dict())

    @property
    def sampling(self) -> Sampling:
        return Sampling(**self.config.sampling.to_dict())


def opened(config: Config) -> Pretrained | None:
    """What `model.load` names, None if it names nothing. Opened once a run: tokenizer, config and weights come from it.
    Raises ModelFileError."""
    return open_model(Path(config.model.load), config.model.dtype) if config.model.load else None


def make(config: Config, workdir: Workdir, tokenizer: Tokenizer, sandbox: Sandbox, loaded: Pretrained | None) -> Stage:
    """`loaded` is `opened(config)`. Raises ConfigError for what does not go together."""
    model = model_of(config, tokenizer, loaded)
    if 0 < model.max_length < config.episode.context_tokens:
        raise ConfigError(
            f"episode.context_tokens={config.episode.context_tokens} exceeds the {model.max_length} positions that "
            f"{model.name} was made for"
        )
    return Stage(config, workdir, model, renderer(config, tokenizer), sandbox, loaded)


def model_of(config: Config, tokenizer: Tokenizer, loaded: Pretrained | None) -> ModelConfig:
    """The preset with as many embeddings as the tokenizer has tokens, or the loaded model as it is; with adapters if
    the config asks for them. Raises ConfigError."""
    plain = loaded.config if loaded else preset(config.model.preset, vocab_size=tokenizer.vocab_size)
    if tokenizer.vocab_size > plain.vocab_size:
        raise ConfigError(f"{config.model.load} has {plain.vocab_size} embeddings for {tokenizer.vocab_size} tokens")
    asked = config.model.lora
    if not asked.rank:
        return plain
    try:
        model = replace(plain, lora=Lora(asked.rank, asked.alpha, tuple(asked.targets)))
        declare(model)
    except ValueError as error:
        raise ConfigError(f"model.lora: {error}") from error
    return model


def kernels_line(config: Config, loaded: Pretrained | None) -> str:
    """`attention chunked; grouped matmul blocked`: what every stage's training runs, each with its length of rows."""
    model = loaded.config if loaded else preset(config.model.preset)
    lengths = (config.base.row_length, config.sft.row_length, config.train.row_length)
    attentions = [backends.attention_of(model, length) for length in lengths]
    return backends.told(model, attentions, backends.grouped_matmul(""))


def served(stage: Stage, params: Params) -> Params:
    """What the engine holds of a policy: its weights with the adapters added."""
    return lora.merged(params, stage.model)[0]


def renderer(config: Config, tokenizer: Tokenizer) -> Renderer:
    """Small models, trained on these very lines, get tools as one-line signatures; large ones their JSON schemas."""
    return Renderer(tokenizer, ToolStyle(config.tokenizer.style), brief=config.budget.style == "short")


def engine(stage: Stage, params: Params, version: int = 0) -> EmbeddedEngine:
    """Raises ConfigError for an engine that is not built."""
    settings = stage.config.engine
    if settings.kind != "embedded":
        raise ConfigError(
            f"engine.kind={settings.kind!r} is not built yet: only 'embedded', which runs in this process"
        )
    weights, model = lora.merged(params, stage.model)
    return EmbeddedEngine(model, weights, settings.slots, settings.length, settings.chunk, version)


def require_runnable(config: Config) -> None:
    """Raises ConfigError at once for a preset that this program can print but not run."""
    if "engine" in config and config.engine.kind != "embedded":
        raise ConfigError(
            f"{config.name} samples from a {config.engine.kind} server with loaded weights, which is not built yet; "
            "print it with --dry_run, or run the laptop default: --config=configs/wirl.py"
        )


@asynccontextmanager
async def open_sandbox(config: Config) -> AsyncIterator[Sandbox]:
    """Raises ConfigError for a kind below its own floor, SandboxError if nothing at or above the floor works here."""
    asked = config.sandbox
    try:
        sandbox = await choose.started(asked.slots, asked.kind, asked.floor, asked.image, asked.runtime, asked.gpus)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        yield sandbox
    finally:
        await sandbox.close()


def isolation_line(isolation: Isolation) -> str:
    """`namespaces; enforced: files, network, ...; not enforced: disk (why)`"""
    parts = ("files", "network", "processes", "memory", "cpu", "disk")
    held = [name for name in parts if getattr(isolation, name)]
    open_ = [name for name in parts if not getattr(isolation, name)]
    line = f"{isolation.kind}; enforced: {', '.join(held) or 'nothing'}"
    line += f"; not enforced: {', '.join(open_)}" if open_ else ""
    return line + (f" ({isolation.note})" if isolation.note else "")


def environment(config: Config, held: Workdir, sandbox: Sandbox, task: Task, episode: str, seed: int) -> Environment:
    """A new episode, or the one that its journal holds."""
    budget = config.budget
    return Environment(
        task,
        sandbox,
        graders().grader(task),
        Budget(budget.executions, budget.steps, budget.malformed, budget.wall_s),
        Journal(journal_path(held, episode)),
        collected(held, episode),
        _limits(config),
        budget.feedback,
        seed,
        {"short": observation.SHORT, "full": observation.FULL}[budget.style],
    )


def _limits(config: Config) -> Limits:
    asked = config.sandbox
    return Limits(
        wall_s=asked.wall_s, cpu_s=asked.cpu_s, memory_mb=asked.memory_mb, pids=asked.pids, disk_mb=asked.disk_mb
    )


def forget_files(stage: Stage, episode: str) -> None:
    """Submissions are graded the moment they are collected; their verdicts are in the journal."""
    shutil.rmtree(collected(stage.workdir, episode), ignore_errors=True)


def journal_path(workdir: Workdir, episode: str) -> Path:
    return workdir / "episodes" / f"{episode}.jsonl"


def collected(workdir: Workdir, episode: str) -> Path:
    return workdir / "collected" / episode


@cache
def graders() -> ProcessGrader:
    """One for the whole run: a process that reads each task's answers once and never runs what a policy wrote."""
    return ProcessGrader()


def credit_rule(config: Config) -> CreditRule:
    from mlexpert.train.credit import wirl

    return partial(wirl.credit, trend=config.train.trend)


def seed_of(*parts: object) -> int:
    """63 bits that depend on all parts and on nothing else: the same on every machine and in every process."""
    return int.from_bytes(hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()) >> 1
