"""What a policy is worth on held-out tasks: several runs of every task, graded once, on the hidden labels.

An episode leaves one line in `evaluations/<name>.jsonl`; a line is written when the episode is over, so a stopped
evaluation goes on with the episodes that have none. An episode that its sandbox failed is
no result: it has no line and is played again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlexpert.loops import screen, setup, statistics, tasksets
from mlexpert.loops.settings import Config
from mlexpert.loops.setup import Stage
from mlexpert.loops.workdir import WorkdirError
from mlexpert.rollout.engine import Engine
from mlexpert.rollout.episode import Discard, run_episode
from mlexpert.tasks.task import Task
from mlexpert.types import Ending, Episode, Execution, Medal, Outcome, VerdictStatus

Line = dict[str, Any]


async def evaluate(stage: Stage, engine: Engine, tasks: Sequence[Task], name: str) -> list[Line]:
    """The lines of all runs of all tasks, played with the weights that the engine serves.

    Raises InfrastructureError if sandboxes failed episodes (they have no line and are played by the next call), and
    WorkdirError if the folder holds lines of other weights.
    """
    path = stage.workdir / "evaluations" / f"{name}.jsonl"
    lines = read(path)
    others = {line["version"] for line in lines} - {engine.version}
    if others:
        raise WorkdirError(f"{path} is about weights of version {others}, these are {engine.version}: remove it")
    done = {(line["run"], line["task"]) for line in lines}
    todo = [(run, task) for run in range(stage.config.eval.runs) for task in tasks if (run, task.id) not in done]
    slots = asyncio.Semaphore(stage.config.engine.slots)
    with screen.bar(f"{name} policy, held out", len(lines) + len(todo), len(lines), "episode") as bar:
        began, sampled, spoilt = time.monotonic(), engine.stats.sampled_tokens, []

        async def play(run: int, task: Task) -> None:
            async with slots:
                line = await _play(stage, engine, task, run, name)
            if line["ending"] == Ending.INFRASTRUCTURE:
                spoilt.append(line["task"])
                return
            _append(path, line)
            lines.append(line)
            speed = (engine.stats.sampled_tokens - sampled) / (time.monotonic() - began)
            screen.advance(bar, _figures(lines, speed))

        async with asyncio.TaskGroup() as group:
            for run, task in todo:
                group.create_task(play(run, task))
    if spoilt:
        raise setup.InfrastructureError(
            f"{len(spoilt)} of {len(todo)} episodes failed by the sandbox, not by the policy (first: {spoilt[0]}). "
            "Mend it and run the same command again: it plays only these"
        )
    return lines


async def _play(stage: Stage, engine: Engine, task: Task, run: int, name: str) -> Line:
    episode_id = f"{name}-{task.id}-r{run}"
    setup.journal_path(stage.workdir, episode_id).unlink(missing_ok=True)  # of a run that was stopped
    seed = setup.seed_of(stage.config.seed, "evaluate", task.id, run)
    environment = setup.environment(stage.config, stage.workdir, stage.sandbox, task, episode_id, seed)
    credit = setup.credit_rule(stage.config)
    episode = await run_episode(
        episode_id, environment, stage.renderer, engine, stage.limits, stage.sampling, credit, Discard(), seed
    )
    setup.forget_files(stage, episode_id)
    return line_of(episode, run, engine.version)


def line_of(episode: Episode, run: int, version: int) -> Line:
    """What is kept of an episode; `copy_errors` counts scripts that used a name that is not there."""
    answer, credits = episode.answer, episode.credits
    return {
        "run": run,
        "version": version,
        "task": episode.task,
        "ending": episode.ending.value,
        "any_medal": answer.medal > Medal.NONE,
        "valid": answer.status is VerdictStatus.GRADED,
        "gold": answer.medal is Medal.GOLD,
        "score": answer.score,
        "rewards": [credit.reward for credit in credits],
        "outcomes": [credit.outcome.value for credit in credits],
        "executions": dict(Counter(result.execution.status.value for result in episode.results)),
        "copy_errors": sum(is_copy_error(result.execution) for result in episode.results),
        "malformed": episode.n_malformed,
        "sampled": episode.n_sampled,
        "prompt": episode.n_prompt,
    }


def is_copy_error(execution: Execution) -> bool:
    """The script asked for a column that is not there; `target` is a bug that teachers make, not a miscopied name."""
    return execution.exception == "KeyError" and execution.message.strip("'\"") != "target"


def read(path: Path) -> list[Line]:
    """Complete lines only: a torn last one is an episode that is played again."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def _append(path: Path, line: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _figures(lines: Sequence[Line], speed: float) -> str:
    n = len(lines)
    medals = sum(line["any_medal"] for line in lines) / n
    rewards = [reward for line in lines for reward in line["rewards"]]
    reward = sum(rewards) / max(1, len(rewards))
    return screen.figures(reward=reward, medals_rate=medals, **{"tokens/s": f"{speed:.0f}"})


def scores(lines: Iterable[Line], n_tasks: int, n_runs: int) -> dict[str, Any]:
    """Held-out measures of one policy, and what its windows were like."""
    lines = list(lines)
    windows = window_rates(
        [o for line in lines for o in line["outcomes"]], [r for line in lines for r in line["rewards"]]
    )
    n_windows = max(1, sum(len(line["outcomes"]) for line in lines))
    return {
        **statistics.score_runs(lines, n_tasks, n_runs),
        **windows,
        "copy_error_rate": sum(line["copy_errors"] for line in lines) / n_windows,
    }


def window_rates(outcomes: Sequence[str], rewards: Sequence[float]) -> dict[str, float]:
    """Mean reward and the shares of windows that were valid, won a medal, won gold."""
    n = max(1, len(outcomes))
    medals = {Outcome.BRONZE.value, Outcome.SILVER.value, Outcome.GOLD.value}
    return {
        "reward": sum(rewards) / n,
        "valid_rate": sum(o in medals | {Outcome.VALID.value} for o in outcomes) / n,
        "medal_rate": sum(o in medals for o in outcomes) / n,
        "gold_rate": sum(o == Outcome.GOLD.value for o in outcomes) / n,
    }


def executions(lines: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for line in lines:
        total.update(line["executions"])
    return dict(total)


def protocol(config: Config) -> str:
    """The line without which a number means nothing."""
    budget, sampling = config.budget, config.sampling
    return (
        f"{config.eval.runs} runs of {_which(config)}; "
        f"budget {budget.executions} executions, {budget.steps} steps; feedback {budget.feedback}; "
        f"T {sampling.temperature:g}, top-p {sampling.top_p:g}, top-k {sampling.top_k}; "
        "answer: last named, else last valid"
    )


def _which(config: Config) -> str:
    """Which tasks `tasksets.held_out` gives, in words."""
    if folder := tasksets.named_held_out(config):
        return f"the tasks of {folder}"
    if config.tasks.get("train_folder"):
        return f"the tasks of {config.tasks.train_folder} whose sources are held out"
    return f"{config.tasks.n_held_out} held-out tasks (seed {config.tasks.held_out_seed})"
