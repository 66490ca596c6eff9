"""The four tools: what the policy may call, read strictly into records.

A call that cannot be read, or that names a node it may not, becomes a `Rejected` with a short fixed text. The text
never repeats what the policy wrote. Tools see the tree, in which no hidden verdict exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlexpert.harness import tree as trees
from mlexpert.harness.tree import Submission, Tree
from mlexpert.types import ToolCall

MAX_CODE_CHARS = 100_000
MAX_REASON_CHARS = 200

ARGUMENTS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {  # name -> (required, optional)
    "execute_code": (frozenset({"code"}), frozenset({"parent"})),
    "update_answer": (frozenset({"node"}), frozenset()),
    "invalidate_node": (frozenset({"node", "reason"}), frozenset()),
    "analyze": (frozenset(), frozenset({"node"})),
}


@dataclass(frozen=True)
class ExecuteCode:
    code: str
    parent: int | None


@dataclass(frozen=True)
class UpdateAnswer:
    node: int


@dataclass(frozen=True)
class InvalidateNode:
    node: int
    reason: str


@dataclass(frozen=True)
class Analyze:
    node: int | None


@dataclass(frozen=True)
class Rejected:
    """`reason` is at most 80 characters and is shown to the policy."""

    reason: str


Call = ExecuteCode | UpdateAnswer | InvalidateNode | Analyze


def read_call(call: ToolCall, tree: Tree) -> Call | Rejected:
    """The call as a record, or why it is none."""
    if call.name not in ARGUMENTS:
        return Rejected("unknown tool: use execute_code, update_answer, invalidate_node or analyze")
    required, optional = ARGUMENTS[call.name]
    missing = sorted(required - call.arguments.keys())
    if missing:
        return Rejected(f"{call.name} needs: {', '.join(missing)}")
    if call.arguments.keys() - required - optional:
        return Rejected(f"{call.name} takes only: {', '.join(sorted(required | optional))}")
    return _READERS[call.name](call.arguments, tree)


def _execute_code(arguments: Mapping[str, str], tree: Tree) -> Call | Rejected:
    code = arguments["code"]
    if not isinstance(code, str) or not code.strip():
        return Rejected("execute_code needs a script in code")
    if len(code) > MAX_CODE_CHARS:
        return Rejected(f"code is longer than {MAX_CODE_CHARS} characters")
    if not _encodable(code):
        return Rejected("code holds characters that cannot be written as UTF-8")
    if "parent" not in arguments:
        return ExecuteCode(code, None)
    parent = _node(arguments["parent"], tree)
    if isinstance(parent, Rejected):
        return parent
    if parent in tree.invalidated:
        return Rejected(f"node {parent} was invalidated: build on another node")
    return ExecuteCode(code, parent)


def _update_answer(arguments: Mapping[str, str], tree: Tree) -> Call | Rejected:
    node = _node(arguments["node"], tree)
    if isinstance(node, Rejected):
        return node
    if node in tree.invalidated:
        return Rejected(f"node {node} was invalidated: choose another node")
    if trees.get(tree, node).submission is not Submission.VALID:
        return Rejected(f"node {node} has no valid submission: choose another node")
    return UpdateAnswer(node)


def _invalidate_node(arguments: Mapping[str, str], tree: Tree) -> Call | Rejected:
    node = _node(arguments["node"], tree)
    if isinstance(node, Rejected):
        return node
    reason = arguments["reason"]
    if not isinstance(reason, str) or not reason.strip():
        return Rejected("invalidate_node needs a reason")
    return InvalidateNode(node, reason.strip()[:MAX_REASON_CHARS])


def _analyze(arguments: Mapping[str, str], tree: Tree) -> Call | Rejected:
    if "node" not in arguments:
        return Analyze(None)
    node = _node(arguments["node"], tree)
    return node if isinstance(node, Rejected) else Analyze(node)


def _node(text: object, tree: Tree) -> int | Rejected:
    """A node id written as decimal digits; a JSON number is the same to us."""
    digits = str(text).strip() if isinstance(text, str | int) and not isinstance(text, bool) else ""
    if not (digits.isascii() and digits.isdigit()):
        return Rejected("a node is named by its number, such as 1")
    if not tree.nodes:
        return Rejected("there is no node yet: call execute_code first")
    id = int(digits[:9])  # more digits than any tree has nodes
    if not trees.has(tree, id):
        return Rejected(f"no such node: nodes are 1 to {len(tree.nodes)}")
    return id


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_READERS = {
    "execute_code": _execute_code,
    "update_answer": _update_answer,
    "invalidate_node": _invalidate_node,
    "analyze": _analyze,
}
