"""A set of tasks as one archive that may be given to others.

    <set>/README.md                  what is in it, and of each task where its data come from and under which licence
    <set>/manifest.json              the same for programs; which tasks were left out, and why
    <set>/<id>/public/...            what a policy may see
    <set>/<id>/task.json             the facts and the SHA-256 of every file that is here
    <set>/<id>/private/...           answers and thresholds, only on request

A task of data that may not be passed on is never in it: there is no switch for that. Neither are tasks that a review
rejected, nor, as private parts, other people's leaderboards. Without private parts nothing tells of the answers, their
checksums included. The same set gives the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import BOARDS, Task, load

MANIFEST, README = "manifest.json", "README.md"
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say


class ExportError(RuntimeError):
    """There is nothing that may be published, or no place to write it; the message says why."""


@dataclass(frozen=True)
class Exported:
    path: Path
    kept: tuple[str, ...]
    refused: Mapping[str, str]  # id -> reason


def export(folder: Path, target: Path, *, private: bool = False, rejected: Mapping[str, str] | None = None) -> Exported:
    """Writes the archive `target`, which appears when it is whole.

    Args:
      folder: a set of tasks.
      private: with answers, thresholds and notes. Whoever has them can hand in the answers.
      rejected: id -> reason, by a review.

    Raises ExportError if nothing may be published, TaskError for a folder that is no set.
    """
    kept, refused = _sorted_out(folder, private, rejected or {})
    if not kept:
        reasons = "; ".join(f"{id}: {reason}" for id, reason in refused.items())
        raise ExportError(f"nothing in {folder} may be published: {reasons}")
    name = folder.resolve().name
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in _files(kept, refused, private):
                _add(archive, f"{name}/{path}", content)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return Exported(target, tuple(task.id for task in kept), refused)


def _add(archive: zipfile.ZipFile, name: str, content: str | Path) -> None:
    member = zipfile.ZipInfo(name, _TIME)
    member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    if isinstance(content, str):
        archive.writestr(member, content)
        return
    member.file_size = content.stat().st_size  # so that zipfile knows whether 32 bits will do
    with content.open("rb") as source, archive.open(member, "w") as into:
        shutil.copyfileobj(source, into, 1 << 20)


def _sorted_out(folder: Path, private: bool, rejected: Mapping[str, str]) -> tuple[list[Task], dict[str, str]]:
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder; name a set of tasks")
    kept, refused = [], {}
    for root in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        try:
            task = load(root)
        except TaskError as error:  # one broken task does not stop the others
            refused[root.name] = f"not whole: {error}"
            continue
        if reason := _refusal(task, private, rejected):
            refused[task.id] = reason
        else:
            kept.append(task)
    if not kept and not refused:
        raise TaskError(f"{folder}: holds no task; make the task set first")
    return kept, refused


def _refusal(task: Task, private: bool, rejected: Mapping[str, str]) -> str:
    if not task.provenance.redistributable:
        licence = task.provenance.licence
        return f"its data may not be passed on ({licence}); whoever wants the task makes it from the source"
    if task.id in rejected:
        return f"rejected by a review: {rejected[task.id]}"
    if private and f"private/{BOARDS}" in task.checksums:
        return "its private part holds a leaderboard of other people's scores; export it without private parts"
    return ""


# ---------------------------------------------------------------- what is written
def _files(kept: list[Task], refused: Mapping[str, str], private: bool) -> Iterator[tuple[str, str | Path]]:
    yield README, _readme(kept, refused, private)
    yield MANIFEST, _json({"private": private, "tasks": list(map(_entry, kept)), "left_out": dict(refused)})
    for task in kept:
        shown = sorted(path for path in task.checksums if private or path.startswith("public/"))
        yield f"{task.id}/task.json", (task.root / "task.json") if private else _facts(task, shown)
        for path in shown:
            yield f"{task.id}/{path}", task.root / path


def _facts(task: Task, shown: list[str]) -> str:
    written = json.loads((task.root / "task.json").read_text(encoding="utf-8"))
    return _json(written | {"checksums": {path: task.checksums[path] for path in shown}})


def _entry(task: Task) -> dict[str, Any]:
    return {
        "id": task.id, "modality": task.modality, "domain": task.domain, "metric": task.metric,
        "settings": dict(task.settings), "lower_is_better": task.lower_is_better,
        "provenance": asdict(task.provenance), "split": asdict(task.split), "thresholds_from": task.thresholds_from,
    }  # fmt: skip


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _readme(kept: list[Task], refused: Mapping[str, str], private: bool) -> str:
    told = "with answers and thresholds: keep them from whom you grade" if private else "without answers"
    lines = [
        f"# {len(kept)} machine-learning tasks, {told}",
        "",
        "| task | data | licence | from |",
        "|---|---|---|---|",
    ]
    for task in kept:
        origin = task.provenance
        lines.append(f"| {task.id} | {origin.source_dataset} | {origin.licence} | {origin.url or origin.source} |")
    if refused:
        lines += ["", f"{len(refused)} tasks of the set are left out:", ""]
        lines += [f"- {id}: {reason}" for id, reason in refused.items()]
    return "\n".join(lines) + "\n"
