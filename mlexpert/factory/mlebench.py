"""Tasks out of a prepared MLE-bench data folder: <data>/<id>/prepared/{public,private}.

The metric is the one of `mlebench_metrics`, never code of the benchmark's. What MLE-bench keeps in its repository and
not beside the data is taken from a checkout, if one is named: titles, descriptions, and the private human leaderboard,
which is often a Git LFS pointer (a note of 131 bytes) and is then called so instead of being read as a board.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlexpert.factory.mlebench_answers import hidden_of
from mlexpert.factory.mlebench_metrics import BY_NAME
from mlexpert.factory.prepared import (
    Prepared,
    competitions,
    heading,
    is_lfs_pointer,
    lay_out,
    lead_of,
    planned,
    sample_columns,
)
from mlexpert.factory.records import Lead, Origin, Quarantine, Raw
from mlexpert.tasks.task import SAMPLE

VERSION = "1"
_SAMPLES = (
    SAMPLE, "sampleSubmission.csv", "sample_submission_null.csv", "kaggle_sample_submission.csv",
    "randomPredictions.csv",
)  # fmt: skip


def origin(data: Path, checkout: Path | None = None, only: Sequence[str] = (), boards: Path | None = None) -> Origin:
    """One task for each competition in `data`, or for those named.

    Args:
      checkout: a working tree of MLE-bench.
      boards: a folder of human leaderboards, which serves where MLE-bench's own is not at hand.
    """

    def discover() -> list[Lead]:
        return [_lead(folder, boards) for folder in competitions(data, only, "`mlebench prepare`")]

    def fetch(lead: Lead, folder: Path) -> Raw:
        return read_competition(Path(lead.where["folder"]), lead, folder, checkout)

    return Origin(discover, fetch, planned, VERSION)


def _lead(folder: Path, boards: Path | None) -> Lead:
    has_board = boards is not None and (boards / folder.name).is_dir()
    return lead_of("mle-bench", folder, folder / "prepared" / "private", board=folder.name if has_board else "")


def read_competition(source: Path, lead: Lead, folder: Path, checkout: Path | None = None) -> Raw:
    """Raises Quarantine: not prepared, no metric known, no answers, or parts that do not fit together."""
    public, private = source / "prepared" / "public", source / "prepared" / "private"
    if not public.is_dir() or not private.is_dir():
        raise Quarantine("fetch", f"{source.name} is not prepared: run `mlebench prepare -c {source.name}` first")
    grader = BY_NAME.get(source.name)
    if grader is None:
        raise Quarantine("fetch", f"no metric is known for {source.name!r}; add it to factory/mlebench_metrics.py")
    if grader.refused:
        raise Quarantine("fetch", f"{source.name}: {grader.refused}")
    sample = _sample(public, private)
    text, title = _text(source.name, public, checkout)
    board, note = _board(source, checkout)
    hidden = hidden_of(grader, private, sample_columns(sample))
    prepared = Prepared(
        source.name, title, public, sample, hidden, grader.metric, grader.settings, text, grader.onehot,
        str(lead.where["board"]), {"private": board} if board else {},
    )  # fmt: skip
    lay_out(prepared, folder / "files")
    note = f"{note}, another one is used" if lead.where["board"] and not board else note
    told = "; ".join(filter(None, ("split by MLE-bench's own preparation", note, grader.differs)))
    return Raw(lead.id, folder / "files", replace(lead.provenance, note=told), title, text)


def _sample(public: Path, private: Path) -> Path:
    """Some competitions have it among the private files only: it holds no answers there either."""
    places = [public / name for name in _SAMPLES] + [private / SAMPLE]
    if found := [path for path in places if path.is_file()]:
        return found[0]
    raise Quarantine("fetch", f"no sample submission in {public}: none of {', '.join(_SAMPLES)}; prepare it again")


def _text(name: str, public: Path, checkout: Path | None) -> tuple[str, str]:
    places = [public / "description.md"]
    if checkout is not None:
        places.append(checkout / "mlebench" / "competitions" / name / "description.md")
    found = [path for path in places if path.is_file()]
    if not found:
        raise Quarantine("fetch", f"{name} has no description.md; prepare it again, or name a checkout of MLE-bench")
    text = found[0].read_text(encoding="utf-8-sig", errors="replace")
    config = places[-1].with_name("config.yaml")
    named = re.search(r"^name:\s*(.+)$", config.read_text(encoding="utf-8"), re.M) if config.is_file() else None
    title = named.group(1).strip().strip("\"'") if named else heading(text, name)
    return text, title


# ---------------------------------------------------------------- leaderboard
def _board(source: Path, checkout: Path | None) -> tuple[list[str], str]:
    """Scores, and what there is to say about them."""
    places = [source / "leaderboard.csv"]
    if checkout is not None:
        places.append(checkout / "mlebench" / "competitions" / source.name / "leaderboard.csv")
    for path in filter(Path.is_file, places):
        if is_lfs_pointer(path):
            return [], "leaderboard.csv is a Git LFS pointer and no board (run `git lfs pull` in the checkout)"
        with path.open(encoding="utf-8-sig", newline="") as file:
            scores = _scores(list(csv.DictReader(file)))
        if scores:
            return scores, f"private leaderboard of MLE-bench, {len(scores)} teams"
        return [], "leaderboard.csv has no scores"
    return [], "no leaderboard.csv beside the data"


def _scores(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["score"] for row in rows if row.get("score") and row.get("hasScore", "True") not in ("False", "false")]
