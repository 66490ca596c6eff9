"""Benchmarks that come prepared: a public folder, a sample submission and answers -> the raw files of a task.

    <folder>/public/       the benchmark's public folder, file for file, with description.md and a sample submission
                           that asks for exactly what is graded
    <folder>/answers.csv   id, targets, columns named by role
    <folder>/board/        private_leaderboard.csv, public_leaderboard.csv (rank, score), where there are real ones
    <folder>/plan.json     the blueprint

Files are linked where the disk allows it, so nothing large is copied twice; none is changed in place. A sample that has
more rows than there are answers keeps them, and those rows do not count; one with other columns is written anew.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mlexpert.factory import boards
from mlexpert.factory.mlebench_answers import Hidden, in_order, labels_of_cells, labels_of_table
from mlexpert.factory.records import Blueprint, Lead, Quarantine, Raw, from_json, to_json
from mlexpert.tasks.metrics import METRICS, Needs, UndefinedMetric, bind
from mlexpert.tasks.tables import TaskError, column, header, read_table
from mlexpert.tasks.task import DESCRIPTION, SAMPLE, Provenance

ANSWERS, BOARD, PLAN, PUBLIC = "answers.csv", "board", "plan.json", "public"
_LFS = b"version https://git-lfs.github.com/spec/"
_SUFFIXES = {
    "image": ("png", "jpg", "jpeg", "tif", "tiff", "bmp", "dcm", "dicom", "webp", "npy"),
    "audio": ("wav", "flac", "aif", "aiff", "mp3", "ogg", "m4a"),
    "video": ("mp4", "avi", "mov"),
}


@dataclass(frozen=True)
class Prepared:
    """A competition of a benchmark, read and understood."""

    id: str
    title: str
    public: Path
    sample: Path
    hidden: Hidden
    metric: str
    settings: Mapping[str, Any]
    text: str
    onehot: bool = False  # the sample has one column per label
    board: str = ""  # the human leaderboard's name, if none lies beside the data
    boards: Mapping[str, Sequence[str]] = field(default_factory=dict)  # "private", "public" -> scores, best first


# ---------------------------------------------------------------- what there is
def competitions(data: Path, only: Sequence[str], written_by: str) -> list[Path]:
    """The folders of those named, or of all. Raises Quarantine("discover", ...) if `data` is no folder."""
    if not data.is_dir():
        raise Quarantine("discover", f"{data} is no folder; name the one that {written_by} wrote")
    names = only or sorted(path.name for path in data.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [data / name for name in names]


def lead_of(source: str, folder: Path, private: Path, **where: Any) -> Lead:
    """A competition of Kaggle that the benchmark `source` prepared; other private files make it another lead."""
    url = f"https://www.kaggle.com/competitions/{folder.name}"
    provenance = Provenance(source, url, "the competition's rules", False, folder.name.lower())
    files = sorted(private.iterdir()) if private.is_dir() else []
    state = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    return Lead(folder.name, folder.name, provenance, {"folder": str(folder.resolve()), "private": state, **where})


def sample_columns(path: Path) -> list[str]:
    """Raises Quarantine if the sample submission cannot be read."""
    try:
        return header(path)
    except TaskError as error:
        raise Quarantine("fetch", f"the sample submission cannot be read: {error}") from error


def heading(text: str, name: str) -> str:
    """The first heading of a description; without one, the competition's name in words."""
    found = re.search(r"^#+\s+(.+)$", text, re.M)
    named = found and found.group(1).strip().lower() != "overview"
    return found.group(1).strip() if found and named else name.replace("-", " ").capitalize()


# ---------------------------------------------------------------- the raw files of a task
def lay_out(prepared: Prepared, folder: Path) -> None:
    """Writes the raw files of a task into `folder`. Raises Quarantine saying what does not fit together."""
    shutil.rmtree(folder, ignore_errors=True)
    _link_tree(prepared.public, folder / PUBLIC)
    sample = _table(prepared.sample)
    answers = _aligned(prepared.hidden, sample, prepared.sample.name)
    labels = _labels(prepared, sample, folder / PUBLIC)
    wanted = _wanted(prepared, sample, labels)
    asked = sample.loc[:, [prepared.hidden.id_column, *wanted]]
    _write_sample(asked, prepared.sample, folder / PUBLIC)
    answers.to_csv(folder / ANSWERS, index=False, encoding="utf-8", lineterminator="\n")
    _own(folder / PUBLIC / DESCRIPTION).write_text(prepared.text, encoding="utf-8")
    for name, scores in prepared.boards.items():
        boards.write(folder / BOARD, name, scores)
    train, test = _tables(folder / PUBLIC, prepared.hidden, set(sample[prepared.hidden.id_column]))
    plan = Blueprint(
        prepared.id, prepared.title, prepared.text, modality_of(folder / PUBLIC, train), "competition", train,
        prepared.hidden.targets, prepared.metric, test=test, answers=ANSWERS, public_folder=PUBLIC, sample=SAMPLE,
        id_column=prepared.hidden.id_column, settings=dict(prepared.settings), labels=labels, recipe="ready",
        board=BOARD if prepared.boards else prepared.board,
    )  # fmt: skip
    (folder / PLAN).write_text(to_json(plan), encoding="utf-8")


def planned(raw: Raw) -> Blueprint:
    return from_json((raw.folder / PLAN).read_text(encoding="utf-8"))


# ---------------------------------------------------------------- files
def _link_tree(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_symlink():
            raise Quarantine("fetch", f"{path.name} in the public folder is a link; put the file itself there")
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            place.mkdir(exist_ok=True)
            continue
        try:
            os.link(path, place)
        except OSError:  # another disk, or one without links
            shutil.copyfile(path, place)


def _own(path: Path) -> Path:
    """A path that may be written to: not by way of a link to the benchmark's own file."""
    path.unlink(missing_ok=True)
    return path


def _table(path: Path) -> pd.DataFrame:
    try:
        return read_table(path)
    except TaskError as error:
        raise Quarantine("fetch", f"the sample submission cannot be read: {error}") from error


def is_lfs_pointer(path: Path) -> bool:
    """Whether Git left a note of a large file there instead of the file."""
    with path.open("rb") as file:
        return file.read(len(_LFS)) == _LFS


def modality_of(public: Path, train: str) -> str:
    """By what most files are; by the longest cells of the training table if those are tables."""
    counts = dict.fromkeys(_SUFFIXES, 0)
    for path in public.rglob("*"):
        for kind, suffixes in _SUFFIXES.items():
            counts[kind] += path.suffix.lower().lstrip(".") in suffixes
    most = max(counts, key=lambda kind: counts[kind])
    if counts[most] >= 10:
        return most
    return "text" if train and _has_texts(public / train) else "tabular"


def _has_texts(path: Path, rows: int = 200, characters: int = 40) -> bool:
    """Whether a column's cells are, in the mean, sentences."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = [row for row, _ in zip(csv.reader(file), range(rows + 1), strict=False)][1:]
    columns = [[cell for cell in cells if " " in cell] for cells in zip(*lines, strict=False)]
    return any(len(cells) > len(lines) / 2 and sum(map(len, cells)) > characters * len(cells) for cells in columns)


def _tables(public: Path, hidden: Hidden, ids: set[str]) -> tuple[str, str]:
    """train.csv and test.csv, where they are what their names say; "" where not."""

    def names(file: str) -> list[str]:
        try:
            return header(public / file) if (public / file).is_file() else []
        except TaskError:
            return []

    shown = [name for name in hidden.targets if name in names("test.csv")]
    if shown:
        raise Quarantine("fetch", f"test.csv in the public folder shows the target {shown[0]!r}; prepare it again")
    train = "train.csv" if set(hidden.targets) <= set(names("train.csv")) else ""
    keyed = hidden.id_column in names("test.csv")
    is_test = keyed and set(column(public / "test.csv", hidden.id_column)) == ids
    return train, "test.csv" if is_test else ""


# ---------------------------------------------------------------- answers and sample
def _aligned(hidden: Hidden, sample: pd.DataFrame, name: str) -> pd.DataFrame:
    """The answers of every row of the sample; rows without one do not count."""
    if hidden.id_column not in sample:
        raise Quarantine("fetch", f"{name} has no id column {hidden.id_column!r}; it has {list(sample)}")
    known, asked = set(hidden.table[hidden.id_column]), set(sample[hidden.id_column])
    if lost := sorted(known - asked):
        raise Quarantine("fetch", f"{len(lost)} answers have no row in {name}, the first is {lost[0][:60]!r}")
    extra = [id for id in sample[hidden.id_column] if id not in known]
    if not extra:
        return hidden.table
    keep = hidden.table["keep"] if "keep" in hidden.table else ["1"] * len(hidden.table)
    rest = pd.DataFrame({name: extra if name == hidden.id_column else [""] * len(extra) for name in hidden.table})
    return pd.concat([hidden.table.assign(keep=keep), rest.assign(keep="0")], ignore_index=True)


def _labels(prepared: Prepared, sample: pd.DataFrame, public: Path) -> tuple[str, ...]:
    """Those of the answers, the training table and the sample."""
    hidden, needs = prepared.hidden, METRICS[prepared.metric].answers
    if prepared.onehot or needs not in (Needs.LABEL, Needs.LABELS) or hidden.labels == ("0", "1"):
        return hidden.labels
    found = set(hidden.labels)
    if (public / "train.csv").is_file():
        found |= labels_of_table(public / "train.csv", needs, hidden.targets)
    if METRICS[prepared.metric].needs in (Needs.LABEL, Needs.LABELS):
        found |= {label for name in hidden.targets if name in sample for label in labels_of_cells(needs, sample[name])}
    return in_order(found)


def _wanted(prepared: Prepared, sample: pd.DataFrame, labels: Sequence[str]) -> list[str]:
    """The columns of the sample that are graded."""
    targets, given = prepared.hidden.targets, [name for name in sample if name != prepared.hidden.id_column]
    try:
        count = bind(METRICS[prepared.metric], prepared.settings).columns(len(targets), len(labels))
    except UndefinedMetric as error:
        raise Quarantine("fetch", f"the metric: {error}") from error
    wanted = list(labels) if prepared.onehot else list(targets) if count == len(targets) else given
    if missing := [name for name in wanted if name not in given]:
        raise Quarantine("fetch", f"{prepared.sample.name} has no column {missing[0]!r}; it has {given}")
    return wanted


def _write_sample(sample: pd.DataFrame, path: Path, public: Path) -> None:
    target = public / SAMPLE
    if not (path.parent == public and path.name == SAMPLE and header(path) == list(sample)):
        sample.to_csv(_own(target), index=False, encoding="utf-8", lineterminator="\n")
