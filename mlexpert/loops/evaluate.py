"""A saved policy on a task set.

python experiments/run.py --config=configs/evaluate.py --workdir=runs/evaluate --config.checkpoint=runs/wirl
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from mlexpert.loops import heldout, policies, report, screen, setup, tasksets, workdir
from mlexpert.loops.settings import Config
from mlexpert.loops.workdir import Workdir


def run(config: Config, path: Path) -> None:
    setup.require_runnable(config)
    with workdir.hold(path, config) as held:
        asyncio.run(_run(config, held))


async def _run(config: Config, held: Workdir) -> None:
    screen.heading(1, 2, "held-out tasks")
    tasks = tasksets.held_out(config, held)
    async with setup.open_sandbox(config) as sandbox:
        isolation = setup.isolation_line(sandbox.isolation)
        screen.say(f"  sandbox: {isolation}")
        stage, params, version = policies.load(config, held, sandbox)
        screen.heading(2, 2, heldout.protocol(config))
        async with setup.engine(stage, params, version) as engine:
            lines = await heldout.evaluate(stage, engine, tasks, config.policy)
    report.conclude(held, config, {config.policy: lines}, len(tasks), isolation)
