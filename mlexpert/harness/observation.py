"""Everything the policy reads about its own work is put into words here, from public records only.

The functions take nodes, trees and counts of what is left: records in which no hidden score, threshold or medal
exists. The one exception is named as such: `revealed`, the line that the `score` protocol (SandMLE) adds.
Each fixed line stands alone on its line, so that a tokenizer can make it one token.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlexpert.harness import tree as trees
from mlexpert.harness.printed import excerpt, last_lines, one_line
from mlexpert.harness.tree import Node, Submission, Tree
from mlexpert.types import ExecStatus, Medal, Verdict

INFRASTRUCTURE = "infrastructure failure, not counted"
NO_EXECUTIONS = "no executions left"
NO_TIME = "no time left"
MAX_CORRECTION_CHARS = 80


@dataclass(frozen=True)
class ObservationStyle:
    """How much a policy of a given size is shown. Characters unless said otherwise."""

    full_prompt: bool
    stdout_head: int
    stdout_tail: int
    traceback_lines: int  # of stderr, after a failure; 0: failures have one short line, and nothing has notes
    error: int  # of the line that names the failure
    code: int  # of the script that a summary or `analyze` repeats
    nodes: int  # lines of the tree that a summary or `analyze` lists


SHORT = ObservationStyle(
    full_prompt=False, stdout_head=0, stdout_tail=200, traceback_lines=0, error=60, code=1_500, nodes=6
)
FULL = ObservationStyle(
    full_prompt=True, stdout_head=2_000, stdout_tail=4_000, traceback_lines=20, error=400, code=16_000, nodes=60
)


@dataclass(frozen=True)
class Left:
    """What is left of the budget."""

    executions: int
    steps: int
    hours: float


def budget_line(left: Left, style: ObservationStyle) -> str:
    line = f"{left.executions} execution{'' if left.executions == 1 else 's'} left"
    return f"{line}, {left.steps} steps, {left.hours:.1f} hours" if style.full_prompt else line


def execution_text(node: Node, left: Left, style: ObservationStyle, revealed_line: str = "") -> str:
    """The observation of one execution: status, failure or output, state of the submission, what is left."""
    lines = [f"node {node.id}: {_status(node)}", *_body(node, style), _submission(node), revealed_line]
    return "\n".join(line for line in [*lines, budget_line(left, style)] if line)


def _status(node: Node) -> str:
    return "ok" if node.status is ExecStatus.OK else "error"


def _body(node: Node, style: ObservationStyle) -> list[str]:
    output = excerpt(node.stdout, style.stdout_head, style.stdout_tail)
    if style.traceback_lines == 0:
        return [output if node.status is ExecStatus.OK else one_line(node.error, style.error)]
    if node.status is ExecStatus.OK:
        return [output, *node.notes]
    traceback = excerpt(last_lines(node.stderr, style.traceback_lines), 0, style.stdout_tail)
    return [output, traceback, *node.notes, one_line(node.cause, style.error)]


def _submission(node: Node) -> str:
    match node.submission:
        case Submission.VALID:
            return "submission valid"
        case Submission.INVALID:
            return f"submission invalid: {one_line(node.reason, 60)}"
        case Submission.NONE:
            return "no submission"


def revealed(verdict: Verdict, thresholds: dict[str, float]) -> str:
    """The hidden test score in words, for the `score` protocol only; "" for a submission without a score."""
    if verdict.score is None:
        return ""
    direction = "lower" if verdict.lower_is_better else "higher"
    ladder = ", ".join(f"{name} {value:.5g}" for name, value in thresholds.items())
    return (
        f"test score {verdict.score:.5g} ({direction} is better), medal {Medal(verdict.medal).name.lower()}; {ladder}"
    )


def node_line(tree: Tree, node: Node, style: ObservationStyle) -> str:
    facts = [_status(node) if node.status is ExecStatus.OK else one_line(node.error, style.error)]
    if node.own_score is not None:
        facts.append(f"cv {node.own_score:.5g}")
    facts.append(_submission(node))
    if node.parent is not None:
        facts.append(f"from node {node.parent}")
    if node.id in tree.invalidated:
        facts.append(f"invalidated: {one_line(tree.invalidated[node.id], style.error)}")
    return f"node {node.id}: {', '.join(facts)}"


def answer_line(tree: Tree) -> str:
    answer = trees.answer(tree)
    return "answer: none" if answer is None else f"answer: node {answer}"


def invalidated_line(ids: tuple[int, ...]) -> str:
    listed = ", ".join(str(id) for id in ids[:10])
    return f"invalidated: node {listed}{f' and {len(ids) - 10} more' if len(ids) > 10 else ''}"


def tree_text(tree: Tree, style: ObservationStyle) -> str:
    """`analyze` without a node: the last nodes, one a line, and the answer as it stands."""
    shown = tree.nodes[-style.nodes :]
    earlier = len(tree.nodes) - len(shown)
    lines = [f"{earlier} earlier nodes"] if earlier else []
    return "\n".join([*lines, *(node_line(tree, node, style) for node in shown), answer_line(tree)])


def node_text(tree: Tree, node: Node, style: ObservationStyle) -> str:
    """`analyze` of one node: its line, its script and what it printed."""
    return "\n".join(line for line in [node_line(tree, node, style), _code(node, style), *_body(node, style)] if line)


def _code(node: Node, style: ObservationStyle) -> str:
    return excerpt(node.code, style.code // 2, style.code // 2)


def summary_text(tree: Tree, left: Left, style: ObservationStyle, lower_is_better: bool) -> str:
    """What a fresh context needs to go on: the tree, the best script by its own score, what is left."""
    best = trees.best_by_own_score(tree, lower_is_better)
    script = [] if best is None else [f"script of node {best}:", _code(trees.get(tree, best), style)]
    return "\n".join(["so far:", tree_text(tree, style), *script, budget_line(left, style)])


def correction(reason: str) -> str:
    return one_line(reason, MAX_CORRECTION_CHARS)
