"""What a run leaves for people: `summary.json`, `summary.md` and `curves.png`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from mlexpert.loops import heldout, screen, settings, statistics, workdir
from mlexpert.loops.heldout import Line
from mlexpert.loops.settings import Config
from mlexpert.loops.workdir import Workdir, write_atomic
from mlexpert.train import metrics


def conclude(
    held: Workdir,
    config: Config,
    evaluations: Mapping[str, Sequence[Line]],
    n_tasks: int,
    sandbox: str,
    training: Mapping[str, Any] | None = None,
) -> None:
    """Writes and prints the end of a run; `training` are the facts of an RL run, if there was one."""
    lines = [line for found in evaluations.values() for line in found]
    scores = {name: heldout.scores(found, n_tasks, config.eval.runs) for name, found in evaluations.items()}
    summary = {
        "name": config.name,
        "config_hash": settings.config_hash(config),
        "protocol": heldout.protocol(config),
        "held_out": {**scores, "n_tasks": n_tasks},
        "executions": heldout.executions(lines),
        **(training or {}),
        "stages": workdir.stages(held),
        "sandbox": sandbox,
        **asdict(workdir.Meter(held).tick()),
    }
    if training:
        summary["executions_evaluating"] = heldout.executions(lines)
        curves(metrics.read(held.path), summary["held_out"], held / "curves.png")
    write(held, summary)
    screen.say("\n" + markdown(held, summary))


def table(held_out: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: one row a policy, percent of held-out tasks, mean ± standard error over runs, and the runs."""
    lines = ["| policy | Any-Medal % | runs | valid % | gold % |", "|---|---|---|---|---|"]
    for policy, row in held_out.items():
        if policy == "n_tasks":
            continue
        runs = ", ".join(f"{k}/{held_out['n_tasks']}" for k in row["any_medal"]["counts"])
        cells = [statistics.cell(row[m]) for m in ("any_medal", "valid", "gold")]
        lines.append(f"| {policy} | **{cells[0]}** | {runs} | {cells[1]} | {cells[2]} |")
    return "\n".join(lines)


def write(workdir: Workdir, summary: Mapping[str, Any]) -> None:
    write_atomic(workdir / "summary.json", json.dumps(summary, indent=1, allow_nan=False))
    write_atomic(workdir / "summary.md", markdown(workdir, summary))


def markdown(workdir: Workdir, summary: Mapping[str, Any]) -> str:
    parts = [f"# {summary['name']}", "", f"`config_hash` {summary['config_hash']}, {summary['protocol']}", ""]
    parts += [table(summary["held_out"]), ""]
    if "windows" in summary:
        parts += [_line("Windows", summary["windows"]), _line("Tokens", summary["tokens"])]
        parts += [_line("Learner's clock (shares)", {k: f"{v:.2f}" for k, v in summary["clock"].items()})]
    parts += [_line("Executions", summary["executions"])]
    parts += [f"Wall {summary['wall_seconds'] / 60:.1f} min, peak memory {summary['peak_rss_gib']:.2f} GiB.", ""]
    parts += ["Sandbox: " + summary["sandbox"], ""]
    parts += ["Files: " + ", ".join(f"`{workdir / name}`" for name in _FILES if (workdir / name).exists()), ""]
    return "\n".join(parts)


_FILES = ("summary.json", "curves.png", "metrics.jsonl", "tensorboard", "episodes", "checkpoints", "tasks")


def _line(title: str, counts: Mapping[str, Any]) -> str:
    return f"{title}: " + ", ".join(f"{name} {value}" for name, value in counts.items()) + "."


def curves(rows: Sequence[Mapping[str, float]], held_out: Mapping[str, Any], path: Path) -> None:
    """Reward, outcome shares, entropy and KL, and held-out medals over updates; `rows` are the metrics' lines."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    _plot(axes[0, 0], rows, ("reward",), "mean window reward")
    _plot(axes[0, 1], rows, ("valid_rate", "medal_rate", "gold_rate", "copy_error_rate"), "share of windows")
    _plot(axes[1, 0], rows, ("entropy", "kl"), "nats per token")
    _bars(axes[1, 1], held_out)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _plot(axis: Any, rows: Sequence[Mapping[str, float]], names: Sequence[str], title: str) -> None:
    for name in names:
        points = [(row["step"], row[name]) for row in rows if name in row]
        if points:
            axis.plot(*zip(*points, strict=True), label=name.removesuffix("_rate").replace("_", " "))
    axis.set(title=title, xlabel="update")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)


def _bars(axis: Any, held_out: Mapping[str, Any]) -> None:
    policies = [name for name in held_out if name != "n_tasks"]
    for i, measure in enumerate(statistics.MEASURES):
        heights = [held_out[p][measure]["mean"] for p in policies]
        errors = [held_out[p][measure]["sem"] or 0.0 for p in policies]
        axis.bar(
            [x + 0.27 * i for x in range(len(policies))], heights, 0.25, yerr=errors, label=measure.replace("_", "-")
        )
    axis.set_xticks([x + 0.27 for x in range(len(policies))], policies)
    axis.set(title=f"held out, {held_out['n_tasks']} tasks", ylabel="% of tasks", ylim=(0, 105))
    axis.legend(frameon=False)
