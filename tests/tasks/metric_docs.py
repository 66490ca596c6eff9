"""The tables of `docs/metrics.md`, made from what the tests use.

PYTHONPATH=. python tests/tasks/metric_docs.py        rewrites them in place
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metric_edges import EDGES, Edge, value

from mlexpert.factory.mlebench_metrics import GRADERS, Grader
from mlexpert.tasks.metrics import METRICS, Metric
from mlexpert.tasks.metrics.record import REQUIRED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`" if text.strip() else ""


def options(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {json.dumps(setting)}" for name, setting in settings.items())


# ---------------------------------------------------------------- the metrics
def metrics() -> str:
    head = ("metric", "better", "a prediction is", "an answer is", "target columns", "settings", "reads beside")
    return table(head, [metric_row(metric) for metric in METRICS.values()])


def metric_row(metric: Metric) -> list[str]:
    least, largest = metric.targets
    targets = f"{least} or more" if largest is None else str(least)
    settings = [s.name + ("" if s.default is REQUIRED else f" = {json.dumps(s.default)}") for s in metric.settings]
    roles = [role if role in metric.required else f"{role} (if given)" for role in metric.roles]
    better = "lower" if metric.lower_is_better else "higher"
    return [
        code(metric.name), better, metric.needs, metric.answers, targets, ", ".join(settings), ", ".join(roles)
    ]  # fmt: skip


# ---------------------------------------------------------------- the edges
def edges() -> str:
    head = ("metric", "case", "answers", "predictions", "labels, settings, columns beside", "value")
    return table(head, [edge_row(edge) for edge in EDGES])


def edge_row(edge: Edge) -> list[str]:
    found = value(edge)
    beside = [f"{role}: {cells}" for role, cells in edge.beside.items()]
    given = "; ".join(text for text in (edge.labels, options(edge.settings), *beside) if text)
    number = found if isinstance(found, str) else f"{found + 0.0:.6g}"
    return [code(edge.metric), edge.case, code(edge.answers), code(edge.predictions), given, f"**{number}**"]


# ---------------------------------------------------------------- MLE-bench
def graders() -> str:
    head = ("competition", "metric", "settings, columns beside", "how far it is the same")
    return table(head, [grader_row(grader) for grader in GRADERS])


def grader_row(grader: Grader) -> list[str]:
    beside = [f"{role}: {'given' if role == column else column}" for role, column in grader.beside.items()]
    given = "; ".join(text for text in (options(grader.settings), *beside) if text)
    said = [text for text in (grader.note, grader.differs and f"**differs**: {grader.differs}") if text]
    return [grader.competition, code(grader.metric), given, "; ".join(said)]


SECTIONS = {"metrics": metrics, "edges": edges, "graders": graders}


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->\n\n", f"\n\n<!-- end of {name} -->"


def written(page: str, name: str) -> str:
    """What the page holds between the marks of a section."""
    start, end = marks(name)
    return page.split(start, 1)[1].split(end, 1)[0]


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, make in SECTIONS.items():
        start, end = marks(name)
        before, rest = page.split(start, 1)
        page = before + start + make() + end + rest.split(end, 1)[1]
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
