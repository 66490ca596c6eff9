"""The state of an episode as a fold over its events: live play and rebuilding from the journal are the same code.

`advance(state, effect)` is the only way a state changes. An effect is plain JSON, written to the journal together
with the reply before the state moves on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from mlexpert.harness import tree as trees
from mlexpert.harness.journal import result_from_json
from mlexpert.harness.observation import Left
from mlexpert.harness.tree import Tree
from mlexpert.types import Ending, Result

INFRASTRUCTURE_IN_A_ROW = 2


@dataclass(frozen=True)
class Budget:
    """What an episode may use: executions, turns, malformed turns in a row, seconds (MLExpert: 3,000 steps, 12 h)."""

    executions: int
    steps: int
    malformed: int
    wall_s: float

    def __post_init__(self) -> None:
        if min(self.executions, self.steps, self.malformed) < 1 or not 0 < self.wall_s < float("inf"):
            raise ValueError(f"a budget needs at least one of each and a finite, positive wall_s: {self}")


@dataclass(frozen=True)
class Reply:
    """What the environment says to one action.

    `text` is the observation or correction, unescaped; "end" replies may carry a text and a `result` too: the last
    execution of an episode closes its window like any other. `result` is set for counted executions only.
    """

    text: str
    kind: Literal["observation", "correction", "end"]
    result: Result | None = None
    infrastructure: bool = False
    ending: Ending | None = None


@dataclass(frozen=True)
class State:
    """`results[i]` belongs to node i + 1 and alone holds the hidden verdicts; the tree knows none of them."""

    tree: Tree = field(default_factory=Tree)
    results: tuple[Result, ...] = ()
    replies: tuple[Reply, ...] = ()
    steps: int = 0
    malformed: int = 0
    malformed_in_a_row: int = 0
    infrastructure: int = 0
    infrastructure_in_a_row: int = 0
    elapsed_s: float = 0.0
    stopped: Ending | None = None  # by an action: finished, or asked for more than is left


def advance(state: State, effect: Mapping) -> State:
    """The state after one step's effect."""
    state = replace(state, elapsed_s=effect["elapsed_s"])
    if effect["tool"] == "infrastructure":  # costs nothing but time
        row = state.infrastructure_in_a_row + 1
        return replace(state, infrastructure=state.infrastructure + 1, infrastructure_in_a_row=row)
    state = replace(state, steps=state.steps + 1, infrastructure_in_a_row=0)
    if effect["tool"] == "malformed":
        row = state.malformed_in_a_row + 1
        return replace(state, malformed=state.malformed + 1, malformed_in_a_row=row)
    return _act(replace(state, malformed_in_a_row=0), effect)


def _act(state: State, effect: Mapping) -> State:
    match effect["tool"]:
        case "execute_code":
            result = result_from_json(effect)
            id = len(state.tree.nodes) + 1
            node = trees.node_of(id, effect["parent"], effect["code"], result.execution, result.verdict)
            return replace(state, tree=trees.grow(state.tree, node), results=(*state.results, result))
        case "update_answer":
            return replace(state, tree=trees.choose(state.tree, effect["node"]))
        case "invalidate_node":
            return replace(state, tree=trees.invalidate(state.tree, effect["node"], effect["reason"]))
        case "analyze":
            return state
        case "stop":
            return replace(state, stopped=Ending(effect["ending"]))
        case unknown:
            raise ValueError(f"the journal names a tool that does not exist: {unknown!r}")


def ending_of(state: State, budget: Budget) -> Ending | None:
    """Why the episode is over, or None while it goes on."""
    if state.stopped is not None:
        return state.stopped
    if state.infrastructure_in_a_row >= INFRASTRUCTURE_IN_A_ROW:
        return Ending.INFRASTRUCTURE
    if state.malformed_in_a_row >= budget.malformed:
        return Ending.MALFORMED
    if state.steps >= budget.steps:
        return Ending.STEPS
    return Ending.WALL if state.elapsed_s >= budget.wall_s else None


def left(state: State, budget: Budget) -> Left:
    return Left(
        executions=budget.executions - len(state.results),
        steps=budget.steps - state.steps,
        hours=max(0.0, budget.wall_s - state.elapsed_s) / 3600.0,
    )


def reply_to_json(reply: Reply) -> dict:
    """Without the result, which the event holds already."""
    return {
        "text": reply.text,
        "kind": reply.kind,
        "infrastructure": reply.infrastructure,
        "ending": None if reply.ending is None else str(reply.ending),
    }


def reply_from_json(data: Mapping, result: Result | None) -> Reply:
    ending = None if data["ending"] is None else Ending(data["ending"])
    return Reply(data["text"], data["kind"], result, data["infrastructure"], ending)
