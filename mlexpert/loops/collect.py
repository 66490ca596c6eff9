"""Collectors: keep episodes of the current policy running while the learner learns.

1. Tasks come in epochs, each a permutation drawn from the seed; an episode's name and seed follow from its
   number alone.
2. A new episode starts when a collector is free and the buffer has room: the bound on age acts here and nowhere else.
3. An episode is its journal. `state` names, on the event loop and together with the buffer, how long the journal of
   each running episode is; after a kill the journals are cut back to that and the same episodes go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlexpert.harness.environment import Environment
from mlexpert.harness.journal import Journal
from mlexpert.loops import setup
from mlexpert.loops.heldout import is_copy_error
from mlexpert.loops.setup import InfrastructureError, Stage
from mlexpert.rollout.buffer import Buffer
from mlexpert.rollout.engine import Engine
from mlexpert.rollout.episode import run_episode
from mlexpert.tasks.task import Task
from mlexpert.types import Ending, Episode

MAX_FAILED_IN_A_ROW = 8  # by infrastructure
MAX_BARREN_IN_A_ROW = 64  # episodes without one execution: nothing to learn from, and no batch would ever fill


class SilentPolicyError(RuntimeError):
    """Episode after episode ends without an execution: the policy does not write tool calls."""


@dataclass
class Collectors:
    """The episodes of one run, those that are over as counts, those under way by name."""

    stage: Stage
    tasks: Sequence[Task]
    engine: Engine
    buffer: Buffer
    started: int = 0
    running: dict[str, tuple[int, Environment | None]] = field(default_factory=dict)  # name -> number, environment
    endings: Counter[str] = field(default_factory=Counter)
    executions: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    copy_errors: int = 0
    windows_an_episode: float = 2.0  # running mean, for admission
    failed_in_a_row: int = 0
    barren_in_a_row: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # an episode ended, or the buffer has been drawn from

    # ------------------------------------------------------------ work
    async def run(self, concurrency: int) -> None:
        """Runs until cancelled. Raises what an episode raises, and the two errors above."""
        async with asyncio.TaskGroup() as group:
            for number in [number for number, _ in self.running.values()]:
                group.create_task(self._play(number))
            while True:
                self.changed.clear()
                while len(self.running) < concurrency and self.buffer.room(self._expected()):
                    number, self.started = self.started, self.started + 1
                    self.running[self._name(number)] = (number, None)
                    group.create_task(self._play(number))
                await self.changed.wait()

    def _expected(self) -> float:
        """Windows that the running episodes are expected to open or close yet."""
        return len(self.running) * self.windows_an_episode

    async def _play(self, number: int) -> None:
        name, task = self._name(number), self.task(number)
        seed = setup.seed_of(self.stage.config.seed, "collect", number)
        stage = self.stage
        environment = setup.environment(stage.config, stage.workdir, stage.sandbox, task, name, seed)
        self.running[name] = (number, environment)
        episode = await run_episode(
            name, environment, stage.renderer, self.engine, stage.limits, stage.sampling,
            setup.credit_rule(stage.config), self.buffer, seed,
        )  # fmt: skip
        del self.running[name]
        self._count(episode)
        setup.forget_files(self.stage, name)
        self.changed.set()

    def _count(self, episode: Episode) -> None:
        self.endings[episode.ending.value] += 1
        self.executions.update(result.execution.status.value for result in episode.results)
        self.copy_errors += sum(is_copy_error(result.execution) for result in episode.results)
        self.tokens.update(prompt=episode.n_prompt, sampled=episode.n_sampled)
        self.windows_an_episode += 0.1 * (len(episode.credits) - self.windows_an_episode)
        failed = episode.ending is Ending.INFRASTRUCTURE
        self.failed_in_a_row = self.failed_in_a_row + 1 if failed else 0
        self.barren_in_a_row = 0 if episode.credits else self.barren_in_a_row + 1
        self._require_harvest(failed)

    def _require_harvest(self, failed: bool) -> None:
        """Raises when nothing has come of the last episodes, and says whose fault that is."""
        if self.failed_in_a_row >= MAX_FAILED_IN_A_ROW or (failed and self.barren_in_a_row >= MAX_BARREN_IN_A_ROW):
            raise InfrastructureError(
                f"{self.failed_in_a_row} episodes in a row ended by infrastructure failures; their journals in "
                f"{self.stage.workdir / 'episodes'} say why. Mend the sandbox and run the same command again"
            )
        if self.barren_in_a_row >= MAX_BARREN_IN_A_ROW:
            raise SilentPolicyError(
                f"the last {self.barren_in_a_row} episodes ended without one execution: {dict(self.endings)}. "
                + _remedy(self.endings)
            )

    def task(self, number: int) -> Task:
        epoch, place = divmod(number, len(self.tasks))
        order = np.random.default_rng((self.stage.config.seed, epoch)).permutation(len(self.tasks))
        return self.tasks[order[place]]

    def _name(self, number: int) -> str:
        return f"rl-{number:05d}"

    # ------------------------------------------------------------ books
    def state(self) -> dict[str, Any]:
        """JSON-able; consistent with `Buffer.state` taken in the same moment."""
        journals = {name: [number, self._journaled(name, e)] for name, (number, e) in self.running.items()}
        return {
            "started": self.started,
            "running": journals,
            "endings": dict(self.endings),
            "executions": dict(self.executions),
            "tokens": dict(self.tokens),
            "copy_errors": self.copy_errors,
            "windows_an_episode": self.windows_an_episode,
        }

    def totals(self) -> dict[str, Counter[str]]:
        """Executions and tokens of the whole run, those of running episodes included."""
        executions, tokens = Counter(self.executions), Counter(self.tokens)
        for _, environment in self.running.values():
            if environment is not None:
                executions.update(result.execution.status.value for result in environment.results)
                for event in environment.journal.events():
                    if event["event"] == "turn":
                        tokens.update(prompt=len(event["prompt"]), sampled=len(event["ids"]))
        return {"executions": executions, "tokens": tokens}

    def _journaled(self, name: str, environment: Environment | None) -> int:
        return len(environment.journal if environment else Journal(setup.journal_path(self.stage.workdir, name)))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Cuts the journals of the running episodes back and forgets those that started later."""
        self.started = state["started"]
        self.endings, self.executions = Counter(state["endings"]), Counter(state["executions"])
        self.tokens, self.copy_errors = Counter(state["tokens"]), state["copy_errors"]
        self.windows_an_episode = state["windows_an_episode"]
        for name, (number, length) in state["running"].items():
            Journal(setup.journal_path(self.stage.workdir, name)).truncate(length)
            self.running[name] = (number, None)
        self.forget_later()

    def forget_later(self) -> None:
        """Removes journals of episodes that, after going back, have not started yet."""
        for path in (self.stage.workdir / "episodes").glob("rl-*.jsonl"):
            if int(path.stem.split("-")[1]) >= self.started:
                path.unlink()


def _remedy(endings: Counter[str]) -> str:
    """What to do when nothing is executed, by how most episodes ended."""
    if endings.most_common(1)[0][0] == Ending.CONTEXT:
        return (
            "The tasks' descriptions do not fit into the context: raise episode.context_tokens, engine.length and "
            "train.row_length, or choose tasks with shorter ones"
        )
    return "The policy writes no tool calls. Train it longer before RL (base.steps, sft.steps) or lower train.lr"
