"""The fixed texts of an episode: who the policy is, the tools, the task. A short set for small models, a full one.

The short texts are a few fixed lines, each of which a line-wise tokenizer turns into one token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlexpert.types import Limits

SHORT_SYSTEM = """You are a machine-learning engineer.
Write Python scripts that read train.csv and test.csv and write submission.csv.
Call one tool a turn. To finish, answer without a tool call."""

FULL_SYSTEM = """You are a machine-learning engineer.
You solve one prediction task by writing and running Python scripts.

How it works
- Every script runs as a fresh process in a folder with the task's files. It must write submission.csv there, in the
  format of sample_submission.csv. Nothing is kept between scripts except what you read here.
- Think first, then call exactly one tool a turn. The result of the call is the next message.
- Each run of a script becomes a node of your experiment tree. Print your own validation score on a line of its own,
  such as `cv 0.83`: it is noted with the node.
- Your answer is the submission of the node that you last named with update_answer; if you named none, it is the last
  valid submission.
- {feedback}
- Look at the data, start simple, validate on held-out rows, then improve what works. Mark results that rest on a
  mistake, such as a leak, with invalidate_node.
- When you are satisfied or the budget is used up, answer without a tool call."""

BLIND = "You learn whether a submission has a valid format, never its test score. Trust your own validation."
SCORED = "After each valid submission you are shown its test score."


@dataclass(frozen=True)
class ToolSpec:
    """One tool as the policy is told of it; `parameters` maps each argument to what it means."""

    name: str
    description: str
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class Opening:
    """How an episode begins: the renderer turns this into the first tokens of every context segment."""

    system: str
    tools: tuple[ToolSpec, ...]
    user: str


SHORT_TOOLS = (
    ToolSpec("execute_code", "Run a script.", {"code": "script", "parent": "node it builds on, if any"}),
    ToolSpec("update_answer", "Name the answer.", {"node": "number"}),
    ToolSpec("invalidate_node", "Mark a mistake.", {"node": "number", "reason": "why"}),
    ToolSpec("analyze", "Show the tree or a node.", {"node": "number, if any"}),
)

FULL_TOOLS = (
    ToolSpec(
        "execute_code",
        "Run a Python script in a fresh process and record it as a new node of the experiment tree.",
        {"code": "The whole script.", "parent": "Optional: number of the node that this script improves or repairs."},
    ),
    ToolSpec(
        "update_answer",
        "Name the node whose submission is your answer. It may be changed until the end.",
        {"node": "Number of a node with a valid submission."},
    ),
    ToolSpec(
        "invalidate_node",
        "Mark a node and all that was built on it as resting on a mistake; none of them can be the answer then.",
        {"node": "Number of the node.", "reason": "What is wrong with it, in one sentence."},
    ),
    ToolSpec(
        "analyze",
        "Show the experiment tree, or the script and output of one node. Costs no execution.",
        {"node": "Optional: number of the node to show; leave it out for the whole tree."},
    ),
)


def opening(description: str, budget: str, limits: Limits, full: bool, blind: bool) -> Opening:
    """The opening of an episode on a task with this public description; `budget` is the line that says what is left."""
    description = description.strip()
    if not full:
        return Opening(SHORT_SYSTEM, SHORT_TOOLS, f"{description}\n{budget}")
    system = FULL_SYSTEM.format(feedback=BLIND if blind else SCORED)
    resources = (
        f"Each script: at most {limits.wall_s:g} s, {limits.memory_mb} MB of memory, "
        f"{limits.disk_mb} MB of disk, no network."
    )
    return Opening(system, FULL_TOOLS, f"{description}\n\n{resources}\n{budget}")
