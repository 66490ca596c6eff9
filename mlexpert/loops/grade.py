"""What submissions are worth: a table, a report for each in MLE-bench's JSON schema, and the aggregate.

Every submission is graded in the grader's own process. Whatever is wrong with one submission, one line of a list or one
task, the others are graded; what could not be graded is listed apart and ends the program with code 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlexpert.loops import screen, statistics
from mlexpert.loops.settings import Config, ConfigError
from mlexpert.loops.workdir import write_atomic
from mlexpert.tasks.grader_process import GraderError, ProcessGrader
from mlexpert.tasks.report import Report, aggregate, report
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import Task, load


@dataclass
class Batch:
    """Submissions to grade, and what is wrong with the batch itself."""

    submissions: list[tuple[Task, Path | None, str]] = field(default_factory=list)  # task, file, run
    problems: list[str] = field(default_factory=list)


def run(config: Config, path: Path) -> None:
    if not config.task or not config.submission:
        raise ConfigError("name both: --config.task=<task or set> --config.submission=<file, folder or .jsonl>")
    tasks, problems = _tasks(Path(config.task))
    batch = read_batch(Path(config.submission), tasks)
    problems += batch.problems
    grader = ProcessGrader()
    reports: list[Report] = []
    try:
        with screen.bar("submissions", len(batch.submissions)) as bar:
            for task, file, name in batch.submissions:
                try:
                    reports.append(graded(grader, task, file, name))
                except (TaskError, GraderError) as error:
                    problems.append(f"{file}: not the submission's fault: {error}")
                screen.advance(bar, task.id)
    finally:
        grader.close()
    path.mkdir(parents=True, exist_ok=True)
    whole = aggregate(reports, sorted(tasks)) | {"problems": problems}
    write_atomic(path / "report.json", json.dumps(whole, indent=1, allow_nan=False))
    screen.say(table(reports))
    screen.say(summary(whole, path / "report.json"))
    if problems:
        sys.exit(1)


# ---------------------------------------------------------------- what is to be graded
def _tasks(path: Path) -> tuple[dict[str, Task], list[str]]:
    """The task in a folder, or those of a set; broken ones are problems as long as one is whole."""
    found = [path / "task.json"] if (path / "task.json").exists() else sorted(path.glob("[!.]*/task.json"))
    tasks: dict[str, Task] = {}
    problems: list[str] = []
    for file in found:
        try:
            task = load(file.parent)
            tasks[task.id] = task
        except TaskError as error:
            problems.append(str(error))
    if not tasks:
        raise TaskError(problems[0] if problems else f"{path}: neither a task nor a set of tasks")
    return tasks, problems


def read_batch(path: Path, tasks: dict[str, Task]) -> Batch:
    """A list (.jsonl), a folder of `<id>.csv` or one file. Raises ConfigError if there is nothing of the kind."""
    if path.is_dir():
        return Batch([(task, _file_of(path, id), "") for id, task in tasks.items()])
    if not path.is_file():
        raise ConfigError(f"config.submission={str(path)!r}: no such file or folder")
    if path.suffix in (".jsonl", ".ndjson"):
        return _listed(path, tasks)
    if len(tasks) != 1:
        raise ConfigError(
            f"{path} is one submission, but --config.task names {len(tasks)} tasks: name one of them, or a folder "
            "of <id>.csv or a .jsonl list as --config.submission"
        )
    return Batch([(next(iter(tasks.values())), path, "")])


def _file_of(folder: Path, id: str) -> Path | None:
    names = (f"{id}.csv", f"{id}.csv.gz", f"{id}/submission.csv", f"{id}/submission.csv.gz")
    return next((folder / name for name in names if (folder / name).exists()), None)


def _listed(path: Path, tasks: dict[str, Task]) -> Batch:
    """Lines {"competition_id" or "task", "submission_path", "run"?}; without a run the n-th line of a task is run n."""
    batch, count, seen = Batch(), dict.fromkeys(tasks, 0), set()
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            told = json.loads(line) if line.strip() else None
        except ValueError as error:
            batch.problems.append(f"{path.name}, line {number}: not JSON ({error})")
            continue
        if told is None:
            continue
        id = told.get("competition_id", told.get("task")) if isinstance(told, dict) else None
        if id not in tasks:
            batch.problems.append(f"{path.name}, line {number}: no task {id!r} in --config.task")
            continue
        count[id] += 1
        name = str(told.get("run", count[id]))
        if (id, name) in seen:
            batch.problems.append(f"{path.name}, line {number}: a second submission of task {id} in run {name}")
            continue
        seen.add((id, name))
        batch.submissions.append((tasks[id], _located(told.get("submission_path"), path.parent), name))
    return batch


def _located(name: object, folder: Path) -> Path | None:
    """A path as it stands, or beside the list."""
    if not isinstance(name, str) or not name:
        return None
    return Path(name) if Path(name).exists() else folder / name


# ---------------------------------------------------------------- one submission
def graded(grader: ProcessGrader, task: Task, file: Path | None, name: str) -> Report:
    """The report of one submission; None is one that was not handed in.

    Raises TaskError for a broken task, GraderError if the grader failed twice: neither is the submission's fault.
    """
    try:
        found = grader.report(task, file)
    except GraderError:
        found = grader.report(task, file)
    return report(task, found.verdict, found.refusal, found.standard_error, path=str(file or ""), run=name)


# ---------------------------------------------------------------- what is shown
HEAD = ("task", "run", "metric", "score", "±", "medal", "to the next", "human rank", "remark")


def table(reports: Sequence[Report]) -> str:
    """One line a report, in columns."""
    rows = [HEAD, *(_row(one) for one in reports)]
    wide = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def _row(one: Report) -> tuple[str, ...]:
    medals = {"gold": one.gold_medal, "silver": one.silver_medal, "bronze": one.bronze_medal}
    medal = next((name for name, won in medals.items() if won), "above median" if one.above_median else "")
    return (
        one.competition_id,
        one.run,
        one.metric,
        one.status if one.score is None else f"{one.score:.6g}",
        "" if one.standard_error is None else f"{one.standard_error:.2g}",
        medal,
        f"{one.next_medal} {one.next_distance:.3g}" if one.next_distance is not None else "",
        "" if one.human_rank is None else f"{100 * one.human_rank:.1f}",
        one.reason,
    )


def summary(whole: dict, path: Path) -> str:
    rate = whole["any_medal_percentage"]
    lines = [
        f"{whole['total_runs']} submissions, {whole['total_valid_submissions']} valid; "
        f"medals: {whole['total_gold_medals']} gold, {whole['total_silver_medals']} silver, "
        f"{whole['total_bronze_medals']} bronze; {whole['total_above_median']} above the median",
    ]
    if rate["mean"] is not None:
        over = "" if rate["sem"] is None else f" (standard error over {len(rate['runs'])} runs)"
        lines.append(f"any medal: {statistics.cell(rate)}{over} % of {whole['tasks']} tasks")
    if whole["padded"]:
        lines.append(f"{len(whole['padded'])} missing submissions count as failures, the first: {whole['padded'][0]}")
    if whole["human_rank"]:
        lines.append(f"human rank: {whole['human_rank']['mean']:.1f} over {whole['human_rank']['reports']} submissions")
    lines += [f"NOT GRADED: {problem}" for problem in whole["problems"]]
    return "\n".join([*lines, f"written to {path}"])
