"""What a MLE-Dojo competition's metric.py says, read as data: its syntax tree is looked at, and no line of it is run.

Two witnesses are heard: words ("using Root Mean Squared Logarithmic Error": of the class, or else the comments in
`evaluate`) and the function of scikit-learn that `evaluate` calls. They may not contradict each other, nor the
direction that the class states. Words that name nothing known here are a contradiction too: a call is often only a part
of what is computed. Where the metric stays open a person has to name it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlexpert.factory.metric_names import Named, metric_named, metric_of_function
from mlexpert.factory.records import Quarantine
from mlexpert.tasks.metrics import METRICS

_BY_COLUMN = re.compile(r"column|average|mean of", re.I)
_ALSO_OF_SETS = ("micro_f1",)


@dataclass(frozen=True)
class Read:
    metric: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""  # the column that is scored; "" for all but the id
    by_column: bool = False  # whether its words say that columns are scored one by one


def read_metric(source: str) -> Read:
    """Raises Quarantine saying what leaves the metric open."""
    kind = _metric_class(source)
    evaluate = _method(kind, "evaluate")
    defaults = _defaults(_method(kind, "__init__"))
    words = _sentence(kind) or _comments(evaluate, source)
    calls = [named for named in map(_named, _calls(evaluate, source)) if named is not None]
    named = _agreed(words, calls)
    higher = defaults.get("higher_is_better")
    if isinstance(higher, bool) and METRICS[named[0]].lower_is_better == higher:
        raise _open(f"it says {'higher' if higher else 'lower'} is better, {named[0]} is the other way round")
    # `value` is what the class is told to score, but some methods go by columns of their own and do not look at it.
    target = defaults.get("value") if _uses_value(evaluate) else None
    return Read(*named, target if isinstance(target, str) else "", bool(_BY_COLUMN.search(words)))


def _open(reason: str) -> Quarantine:
    return Quarantine("fetch", f"metric.py leaves the metric open: {reason}; name it in the map of metrics")


def _agreed(words: str, calls: list[Named]) -> Named:
    said, code = metric_named(words), {named[0]: named for named in calls}
    if len(code) > 1:
        raise _open(f"it calls what computes {', '.join(sorted(code))}")
    (called,) = code.values() or [None]
    if said is None and called is None:
        raise _open("neither its words nor its calls name one that is known here")
    if said is not None and called is None and said[0] in _ALSO_OF_SETS:
        raise _open(f"its words name {said[0]}, which is also said of sets and spans, and no call shows of which")
    if said is None and words.strip():
        raise _open(f"it calls what computes {next(iter(code))}, but its words name no metric that is known here")
    if said is not None and called is not None and said[0] != called[0]:
        raise _open(f"its words name {said[0]}, its code calls what computes {called[0]}")
    return said or called  # type: ignore[return-value]


# ---------------------------------------------------------------- syntax
def _metric_class(source: str) -> ast.ClassDef:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _open(f"it is not Python ({error})") from error
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and _method(node, "evaluate")]
    if len(found) != 1:
        raise _open(f"it has {len(found)} classes with a method `evaluate`")
    return found[0]


def _method(kind: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _uses_value(function: ast.FunctionDef | None) -> bool:
    nodes = ast.walk(function) if function else []
    return any(
        isinstance(node, ast.Attribute) and node.attr == "value" and _name(node.value) == "self" for node in nodes
    )


def _sentence(kind: ast.ClassDef) -> str:
    """The first paragraph that the class says of itself, its own name left out."""
    text = ast.get_docstring(kind) or ""
    return text.split("\n\n")[0].partition(" using ")[2] or text.split("\n\n")[0]


def _comments(function: ast.FunctionDef | None, source: str) -> str:
    """Comments of the method that name a metric, if they all name the same."""
    lines = source.splitlines()[function.lineno : function.end_lineno] if function else []
    named = [text for text in (line.partition("#")[2] for line in lines) if metric_named(text)]
    return named[0] if named and len({metric_named(text)[0] for text in named}) == 1 else ""  # type: ignore[index]


def _defaults(function: ast.FunctionDef | None) -> dict[str, Any]:
    if function is None or not function.args.defaults:
        return {}
    names = [argument.arg for argument in function.args.args][-len(function.args.defaults) :]
    return {name: _literal(node) for name, node in zip(names, function.args.defaults, strict=True)}


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _calls(function: ast.FunctionDef | None, source: str) -> Iterator[tuple[str, bool, dict[str, Any]]]:
    """Calls of scikit-learn's metrics: name, whether a root is taken in the same method, literal keywords."""
    known = _imported(ast.parse(source))
    nodes = list(ast.walk(function)) if function else []
    rooted = any(
        (isinstance(node, ast.Call) and _name(node.func) == "sqrt")
        or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and _literal(node.right) == 0.5)
        for node in nodes
    )
    for node in nodes:
        if isinstance(node, ast.Call) and _name(node.func) in known:
            words = {word.arg: _literal(word.value) for word in node.keywords if word.arg}
            yield known[_name(node.func)], rooted, words


def _imported(tree: ast.Module) -> dict[str, str]:
    """Name in the file -> name in sklearn.metrics."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn.metrics")
        for alias in node.names
    }


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _named(call: tuple[str, bool, dict[str, Any]]) -> Named | None:
    return metric_of_function(*call)
