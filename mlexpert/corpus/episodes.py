"""Teacher episodes, played in the real environment and kept as text, one JSON line each.

A record holds what the policy would have read and what the teacher wrote, as text, so that a tokenizer can be trained
on it and any renderer can encode it:

    {"task", "seed", "opening": {"system", "tools", "user"},
     "turns": [{"prompt": {"kind", "text"}, "think", "call": {"name", "arguments"} | null, "finish"}],
     "qualities": one per execution (null: nothing was graded), "executed": the turn of each execution, "medal"}

The first turn's prompt is the opening (kind "opening", text ""); the last turn either finishes or was cut off.
Hidden worth ("qualities", "medal") is for the choice of what to imitate and is never encoded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mlexpert.corpus import facts as reading
from mlexpert.corpus import outcome, teacher
from mlexpert.harness.environment import Environment
from mlexpert.harness.prompts import ToolSpec
from mlexpert.tasks.task import Task, description
from mlexpert.types import Finish, VerdictStatus

Record = dict  # plain JSON, as above
MakeEnvironment = Callable[[Task, str], Environment]  # (task, episode id) -> a new environment


@dataclass(frozen=True)
class Collection:
    """`records` in order of their episode number; episodes that the infrastructure spoilt are counted, not kept."""

    records: list[Record]
    spoilt: int


async def collect(
    tasks: Sequence[Task],
    n: int,
    make_environment: MakeEnvironment,
    seed: int,
    concurrency: int,
    style: teacher.Style | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Collection:
    """Plays `n` episodes, task after task in turn, at most `concurrency` at a time.

    Raises ValueError without tasks; what an environment raises is raised here.
    """
    if not tasks:
        raise ValueError("no tasks to collect episodes on")
    gate, done = asyncio.Semaphore(concurrency), 0

    async def one(number: int) -> Record | None:
        nonlocal done
        async with gate:
            task = tasks[number % len(tasks)]
            environment = make_environment(task, f"teacher-{seed}-{number:05d}")
            record = await play(environment, task, style or teacher.Style(), seed * 1_000_003 + number)
            done += 1
            progress(done)
            return record

    async with asyncio.TaskGroup() as group:
        episodes = [group.create_task(one(number)) for number in range(n)]
    records = [record for episode in episodes if (record := episode.result()) is not None]
    return Collection(records, n - len(records))


async def play(environment: Environment, task: Task, style: teacher.Style, seed: int) -> Record | None:
    """One episode's record, or None if the infrastructure failed in it."""
    facts = reading.read(description(task))
    past: list[teacher.Past] = []
    turns, executed, qualities = [], [], []
    prompt = {"kind": "opening", "text": ""}
    while environment.ending is None:
        move = teacher.act(facts, style, seed, past)
        reply = await environment.step(move.action)
        if reply.infrastructure:
            return None
        if reply.result is not None:
            verdict = reply.result.verdict
            executed.append(len(turns))
            qualities.append(verdict.quality if verdict.status is VerdictStatus.GRADED else None)
        turns.append(turn_of(prompt, move))
        past.append(teacher.Past(move, reply.text))
        prompt = {"kind": reply.kind, "text": reply.text}
    opening = environment.opening()
    return {
        "task": task.id,
        "seed": seed,
        "opening": {"system": opening.system, "tools": [plain(tool) for tool in opening.tools], "user": opening.user},
        "turns": turns,
        "executed": executed,
        "qualities": qualities,
        "medal": int(environment.answer().medal),
    }


def turn_of(prompt: dict, move: teacher.Move) -> dict:
    if isinstance(move.action, Finish):
        return {"prompt": prompt, "think": move.think, "call": None, "finish": move.action.text}
    call = {"name": move.action.name, "arguments": dict(move.action.arguments)}
    return {"prompt": prompt, "think": move.think, "call": call, "finish": ""}


def plain(tool: ToolSpec) -> dict:
    return {**asdict(tool), "parameters": dict(tool.parameters)}


def worth_imitating(record: Record, eta: float = outcome.ETA, delta: float = outcome.DELTA) -> Record | None:
    """The record cut to its useful prefix (outcome-guided supervision), or None if nothing of it is useful."""
    keep = outcome.executions_to_keep(record["qualities"], eta, delta)
    if keep == 0:
        return None
    if keep == len(record["qualities"]):
        return record
    last = record["executed"][keep - 1]
    return {
        **record,
        "turns": record["turns"][: last + 1],
        "executed": record["executed"][:keep],
        "qualities": record["qualities"][:keep],
    }


def save(path: Path, records: Iterable[Record]) -> None:
    """One record a line; the file appears under its name when it is whole."""
    aside = path.with_name(path.name + ".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    with aside.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    aside.rename(path)


def load(path: Path) -> list[Record]:
    """The records of a file. Raises ValueError naming a line that is not JSON."""
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error}); collect the episodes again") from error
    return records
