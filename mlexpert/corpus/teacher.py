"""A scripted teacher of mixed quality: it knows the interface well and the science badly.

It takes the approach that the note calls for in a third of its first scripts and any other else, forgets things
in a quarter of them, and repairs most of that. The choice is spoken in the thought before the script, so that it is
made in sampled tokens. `act` is a pure function of (facts, style, seed, past): an episode can be replayed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlexpert.corpus import bugs, scripts
from mlexpert.corpus.facts import Facts
from mlexpert.types import Finish, ToolCall

DONE = "Done."


@dataclass(frozen=True)
class Style:
    """Habits of a teacher; all are probabilities."""

    follows_note: float = 0.35
    bug: float = 0.25
    repairs: float = 0.85
    varies: float = 0.3  # a later script keeps the approach and changes the estimator
    goals: tuple[float, ...] = (0.4, 0.35, 0.25)  # of 1, 2 and 3 scripts with a valid submission
    updates: float = 0.7  # names its best node before it ends, if there is a choice
    analyzes: float = 0.04
    invalidates: float = 0.04


@dataclass(frozen=True)
class Move:
    """One turn: what is thought and done. `plan` and `bug` are set for scripts only."""

    think: str
    action: ToolCall | Finish
    plan: scripts.Plan | None = None
    bug: str = ""


@dataclass(frozen=True)
class Past:
    """One earlier turn and the text that answered it."""

    move: Move
    reply: str


@dataclass(frozen=True)
class Node:
    """An executed script as the replies tell of it."""

    id: int
    plan: scripts.Plan
    bug: str
    valid: bool
    cv: float | None


def act(facts: Facts, style: Style, seed: int, past: Sequence[Past]) -> Move:
    """The next turn."""
    rng = np.random.default_rng((seed, len(past)))
    goal = 1 + int(np.random.default_rng((seed, 1_000_000)).choice(len(style.goals), p=style.goals))
    nodes = executed(past)
    if not nodes:
        return script(rng, facts, style, first_plan(rng, facts, style))
    last = nodes[-1]
    if sum(node.valid for node in nodes) >= goal or not executions_left(past):
        return close(rng, facts, style, nodes, past)
    if not last.valid and rng.random() < style.repairs:
        return Move(repair_thought(last), call(scripts.write(facts, last.plan)), last.plan)
    return script(rng, facts, style, next_plan(rng, facts, style, nodes))


# ---------------------------------------------------------------- what the replies tell
def executed(past: Sequence[Past]) -> list[Node]:
    nodes = []
    for turn in past:
        found = re.match(r"node (\d+): ", turn.reply)
        if turn.move.plan is None or not found:
            continue
        cv = re.search(r"^cv (\S+)$", turn.reply, re.MULTILINE)
        valid = "submission valid" in turn.reply.splitlines()
        nodes.append(
            Node(int(found.group(1)), turn.move.plan, turn.move.bug, valid, float(cv.group(1)) if cv else None)
        )
    return nodes


def executions_left(past: Sequence[Past]) -> bool:
    counts = [re.search(r"(\d+) executions? left", turn.reply) for turn in past]
    told = [int(count.group(1)) for count in counts if count]
    return not told or told[-1] > 0


def used(past: Sequence[Past], tool: str) -> bool:
    return any(isinstance(turn.move.action, ToolCall) and turn.move.action.name == tool for turn in past)


# ---------------------------------------------------------------- choosing
def first_plan(rng: np.random.Generator, facts: Facts, style: Style) -> scripts.Plan:
    if facts.called_for and rng.random() < style.follows_note:
        return scripts.plan(rng, facts, facts.called_for)
    others = [approach for approach in scripts.applicable(facts) if approach != facts.called_for]
    return scripts.plan(rng, facts, str(rng.choice(others)))


def next_plan(rng: np.random.Generator, facts: Facts, style: Style, nodes: Sequence[Node]) -> scripts.Plan:
    """The same approach with another estimator, or one not tried yet."""
    plan = nodes[-1].plan
    if rng.random() < style.varies and nodes[-1].valid:
        tried = {node.plan.variant for node in nodes if node.plan.approach == plan.approach}
        variants = set(range(len(scripts.pipelines.ESTIMATORS[plan.approach]))) - tried
        if variants:
            return scripts.Plan(plan.approach, min(variants), plan.hand)
    tried_approaches = {node.plan.approach for node in nodes}
    fresh = [approach for approach in scripts.applicable(facts) if approach not in tried_approaches]
    return scripts.plan(rng, facts, str(rng.choice(fresh or scripts.applicable(facts))))


def close(rng: np.random.Generator, facts: Facts, style: Style, nodes: Sequence[Node], past: Sequence[Past]) -> Move:
    """Looks at the tree, marks a failed node, names the best node — or ends."""
    scored = [(node.cv, node.id) for node in nodes if node.valid and node.cv is not None]
    failed = [node for node in nodes if not node.valid]
    if rng.random() < style.analyzes and not used(past, "analyze"):
        return Move("look at all nodes", ToolCall("analyze", {}))
    if failed and rng.random() < style.invalidates and not used(past, "invalidate_node"):
        arguments = {"node": str(failed[-1].id), "reason": "no submission"}
        return Move("mark the failed node", ToolCall("invalidate_node", arguments))
    if len(scored) > 1 and not used(past, "update_answer") and rng.random() < style.updates:
        _, best = max(scored) if facts.higher_is_better else min(scored)
        return Move("answer with the best cv", ToolCall("update_answer", {"node": str(best)}))
    return Move("the answer stands", Finish(DONE))


# ---------------------------------------------------------------- words
def script(rng: np.random.Generator, facts: Facts, style: Style, choice: scripts.Plan) -> Move:
    """A script that follows a plan, sometimes with a bug."""
    lines, bug = scripts.write(facts, choice), ""
    if rng.random() < style.bug:
        bug = str(rng.choice(bugs.possible(facts, choice)))
        lines = bugs.plant(rng, bug, lines)
    return Move(thought(choice), call(lines), choice, bug)


def call(lines: Sequence[str]) -> ToolCall:
    return ToolCall("execute_code", {"code": "\n".join(lines)})


def thought(choice: scripts.Plan) -> str:
    """4-10 words; the first one names the approach and is different for each."""
    hand = choice.hand
    return {
        "linear": "linear, all columns add up",
        "product": f"product, multiply `{hand.a}` and `{hand.b}`",
        "ratio": f"ratio, divide `{hand.a}` by `{hand.b}`",
        "cycle": f"cycle, `{hand.a}` repeats every {hand.period}",
        "trees": "trees, split at thresholds",
        "near": f"near, only `{hand.a}` and `{hand.b}` matter",
        "log": "growth, take the log of the target",
        "group": f"group, one slope of `{hand.a}` per `{hand.category}`",
        "poly": "poly, all squares and products",
        "words": f"words, count those of `{hand.category}`",
        "shape": "shape, compare rows and columns of pixels",
    }[choice.approach]


def repair_thought(node: Node) -> str:
    return f"{bugs.REPAIRS[node.bug]}, keep the rest" if node.bug else "run the plain script again"
