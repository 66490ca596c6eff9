"""Competitions of Kaggle as tasks, through the official client with the user's own credentials.

    discover   by name, or by a filter: words, category, deadline, number of teams, size of the data
    fetch      facts, pages, data and leaderboard (see `kaggle_fetch`)
    plan       `analyse`, with the leaderboard for thresholds if the metric is the one that Kaggle names

Kaggle does not hand out test labels, so the training rows are split again, and the leaderboard is of another test set.
What comes from Kaggle is never redistributable, whatever else is done with it.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlexpert.factory.archive_members import Limits
from mlexpert.factory.kaggle_client import KaggleError, call, connect
from mlexpert.factory.kaggle_fetch import fetch_competition, lead_of, list_files, slug, with_board
from mlexpert.factory.records import Blueprint, Lead, Origin, Quarantine, Raw, digest
from mlexpert.tasks.task import Provenance

CATEGORIES = ("", "featured", "research", "recruitment", "gettingStarted", "masters", "playground")
DEADLINES = ("any", "open", "closed")


@dataclass(frozen=True)
class Filter:
    competitions: tuple[str, ...] = ()  # names as in the address; when given, nothing else is asked
    search: str = ""
    category: str = ""  # one of CATEGORIES, "" for all
    deadline: str = "any"
    min_teams: int = 0
    max_bytes: int = 0  # of all data files together; 0 for any
    tables: bool = True  # only competitions with a CSV file (of `max_bytes`' listing)
    most: int = 20  # competitions

    def __post_init__(self) -> None:
        if self.category not in CATEGORIES:
            raise Quarantine("discover", f"category {self.category!r} is none of {', '.join(map(repr, CATEGORIES))}")
        if self.deadline not in DEADLINES:
            raise Quarantine("discover", f"deadline {self.deadline!r} is none of {', '.join(DEADLINES)}")


def origin(
    wanted: Filter, plan: Callable[[Raw], Blueprint], *, cache: Path | None = None, version: str = "",
    limits: Limits | None = None,
) -> Origin:  # fmt: skip
    """`cache` remembers what a filter found, so that a later run asks nobody; remove the file to look again."""

    def discover() -> Sequence[Lead]:
        if wanted.competitions:
            return [lead_of(name, name, "") for name in wanted.competitions]
        return _remembered(cache, wanted, lambda: list(search(connect(), wanted)))

    def fetch(lead: Lead, folder: Path) -> Raw:
        return fetch_competition(connect(), lead, folder, limits)

    def planned(raw: Raw) -> Blueprint:
        return with_board(plan(raw), raw)

    return Origin(discover, fetch, planned, version)


# ---------------------------------------------------------------- discover
def search(api: Any, wanted: Filter) -> Iterator[Lead]:
    """Competitions that pass the filter, best first as Kaggle sorts them. Raises KaggleError."""
    found = 0
    for competition in _competitions(api, wanted):
        if found == wanted.most:
            return
        name = slug(competition.ref or competition.url or "")
        if _passes(competition, wanted) and (not (wanted.max_bytes or wanted.tables) or _fits(api, name, wanted)):
            found += 1
            yield lead_of(name, competition.title or name, competition.license_name or "")


def _competitions(api: Any, wanted: Filter) -> Iterator[Any]:
    token: str | None = None
    while True:
        page = call(
            api.competitions_list, "the list of competitions", category=wanted.category or None,
            search=wanted.search or None, page_size=50, page_token=token,
        )  # fmt: skip
        yield from filter(None, page.competitions or [])
        token = page.next_page_token
        if not token:
            return


def _passes(competition: Any, wanted: Filter) -> bool:
    if (competition.team_count or 0) < wanted.min_teams:
        return False
    if wanted.deadline == "any" or competition.deadline is None:
        return wanted.deadline == "any"
    return _is_over(competition.deadline) == (wanted.deadline == "closed")


def _is_over(deadline: datetime.datetime) -> bool:
    now = datetime.datetime.now(datetime.UTC)
    return deadline.replace(tzinfo=deadline.tzinfo or datetime.UTC) < now


def _fits(api: Any, name: str, wanted: Filter) -> bool:
    """By the listed files; a competition whose files are not listed before its rules are accepted stays in."""
    try:
        files = list_files(api, name)
    except KaggleError as error:
        if error.problem == "rules":
            return True
        raise
    total = sum(size for _, size in files)
    is_table = any(re.search(r"\.csv(\.(zip|gz))?$|\.zip$", file, re.I) for file, _ in files)
    return (not wanted.max_bytes or total <= wanted.max_bytes) and (not wanted.tables or is_table)


def _remembered(cache: Path | None, wanted: Filter, ask: Callable[[], list[Lead]]) -> list[Lead]:
    key = digest(asdict(wanted))
    if cache is not None and cache.is_file():
        try:
            kept = json.loads(cache.read_text(encoding="utf-8"))
            if kept["filter"] == key:
                return [Lead(**lead | {"provenance": Provenance(**lead["provenance"])}) for lead in kept["leads"]]
        except (ValueError, KeyError, TypeError):
            pass  # not ours, or of another version: it is asked and written again
    leads = ask()
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps({"filter": key, "leads": [asdict(lead) for lead in leads]}, indent=1))
    return leads
