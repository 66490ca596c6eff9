"""Do sandboxes hold on this machine? Every attack against every kind that can be had here, and a table of answers.

Ends with code 1 if something did not hold that its kind promises.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mlexpert.loops import screen, setup, workdir
from mlexpert.loops.settings import Config, ConfigError
from mlexpert.sandbox import attacks, choose
from mlexpert.sandbox.api import SandboxError
from mlexpert.sandbox.attacks import check, outside
from mlexpert.sandbox.attacks.attack import PROMISES, Attack
from mlexpert.sandbox.attacks.check import HELD, NOT_HELD, NOT_PROMISED, Finding
from mlexpert.sandbox.attacks.outside import Surroundings
from mlexpert.sandbox.containers import DockerSandbox
from mlexpert.sandbox.embedded import EmbeddedSandbox
from mlexpert.sandbox.kinds import STRENGTH

_CELLS = {HELD: "held", NOT_HELD: "NOT HELD", NOT_PROMISED: "-"}


@dataclass(frozen=True)
class Column:
    """What one kind of sandbox did."""

    kind: str
    line: str  # what it enforces, or why it cannot be had
    findings: tuple[Finding, ...] = ()


def run(config: Config, path: Path) -> None:
    kinds, chosen = _kinds(config.kinds), _chosen(config.attacks)
    path.mkdir(parents=True, exist_ok=True)
    columns = []
    for number, kind in enumerate(kinds, 1):
        screen.heading(number, len(kinds), kind)
        columns.append(asyncio.run(_column(config, kind, chosen)))
        screen.say(f"  {columns[-1].line}")
    workdir.write_atomic(path / "report.json", json.dumps([asdict(column) for column in columns], indent=1))
    screen.say(_table(columns, chosen))
    screen.say(f"written to {path / 'report.json'}")
    if any(finding.verdict == NOT_HELD for column in columns for finding in column.findings):
        sys.exit(1)


def _kinds(asked: str) -> list[str]:
    """Raises ConfigError for a kind that does not exist."""
    kinds = _words(asked) or list(reversed(STRENGTH))
    if unknown := [kind for kind in kinds if kind not in STRENGTH]:
        raise ConfigError(f"kinds={asked!r}: {', '.join(unknown)} is none of {', '.join(STRENGTH)}")
    return kinds


def _chosen(asked: str) -> list[Attack]:
    """Raises ConfigError if no attack has one of the words in its name."""
    words = _words(asked)
    found = [one for one in attacks.ALL if not words or any(word in one.name for word in words)]
    if not found:
        raise ConfigError(f"attacks={asked!r}: no attack has such a word in its name")
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


async def _column(config: Config, kind: str, chosen: Sequence[Attack]) -> Column:
    beside = [one for one in chosen if one.beside]
    alone = [one for one in chosen if not one.beside]
    findings: list[Finding] = []
    line = ""
    with outside.planted() as around, screen.bar(kind, len(chosen)) as bar:
        try:
            for slots, todo in ((1, alone), (2, beside)):
                if todo:
                    async with _sandbox(config, kind, slots) as sandbox:
                        line = setup.isolation_line(sandbox.isolation)
                        findings += await _attacked(sandbox, todo, around, bar)
        except SandboxError as error:
            return Column(kind, f"not available: {error}")
    order = {one.name: number for number, one in enumerate(chosen)}
    return Column(kind, line, tuple(sorted(findings, key=lambda finding: order[finding.attack])))


def _sandbox(config: Config, kind: str, slots: int) -> DockerSandbox | EmbeddedSandbox:
    return choose.of_kind(kind, slots, config.image, config.runtime)


async def _attacked(
    sandbox: check.Watched, todo: Sequence[Attack], around: Surroundings, bar: screen.tqdm
) -> list[Finding]:
    def tell(finding: Finding) -> None:
        screen.advance(bar, finding.attack)
        if finding.verdict == NOT_HELD:
            screen.say(f"  NOT HELD: {finding.attack}: {finding.reason}")

    return await check.run(sandbox, todo, around, tell)


# ---------------------------------------------------------------- the table
def _table(columns: Sequence[Column], chosen: Sequence[Attack]) -> str:
    """Rows are attacks, grouped by what they attack; columns are kinds. Reasons stand below."""
    shown = [column for column in columns if column.findings]
    wide = max(len(one.name) for one in chosen)
    lines = ["", " " * wide + "".join(f"  {column.kind:>10}" for column in shown)] if shown else [""]
    for promise in PROMISES if shown else ():
        rows = [one.name for one in chosen if one.promise == promise]
        lines += [promise] * bool(rows)
        lines += [f"{name:<{wide}}" + "".join(f"  {_cell(column, name):>10}" for column in shown) for name in rows]
    lines += ["", *(f"{column.kind}: {column.line}; {_sum(column)}" for column in columns)]
    lines += [
        f"NOT HELD by {column.kind}: {finding.attack}: {finding.reason}"
        for column in shown
        for finding in column.findings
        if finding.verdict == NOT_HELD
    ]
    return "\n".join(lines)


def _cell(column: Column, name: str) -> str:
    return next(_CELLS[finding.verdict] for finding in column.findings if finding.attack == name)


def _sum(column: Column) -> str:
    counts = {verdict: sum(f.verdict == verdict for f in column.findings) for verdict in _CELLS}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) if column.findings else "nothing tried"
