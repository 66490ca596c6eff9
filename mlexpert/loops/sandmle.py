"""Only make micro tasks, and say what came out: the gate's funnel and the balance of the set."""

from __future__ import annotations

import json
from pathlib import Path

from mlexpert.loops import screen, tasksets, workdir
from mlexpert.loops.settings import Config
from mlexpert.sandmle import gate, make
from mlexpert.tasks.task import load_set


def run(config: Config, path: Path) -> None:
    with workdir.hold(path, config) as held:
        folder = held / "tasks" / config.split
        report = tasksets.make_shown(folder, config.n, config.split, config.seed, tuple(config.kinds))
        rates = gate.balance(load_set(folder))
        workdir.finish(held, "tasks", kept=len(report.kept), drawn=report.drawn, drops=report.drops, balance=rates)
        workdir.write_atomic(held / "summary.json", json.dumps(workdir.stages(held)["tasks"], indent=1))
        screen.say(_table(report, rates, folder))


def _table(report: make.Report, rates: dict[str, float], folder: Path) -> str:
    drops = ", ".join(f"{reason} {n}" for reason, n in sorted(report.drops.items(), key=lambda item: -item[1]))
    rows = [f"| {pipeline} | {100 * rate:.0f} |" for pipeline, rate in rates.items()]
    return "\n".join(
        [
            f"{len(report.kept)} tasks kept of {report.drawn} drawn, in {folder}; dropped: {drops or 'none'}",
            "| the same pipeline on every task | any medal, % of tasks |",
            "|---|---|",
            *rows,
        ]
    )
