"""The experiment tree: append-only nodes, and marks laid over them.

A node is one counted execution. It holds only what the policy may know: hidden verdicts are not in it and cannot be
reached from it. Trees are values; every function returns a new one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mlexpert.harness import causes
from mlexpert.harness.printed import own_score, plain
from mlexpert.types import ExecStatus, Execution, Verdict, VerdictStatus

KEPT_CHARS = 16_000  # of stdout and of stderr each, so that `analyze` can show them again


class Submission(enum.StrEnum):
    NONE = "none"
    INVALID = "invalid"
    VALID = "valid"


@dataclass(frozen=True)
class Node:
    """One counted execution as the policy may know it; ids count from 1."""

    id: int
    parent: int | None
    code: str
    status: ExecStatus
    error: str  # exception class and message, or how it ended; "" when the script ran through
    stdout: str  # plain text, the last KEPT_CHARS characters
    stderr: str
    own_score: float | None  # printed by the script itself
    submission: Submission
    reason: str  # why the submission is invalid, from the sample submission alone
    cause: str = ""  # `error` with limit and remedy
    notes: tuple[str, ...] = ()  # what else to know about the run


@dataclass(frozen=True)
class Tree:
    """Nodes in the order of execution, the nodes marked as invalid with the reason, and the node named as answer."""

    nodes: tuple[Node, ...] = ()
    invalidated: Mapping[int, str] = field(default_factory=dict)
    chosen: int | None = None


def node_of(id: int, parent: int | None, code: str, execution: Execution, verdict: Verdict) -> Node:
    """Keeps of the verdict its status and its reason, which follow from the public sample submission; never a score."""
    submission, reason = _submission_of(verdict)
    stdout = plain(execution.stdout)
    return Node(
        id=id,
        parent=parent,
        code=code,
        status=execution.status,
        error=causes.brief(execution),
        stdout=stdout[-KEPT_CHARS:],
        stderr=plain(execution.stderr)[-KEPT_CHARS:],
        own_score=own_score(stdout),
        submission=submission,
        reason=reason,
        cause=causes.full(execution),
        notes=causes.notes(execution),
    )


def _submission_of(verdict: Verdict) -> tuple[Submission, str]:
    match verdict.status:
        case VerdictStatus.GRADED:
            return Submission.VALID, ""
        case VerdictStatus.ABSENT:
            return Submission.NONE, ""
        case VerdictStatus.UNREADABLE:
            return Submission.INVALID, verdict.reason or "cannot be read"
        case VerdictStatus.INVALID:
            return Submission.INVALID, verdict.reason or "does not fit the sample submission"


def grow(tree: Tree, node: Node) -> Tree:
    """Appends a node. Raises ValueError if its id is not the next one or its parent is not in the tree."""
    if node.id != len(tree.nodes) + 1:
        raise ValueError(f"node {node.id} cannot follow {len(tree.nodes)} nodes: ids count up from 1")
    if node.parent is not None and not has(tree, node.parent):
        raise ValueError(f"node {node.id} names parent {node.parent}, which is not in the tree")
    return replace(tree, nodes=(*tree.nodes, node))


def has(tree: Tree, id: int) -> bool:
    return 1 <= id <= len(tree.nodes)


def get(tree: Tree, id: int) -> Node:
    """Raises KeyError for an id outside the tree."""
    if not has(tree, id):
        raise KeyError(f"no node {id} in a tree of {len(tree.nodes)} nodes")
    return tree.nodes[id - 1]


def family(tree: Tree, id: int) -> tuple[int, ...]:
    """The node and all its descendants, in order of execution (a parent always has the smaller id)."""
    members = {id}
    for node in tree.nodes[id:]:
        if node.parent in members:
            members.add(node.id)
    return tuple(sorted(members))


def invalidate(tree: Tree, id: int, reason: str) -> Tree:
    """Marks a node and its descendants; a chosen answer among them is chosen no more. Earlier marks stay."""
    members = family(tree, id)
    marks = {member: reason for member in members} | dict(tree.invalidated)
    return replace(tree, invalidated=marks, chosen=None if tree.chosen in members else tree.chosen)


def choose(tree: Tree, id: int) -> Tree:
    """Names the answer. Raises ValueError for a node without a valid submission or one marked as invalid."""
    if not eligible(tree, get(tree, id)):
        raise ValueError(f"node {id} cannot be the answer: it has no valid submission or was invalidated")
    return replace(tree, chosen=id)


def eligible(tree: Tree, node: Node) -> bool:
    return node.submission is Submission.VALID and node.id not in tree.invalidated


def answer(tree: Tree) -> int | None:
    """The node that was last chosen, else the last one with a valid submission that is not marked as invalid."""
    if tree.chosen is not None:
        return tree.chosen
    return next((node.id for node in reversed(tree.nodes) if eligible(tree, node)), None)


def best_by_own_score(tree: Tree, lower_is_better: bool) -> int | None:
    """The eligible node with the best score of its own printing (ties: the later one); else the answer."""
    scored = [node for node in tree.nodes if eligible(tree, node) and node.own_score is not None]
    if not scored:
        return answer(tree)
    sign = -1.0 if lower_is_better else 1.0
    return max(scored, key=lambda node: (sign * (node.own_score or 0.0), node.id)).id
