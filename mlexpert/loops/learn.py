"""Windowed Interaction RL (MLExpert): collectors and learner in one structured group.

    wait      until the buffer holds a batch: B windows, oldest first
    compute   pack them, make one update (eq. 4)
    sync      publish the weights to the engine and verify that it serves them; episodes go on meanwhile
    save      weights, optimizer, buffer, running episodes, counters and clock as ONE item

The four shares of a step sum to 1. Whoever fails in the group ends it, with the traceback. A run that is killed
goes back to its last checkpoint: windows trained after it are drawn or trained again from there, none twice in the
weights that remain.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from mlexpert.loops import heldout, saved, screen, setup
from mlexpert.loops.collect import Collectors
from mlexpert.loops.setup import Stage
from mlexpert.model.params import Params
from mlexpert.rollout import weights
from mlexpert.rollout.buffer import Buffer
from mlexpert.rollout.embedded import EmbeddedEngine
from mlexpert.tasks.task import Task
from mlexpert.train import checkpoint, metrics, optimizer
from mlexpert.train.losses import WirlLoss
from mlexpert.train.packing import pack_windows
from mlexpert.train.step import StepShape, TrainState, init_state, make_rl_step
from mlexpert.types import Window


class Learner:
    """The state of one RL run between two updates, all of which a checkpoint holds."""

    def __init__(self, stage: Stage, tasks: Sequence[Task], reference: Params, engine: EmbeddedEngine):
        train = stage.config.train
        self.stage, self.reference, self.engine = stage, reference, engine
        self.adamw = optimizer.rl_adamw(train.lr, train.warmup, weight_decay=train.weight_decay, clip=train.grad_clip)
        self.state: TrainState = init_state(reference, self.adamw)
        self.buffer = Buffer(train.batch_windows, train.max_age)
        self.collectors = Collectors(stage, tasks, engine, self.buffer)
        self.clock = metrics.Clock()
        self.updates = 0
        self.seconds = 0.0  # of training, earlier processes included
        self.trained_tokens = 0
        self.folder = stage.workdir / "checkpoints" / "rl"

    # ------------------------------------------------------------ books
    def books(self) -> dict[str, Any]:
        """Taken on the event loop in one go: buffer and journals belong to the same moment."""
        return {
            "buffer": self.buffer.state(),
            "collectors": self.collectors.state(),
            "clock": self.clock.state(),
            "seconds": self.seconds,
            "trained_tokens": self.trained_tokens,
        }

    def restore(self) -> None:
        """Goes on from the newest checkpoint, or starts afresh (and forgets what an unsaved start left)."""
        found = saved.restore(self.folder, self.state)
        if found is None:
            self.collectors.forget_later()
            return
        self.updates, self.state, books = found
        self.buffer.restore(books["buffer"])
        self.collectors.restore(books["collectors"])
        self.clock.restore(books["clock"])
        self.seconds, self.trained_tokens = books["seconds"], books["trained_tokens"]

    def facts(self) -> dict[str, Any]:
        """What the summary tells of the run."""
        counts = self.buffer.counts()
        played = self.collectors.totals()
        pending = {"pending": counts.pop("ready") + counts.pop("in_flight")}
        totals = self.clock.totals()
        spent = sum(totals.values()) or 1.0
        return {
            "updates": self.updates,
            "seconds": self.seconds,
            "windows": {**counts, **pending},
            "clock": {name: seconds / spent for name, seconds in totals.items()},
            "tokens": {**played["tokens"], "trained": self.trained_tokens},
            "executions": dict(played["executions"]),
            "copy_errors": self.collectors.copy_errors,
            "endings": dict(self.collectors.endings),
        }


async def learn(stage: Stage, tasks: Sequence[Task], reference: Params, engine: EmbeddedEngine) -> Learner:
    """Trains until `train.updates` are made or `train.minutes` are over; every path is probed before update 1."""
    train = stage.config.train
    learner = Learner(stage, tasks, reference, engine)
    learner.restore()
    await weights.publish(engine, setup.served(stage, learner.state.params), learner.updates)
    if learner.updates == 0 and not checkpoint.steps(learner.folder):
        saved.save(learner.folder, 0, learner.state, learner.books())
    writer = metrics.Writer(stage.workdir.path, learner.updates)
    async with asyncio.TaskGroup() as group:
        collecting = group.create_task(learner.collectors.run(train.concurrency), name="collectors")
        await _updates(learner, writer)
        collecting.cancel()
    writer.close()
    for window in learner.buffer.in_flight:
        learner.buffer.cancel(window)
    return learner


async def _updates(learner: Learner, writer: metrics.Writer) -> None:
    train = learner.stage.config.train
    loss = WirlLoss(train.eps, train.q_min, train.q_max, train.kl, train.entropy, train.correction)
    shape = StepShape(rows=train.rows_per_micro)
    step = make_rl_step(
        learner.stage.model, learner.adamw, loss, learner.stage.config.sampling.temperature, shape, train.passes
    )
    with screen.bar("WIRL", train.updates, learner.updates, "update") as bar:
        while learner.updates < train.updates and learner.seconds < 60 * train.minutes:
            began = time.monotonic()
            row = await _update(learner, step)
            learner.seconds += time.monotonic() - began
            row |= learner.clock.lap()  # before the save: a kill during it must not lose this line
            writer.write(learner.updates, row)
            _show(bar, row)
            over = learner.updates >= train.updates or learner.seconds >= 60 * train.minutes
            if over or learner.updates % train.save_every == 0:
                with learner.clock.phase("save"):
                    books = learner.books()
                    await asyncio.to_thread(saved.save, learner.folder, learner.updates, learner.state, books)


async def _update(learner: Learner, step: Any) -> dict[str, Any]:
    train, clock, buffer = learner.stage.config.train, learner.clock, learner.buffer
    sampled, began = learner.engine.stats.sampled_tokens, time.monotonic()
    executed, miscopied = learner.collectors.executions.total(), learner.collectors.copy_errors
    with clock.phase("wait"):
        await buffer.wait()
        windows = buffer.take()
        learner.collectors.changed.set()
    with clock.phase("compute"):
        batch = pack_windows(windows, train.row_length, train.rows_per_micro)
        learner.state, found = await asyncio.to_thread(step, learner.state, batch, learner.reference)
        learner.updates += 1
        learner.trained_tokens += int(batch.counts_W.sum())
    with clock.phase("sync"):
        served = setup.served(learner.stage, learner.state.params)
        await weights.publish(learner.engine, served, learner.updates)
        ages = [buffer.age(window) for window in windows]
        buffer.advance(learner.updates)
        learner.collectors.changed.set()
    speed = (learner.engine.stats.sampled_tokens - sampled) / (time.monotonic() - began)
    executed = learner.collectors.executions.total() - executed
    miscopied = learner.collectors.copy_errors - miscopied
    return {
        **found,
        **window_figures(windows),
        **({"copy_error_rate": miscopied / executed} if executed else {}),
        "age_mean": float(np.mean(ages)),
        "age_max": max(ages),
        "tokens_per_s": speed,
    }


def window_figures(windows: Sequence[Window]) -> dict[str, Any]:
    """Reward and outcome shares of the windows of one update, and their names: which were trained is on record."""
    outcomes = Counter(window.credit.outcome.value for window in windows)
    rates = heldout.window_rates(list(outcomes.elements()), [window.credit.reward for window in windows])
    error_rate = outcomes["error"] / len(windows)
    names = " ".join(window.id for window in windows)
    return {**rates, "error_rate": error_rate, "windows": names}


def _show(bar: tqdm, row: dict[str, Any]) -> None:
    screen.advance(
        bar,
        screen.figures(
            reward=row["reward"],
            medals_rate=row["medal_rate"],
            valid_rate=row["valid_rate"],
            **{"tokens/s": f"{row['tokens_per_s']:.0f}"},
        ),
    )
