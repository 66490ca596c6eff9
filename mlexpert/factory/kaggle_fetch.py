"""One competition from Kaggle: its facts and pages, its data, its leaderboard.

A download that broke off goes on where it stopped, and is verified: its length, its checksums, the names that Kaggle
lists. Of a leaderboard rank and score are kept, and which board it was, of which day, with how many rows.
"""

from __future__ import annotations

import csv
import datetime
import json
import math
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mlexpert.factory import archive, boards
from mlexpert.factory.archive_members import DAMAGED, Limits
from mlexpert.factory.kaggle_client import KaggleError, call
from mlexpert.factory.metric_names import metric_named
from mlexpert.factory.records import Blueprint, Lead, Quarantine, Raw
from mlexpert.tasks.metrics import number
from mlexpert.tasks.task import Provenance

BOARD, FACTS = ".kaggle/board", ".kaggle/facts.json"
_FINAL = ("absent", "rules", "reply")  # problems that another try does not mend
_PAGES = ("description", "abstract", "evaluation", "data-description", "data")
_LISTED = 400  # files of a competition that are compared with the download
_PAGE = 200


def lead_of(name: str, title: str, licence: str) -> Lead:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise Quarantine("discover", f"{name!r} is no name of a competition; take the last part of its address")
    url = f"https://www.kaggle.com/competitions/{name}"
    said = f"; Kaggle names {licence!r}" if licence else ""
    provenance = Provenance("kaggle", url, f"the competition's rules{said}", False, name.lower())
    return Lead(name, title, provenance, {"competition": name})


def list_files(api: Any, name: str, most: int = _LISTED) -> list[tuple[str, int]]:
    """Names and bytes of the first data files. Raises KaggleError."""
    files: list[tuple[str, int]] = []
    token: str | None = None
    while len(files) < most:
        page = call(api.competition_list_files, name, name, page_token=token, page_size=_PAGE)
        files += [(file.name or "", file.total_bytes or 0) for file in page.files or [] if file]
        token = page.next_page_token
        if not token:
            break
    return files


def slug(reference: str) -> str:
    """The name in a competition's address."""
    return reference.rstrip("/").rsplit("/", 1)[-1]


def fetch_competition(api: Any, lead: Lead, folder: Path, limits: Limits | None = None) -> Raw:
    """Data below `folder`/files, leaderboard and facts in its `.kaggle`. Raises KaggleError, Quarantine."""
    name = str(lead.where["competition"])
    facts = _facts(api, name)
    files = folder / "files"
    shutil.rmtree(files, ignore_errors=True)
    _unpacked(download(api, name, folder), files, limits)
    board = leaderboard(api, name, folder / "download", files / BOARD)
    (files / FACTS).parent.mkdir(exist_ok=True)
    (files / FACTS).write_text(json.dumps(facts | {"board": board}, indent=1), encoding="utf-8")
    note = f"{facts['metric'] or 'no metric named'}; {_told(board)}"
    provenance = replace(lead_of(name, facts["title"], facts["licence"]).provenance, note=note)
    return Raw(lead.id, files, provenance, facts["title"], _text(api, name, facts))


def _unpacked(whole: Path, files: Path, limits: Limits | None) -> None:
    try:
        archive.unpack(whole, files, limits)
    except Quarantine as error:
        if error.kind == DAMAGED:
            whole.unlink()  # of the right length and date: the client would never fetch it again
        raise


def _facts(api: Any, name: str) -> dict[str, Any]:
    def ask() -> Any:
        from kagglesdk.competitions.types.competition_api_service import ApiGetCompetitionRequest

        with api.build_kaggle_client() as client:
            request = ApiGetCompetitionRequest()
            request.competition_name = name
            return client.competitions.competition_api_client.get_competition(request)

    found = call(ask, name)
    return {
        "title": found.title or name, "metric": found.evaluation_metric or "", "licence": found.license_name or "",
        "teams": found.team_count or 0, "deadline": found.deadline.isoformat() if found.deadline else "",
    }  # fmt: skip


def _text(api: Any, name: str, facts: Mapping[str, Any]) -> str:
    """Title, pages and the metric's name. A competition whose pages cannot be had still has its data."""
    parts = [f"# {facts['title']}"]
    try:
        pages = {page.name.lower(): page.content for page in call(api.competition_list_pages, name, name) or [] if page}
    except KaggleError as error:
        if error.problem not in _FINAL:
            raise
        pages = {}
    parts += [f"## {page.capitalize()}\n\n{_plain(pages[page])}" for page in _PAGES if pages.get(page)]
    if facts["metric"]:
        parts.append(f"Evaluation metric: {facts['metric']}")
    return "\n\n".join(parts) + "\n"


def download(api: Any, name: str, folder: Path) -> Path:
    """The competition's archive in `folder`/download, whole: what is there already is gone on with, or kept.

    Raises KaggleError: kind "rules" with the address to accept them at, "half" if it stays damaged, ...
    """
    into = folder / "download"
    into.mkdir(parents=True, exist_ok=True)
    problem = ""
    for force in (False, True):
        call(api.competition_download_files, name, name, path=str(into), force=force, quiet=True)
        whole = [path for path in sorted(into.glob(f"{name}.*")) if not path.name.endswith(".kaggle-partial")]
        problem = _problem(whole[0], list_files(api, name)) if whole else "there is no archive"
        if not problem:
            return whole[0]
    raise KaggleError("half", f"{name}: the download is not what Kaggle lists, twice: {problem}; run the command again")


def _problem(path: Path, listed: Sequence[tuple[str, int]]) -> str:
    """What is wrong with a downloaded archive; "" if it opens and has the listed files. `unpack` checks the rest."""
    try:
        with zipfile.ZipFile(path) as opened:
            inside = {member.rsplit("/", 1)[-1] for member in opened.namelist()}
    except zipfile.BadZipFile as error:
        return f"{path.name} does not open ({error})"
    # Kaggle lists some files by their path, some by their name.
    missing = [file for file, _ in listed if not {file.rsplit("/", 1)[-1], f"{slug(file)}.zip"} & inside]
    return f"{len(missing)} listed files are not in it, such as {missing[0]}" if missing else ""


# ---------------------------------------------------------------- leaderboards
def leaderboard(api: Any, name: str, work: Path, folder: Path) -> dict[str, Any]:
    """Writes `<board>_leaderboard.csv` (rank, score) and returns which board it is, of when, and its rows.

    Kaggle's download has been the public board, also after the end, and calls itself so; what it calls itself is
    recorded, not what one would expect. {"problem": ...} if there is none: a task can do without.
    """
    shutil.rmtree(work / "board", ignore_errors=True)
    (work / "board").mkdir(parents=True)
    try:
        call(api.competition_leaderboard_download, name, name, path=str(work / "board"), quiet=True)
        archive.unpack(work / "board" / f"{name}.zip", work / "board" / "files")
    except Quarantine as error:
        if isinstance(error, KaggleError) and error.problem not in _FINAL:
            raise
        return {"problem": error.reason}
    tables = sorted((work / "board" / "files").rglob("*.csv"))
    if not tables:
        return {"problem": "the leaderboard's archive holds no CSV file"}
    return _keep_board(tables[0], folder)


def _keep_board(table: Path, folder: Path) -> dict[str, Any]:
    kind = next((kind for kind in ("public", "private") if kind in table.name.lower()), "unnamed")
    date = re.search(r"\d{4}-\d\d-\d\d", table.name)
    with table.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        column = next((field for field in rows.fieldnames or [] if field.lower() == "score"), "")
        scores = [(row[column] or "").strip() for row in rows] if column else []
    kept = [score for score in scores if math.isfinite(number(score))]
    if not kept:
        return {"problem": f"{table.name} has no scores"}
    boards.write(folder, "private" if kind == "private" else "public", kept)
    fetched = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        "board": kind,
        "date": date.group() if date else fetched,
        "rows": len(kept),
        "dropped": len(scores) - len(kept),
    }


def _told(board: Mapping[str, Any]) -> str:
    if "problem" in board:
        return f"no leaderboard ({board['problem']})"
    dropped = f", {board['dropped']} without a score left out" if board["dropped"] else ""
    return f"{board['board']} leaderboard of {board['date']}, {board['rows']} teams{dropped}"


def with_board(blueprint: Blueprint, raw: Raw) -> Blueprint:
    """Human scores count only for the metric by which they were given."""
    facts = json.loads((raw.folder / FACTS).read_text(encoding="utf-8"))
    named = metric_named(facts["metric"])
    if "problem" in facts["board"] or named is None or named[0] != blueprint.metric:
        return blueprint
    return replace(blueprint, board=BOARD)


# ---------------------------------------------------------------- pages
class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.parts.append({"li": "\n- ", "br": "\n", "td": " ", "th": " "}.get(tag, ""))
        self.parts.append("\n\n" if re.fullmatch(r"p|div|h\d|ul|ol|table|tr|pre", tag) else "")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def _plain(page: str) -> str:
    """A page of HTML or Markdown as text."""
    if not re.search(r"<(p|div|h\d|ul|table|br|a)\b", page, re.I):
        return page.strip()
    reader = _Text()
    reader.feed(page)
    return re.sub(r"\n\s*\n+", "\n\n", "".join(reader.parts)).strip()
