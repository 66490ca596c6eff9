"""The whole experiment: tasks, teacher episodes, base policy, SFT, held-out evaluation, WIRL, held-out evaluation.

Each stage is skipped if the folder already holds its result, so the same command goes on wherever it was stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from mlexpert.loops import heldout, learn, policies, report, screen, setup, sft, tasksets, workdir
from mlexpert.loops import settings as configs
from mlexpert.loops.settings import Config
from mlexpert.loops.setup import Stage
from mlexpert.loops.workdir import Workdir
from mlexpert.model.params import Params
from mlexpert.rollout import weights
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.tasks.task import Task

STAGES = 7


def run(config: Config, path: Path) -> None:
    setup.require_runnable(config)
    with workdir.hold(path, config) as held:
        screen.say(f"{config.name}: config {configs.config_hash(config)}, everything goes to {path}")
        asyncio.run(_run(config, held))


async def _run(config: Config, held: Workdir) -> None:
    screen.heading(1, STAGES, "micro tasks with an executed ladder of reference solutions")
    teaching, held_out = tasksets.teaching(config, held), tasksets.held_out(config, held)
    train_tasks = tasksets.training(config, held)
    async with setup.open_sandbox(config) as sandbox:
        isolation = setup.isolation_line(sandbox.isolation)
        screen.say(f"  sandbox: {isolation}")
        stage, sft_params = await sft.policy_before_rl(config, held, sandbox, teaching, STAGES)
        async with setup.engine(stage, sft_params) as engine:
            screen.heading(5, STAGES, f"held-out evaluation: {heldout.protocol(config)}")
            before = await heldout.evaluate(stage, engine, held_out, "sft")
            screen.heading(6, STAGES, "WIRL: windows of interaction, each paid by what its execution achieved")
            await _train(stage, train_tasks, sft_params, engine)
            screen.heading(7, STAGES, "held-out evaluation of the trained policy")
            after = await heldout.evaluate(stage, engine, held_out, "wirl")
    training = workdir.facts(held, "wirl")
    report.conclude(held, config, {"sft": before, "wirl": after}, len(held_out), isolation, training)


async def _train(stage: Stage, tasks: Sequence[Task], reference: Params, engine: EmbeddedEngine) -> None:
    """WIRL, unless it is finished; either way the engine serves the trained policy afterwards."""
    done = workdir.facts(stage.workdir, "wirl")
    if done is None:
        learner = await learn.learn(stage, tasks, reference, engine)
        workdir.finish(stage.workdir, "wirl", **learner.facts())
        return
    params, version = policies.restore(stage, "rl")
    await weights.publish(engine, setup.served(stage, params), version)
