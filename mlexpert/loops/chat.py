"""One prompt, one answer, by a real model: printed as it is drawn, with the speed at the end.

The engine is the one that RL samples from. A turn is asked for in short pieces; each extends the last, so the engine's
slot keeps everything it has computed, and the draws do not depend on the length of the pieces.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np

from mlexpert.loops import recipes, screen
from mlexpert.loops.pretrained import Pretrained, open_model
from mlexpert.loops.settings import Config, ConfigError
from mlexpert.model import params as weights
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.rollout.engine import Request
from mlexpert.types import Sampling

PIECE = 16  # tokens between two prints


def run(config: Config, _: Path) -> None:
    """Writes nothing but the cache. Raises ConfigError, RecipeError, ModelFileError."""
    if not config.prompt:
        raise ConfigError('prompt is empty: --config.prompt="What is the capital of France?"')
    cache = Path(config.cache) if config.cache else recipes.CACHE
    path = Path(config.model.load) if config.model.load else recipes.ready(recipes.read(Path(config.recipe)), cache)
    _keep_programs(cache.expanduser() / "programs")
    model = open_model(path, config.model.dtype)
    ids_P = np.asarray(model.tokenizer.encode(model.prompt(config.prompt), add_special_tokens=False).ids, np.int32)
    _check_length(config, model, len(ids_P))
    what = f"{model.config.family}, {weights.count(model.config):,} parameters, {model.config.dtype}"
    screen.say(f"{path}: {what}" + ("" if model.template else "; it has no chat template, so it continues your text"))
    asyncio.run(_answer(config, model, ids_P))


def _keep_programs(folder: Path) -> None:
    """Compiled programs are kept for the next start."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _check_length(config: Config, model: Pretrained, n_prompt: int) -> None:
    limit = model.config.max_length
    if limit and n_prompt + config.max_tokens > limit:
        raise ConfigError(
            f"a prompt of {n_prompt} tokens and max_tokens={config.max_tokens} exceed the {limit} positions that "
            f"{model.config.name} was made for: shorten one of them"
        )


async def _answer(config: Config, model: Pretrained, ids_P: np.ndarray) -> None:
    sampling = Sampling(**config.sampling.to_dict())
    length = len(ids_P) + config.max_tokens + 1
    drawn: list[int] = []
    shown = ""
    began = time.monotonic()
    async with EmbeddedEngine(model.config, model.params(), slots=1, length=length, chunk=PIECE) as engine:
        screen.say(f"loaded in {time.monotonic() - began:.1f} s\n")
        with _clock() as seconds:
            while len(drawn) < config.max_tokens and not (drawn and drawn[-1] in model.stop_ids):
                sample = await engine.sample(_request(config, model, np.asarray([*ids_P, *drawn], np.int32), sampling))
                drawn += _until_stop(sample.ids_N.tolist(), model.stop_ids)
                drawn = drawn[: config.max_tokens]
                shown += _show(_text(model, drawn).rstrip("\ufffd"), shown)  # a character may still lack bytes
    _show(_text(model, drawn), shown)
    counts = f"{len(ids_P)} tokens of prompt, {len(drawn)} of answer in {seconds['running']:.1f} s"
    speed = f"{len(drawn) / seconds['running']:.1f} tokens/s"
    print(f"\n\n{counts} ({speed}), after {seconds['compiling']:.1f} s of compiling")


@contextmanager
def _clock() -> Iterator[dict[str, float]]:
    """Seconds in the block: "compiling", and the rest as "running". Programs are compiled when they are first needed,
    in the midst of the answer."""
    seconds = {"compiling": 0.0, "running": 0.0}

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            seconds["compiling"] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    began = time.monotonic()
    try:
        yield seconds
    finally:
        seconds["running"] = time.monotonic() - began - seconds["compiling"]
        jax.monitoring.unregister_event_duration_listener(listen)


def _request(config: Config, model: Pretrained, context_P: np.ndarray, sampling: Sampling) -> Request:
    stop = model.stop_ids[0] if model.stop_ids else -1
    return Request("chat", context_P, PIECE, stop, sampling, config.seed)


def _until_stop(ids: list[int], stop_ids: tuple[int, ...]) -> list[int]:
    """The engine knows one closing token, a model may have several."""
    ends = [i + 1 for i, token in enumerate(ids) if token in stop_ids]
    return ids[: ends[0]] if ends else ids


def _text(model: Pretrained, drawn: list[int]) -> str:
    return model.tokenizer.decode([i for i in drawn if i not in model.stop_ids], skip_special_tokens=False)


def _show(text: str, shown: str) -> str:
    """Prints and returns what `text` has beyond `shown`."""
    new = text[len(shown) :]
    print(new, end="", flush=True)
    return new
