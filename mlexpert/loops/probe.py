"""Does a policy copy the names of a task that it has never seen? The loss of SFT does not show it, a sample does.

One turn is sampled for each of a few descriptions of the held-out split (no data, nothing is executed), and every
quoted name in its script is looked up in the description.
"""

from __future__ import annotations

import asyncio
import re

import numpy as np

from mlexpert.harness import observation, prompts
from mlexpert.harness.observation import Left
from mlexpert.loops import setup
from mlexpert.loops.setup import Stage
from mlexpert.model.params import Params
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.rollout.engine import Request
from mlexpert.sandmle import data_strategist, technical_writer
from mlexpert.types import Limits, ToolCall

SEED = 77  # of the descriptions: no task set uses it
_NAME = re.compile(r'"([a-z]+_[a-z]+)"')
_NOT_COLUMNS = {"sample_submission", "predict_proba", "decision_function"}


async def first_turns(stage: Stage, params: Params, n: int = 32) -> dict[str, float]:
    """`call_rate`: turns that are a script; `copy_error_rate`: scripts with a name that the task does not have."""
    budget = observation.budget_line(Left(stage.config.budget.executions, steps=0, hours=0.0), observation.SHORT)
    texts = [technical_writer.describe(data_strategist.design("held_out", SEED, i)) for i in range(n)]
    async with setup.engine(stage, params) as engine:
        asked = [_turn(stage, engine, text, budget, i) for i, text in enumerate(texts)]
        codes = await asyncio.gather(*asked)
    scripts = [(text, code) for text, code in zip(texts, codes, strict=True) if code is not None]
    wrong = sum(bool(unknown_names(code, text)) for text, code in scripts)
    return {"call_rate": len(scripts) / n, "copy_error_rate": wrong / len(scripts) if scripts else 1.0}


def unknown_names(code: str, description: str) -> set[str]:
    """Quoted names of a script that look like columns and are not in the task's description."""
    return {name for name in _NAME.findall(code) if f"`{name}`" not in description} - _NOT_COLUMNS


async def _turn(stage: Stage, engine: EmbeddedEngine, text: str, budget: str, number: int) -> str | None:
    """The script of a first turn, None if there is none."""
    opening = prompts.opening(text, budget, Limits(), full=False, blind=True)
    ids_P = stage.renderer.opening(opening.system, opening.tools, opening.user)
    name = f"probe-{number}"
    request = Request(
        name, np.asarray(ids_P), stage.limits.turn_tokens, stage.renderer.stop_id, stage.sampling, setup.seed_of(name)
    )
    sample = await engine.sample(request)
    engine.release(name)
    action = stage.renderer.parse(sample.ids_N)
    return action.arguments.get("code", "") if isinstance(action, ToolCall) and action.name == "execute_code" else None
