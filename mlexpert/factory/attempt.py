"""One task from its lead to its folder: fetch, plan, then attempts until one passes or nothing is left to mend.

An attempt is split, build, verify and leaks on one blueprint. What refuses it is handed to `repair`; every change is in
the ledger before it is tried.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mlexpert.factory import boards as leaderboards
from mlexpert.factory import leaks, reference
from mlexpert.factory.adopt import adopt
from mlexpert.factory.boards import Boards
from mlexpert.factory.build import Staged, build
from mlexpert.factory.ledger import Entry, Ledger
from mlexpert.factory.records import Blueprint, Finding, Lead, Origin, Quarantine, Raw
from mlexpert.factory.repair import ATTEMPTS, problem_of, problems_of, repair
from mlexpert.factory.targets import bound
from mlexpert.factory.thresholds import REFERENCE_SOLUTIONS, Decision, best, decide
from mlexpert.factory.verify import verify
from mlexpert.tasks.seal import seal
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import ANSWERS, Task, Thresholds


@dataclass(frozen=True)
class Made:
    repairs: tuple[str, ...]
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Draft:
    """All that is to be sealed: a task that could be built and graded, with what was found out about it."""

    staged: Staged
    decision: Decision
    scores: Mapping[str, float]
    findings: tuple[Finding, ...]
    boards: Boards | None


class Refused(Quarantine):
    """A task that could be built and graded, but gives its answers away."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("leaks", "; ".join(finding.text for finding in findings if finding.severity == "refuse"))
        self.findings = findings


def make_task(
    origin: Origin, lead: Lead, folder: Path, work: Path, boards: Path | None, ledger: Ledger, key: str
) -> Made:
    """Puts the task into `folder`. Raises Quarantine."""
    start = time.monotonic()

    def note(stage: str, state: str = "done", reason: str = "", **detail: Any) -> None:
        ledger.append(Entry(lead.id, stage, state, reason, key, detail))

    (work / "raw").mkdir(parents=True, exist_ok=True)
    raw = origin.fetch(lead, work / "raw")
    note("fetch")
    plan = origin.plan(raw)
    if plan.id != lead.id:
        raise Quarantine("plan", f"the blueprint is for {plan.id!r}; a blueprint keeps the id of its lead")
    note("plan", blueprint=plan.digest())
    repairs: list[str] = []
    draft = None
    while draft is None:
        try:
            draft = attempt(raw, plan, work, boards, note)
        except Quarantine as error:
            plan, change = mended(raw, plan, error, repairs)
            repairs.append(change)
            note("repair", "repaired", change)
    seal_into(folder, draft, raw, plan, repairs)
    for name in ("draft", "staged", "references"):
        shutil.rmtree(work / name, ignore_errors=True)
    return Made(tuple(repairs), detail(draft, plan, repairs, boards, time.monotonic() - start))


def attempt(raw: Raw, plan: Blueprint, work: Path, boards: Path | None, note: Callable[..., None]) -> Draft:
    """Split, build, verify, leaks. Raises Quarantine, of the kind Refused if findings keep the task out."""
    staged = (adopt if plan.public_folder else build)(raw, plan, work / "staged")
    note("build", recipe=plan.recipe, train=staged.rows[0], test=staged.rows[1], drift=staged.facts.split.drift)
    scores = _scores(staged, plan, work / "references")
    draft = _decided(raw, plan, staged, scores, leaderboards.find(plan, raw, boards), work / "draft")
    try:
        task = seal_into(work / "draft", draft, raw, plan, ())
    except TaskError as error:
        raise Quarantine("build", str(error)) from error
    seen = verify(task, scores, work / "references")
    note("verify", scores=dict(scores), thresholds_from=draft.decision.thresholds_from)
    leaking = _not_refused(task, raw)
    note("leaks", findings=dict(Counter(finding.kind for finding in leaking)))
    return replace(draft, findings=(*draft.findings, *seen, *leaking))


def _not_refused(task: Task, raw: Raw) -> list[Finding]:
    """What the task gives away, if that is little enough. Raises Refused."""
    try:
        leaking = leaks.findings(task, raw.test_files)
    except TaskError as error:
        raise Quarantine("leaks", str(error)) from error
    if any(finding.severity == "refuse" for finding in leaking):
        raise Refused(leaking)
    return leaking


def _decided(
    raw: Raw, plan: Blueprint, staged: Staged, scores: Mapping[str, float], boards: Boards | None, work: Path
) -> Draft:
    """With thresholds. If solutions do not differ, a leak may be the reason: it is named then, not the consequence."""
    metric = bound(plan.metric, plan.settings)
    try:
        decision = decide(metric, scores, boards)
    except Quarantine as error:
        if error.kind == "nothing_learnt":
            flat = Thresholds(*[best(metric, scores)[1]] * 4, sample=scores[reference.SAMPLE_SCORE])
            draft = Draft(staged, Decision(flat, REFERENCE_SOLUTIONS), scores, (), None)
            _not_refused(seal_into(work, draft, raw, plan, ()), raw)
        raise
    facts = replace(staged.facts, thresholds_from=decision.thresholds_from)
    return Draft(replace(staged, facts=facts), decision, scores, (*staged.findings, *decision.findings), boards)


def _scores(staged: Staged, plan: Blueprint, out: Path) -> dict[str, float]:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    staged.answers.to_csv(out / ANSWERS, index=False, encoding="utf-8", lineterminator="\n")
    return reference.run(
        reference.Job(
            facts=staged.facts,
            public=staged.public,
            answers=out / ANSWERS,
            out=out,
            time_column=plan.time_column,
            group_column=plan.group_column,
            hidden=plan.hidden,
        )
    )


def mended(raw: Raw, plan: Blueprint, error: Quarantine, earlier: Sequence[str]) -> tuple[Blueprint, str]:
    """The blueprint with every problem mended, and what was changed. Raises Quarantine if one cannot be."""
    problems = problems_of(error.findings) if isinstance(error, Refused) else [problem_of(error)]
    changes = []
    for problem in problems:
        found = repair(raw, plan, problem) if len(earlier) < ATTEMPTS else None
        if not found:
            tried = f" (after {len(earlier)} repairs: {'; '.join(earlier)})" if earlier else ""
            raise Quarantine(error.stage, f"{problem.text}{tried}", problem.kind) from error
        plan = found.plan
        changes.append(found.text)
    return plan, "; ".join(changes)


# ---------------------------------------------------------------- what is kept
def seal_into(folder: Path, draft: Draft, raw: Raw, plan: Blueprint, repairs: Sequence[str]) -> Task:
    """The draft as a task folder, with all that was found out about it in the maker's notes."""
    found, by_people = draft.boards, draft.decision.thresholds_from != REFERENCE_SOLUTIONS
    boards = {"private": found.private, "public": found.public} if found and by_people else {}
    return seal(
        folder,
        draft.staged.facts,
        draft.decision.thresholds,
        public=draft.staged.public,
        answers=draft.staged.answers,
        seed=plan.seed,
        notes={
            "references": dict(draft.scores),
            "findings": [asdict(finding) for finding in draft.findings],
            "repairs": list(repairs),
            "blueprint": asdict(plan),
            "title": plan.title,
        },
        boards={name: scores for name, scores in boards.items() if scores},
    )


def detail(
    draft: Draft, plan: Blueprint, repairs: Sequence[str], boards: Path | None, seconds: float
) -> dict[str, Any]:
    """What the ledger and tables show of a finished task."""
    board = plan.board if boards and (Path(boards) / plan.board).exists() else ""
    return {
        "title": plan.title,
        "modality": plan.modality,
        "domain": plan.domain,
        "metric": plan.metric,
        "rows": list(draft.staged.rows),
        "thresholds_from": draft.decision.thresholds_from,
        "findings": dict(Counter(finding.severity for finding in draft.findings)),
        "repairs": list(repairs),
        "seconds": round(seconds, 2),
        "board": board,
        "board_digest": leaderboards.digest(Path(boards) / board) if board and boards else "",
    }
