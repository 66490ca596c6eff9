"""Files that rows of the training table name: images, sounds, documents; and what kind of task that makes.

Where an id or a name without suffix names the file, a table with a column of whole names is written beside the raw
files: a blueprint speaks of columns that are there.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mlexpert.factory.analyse.sheets import MADE, Sheet
from mlexpert.factory.records import Quarantine
from mlexpert.tasks.tables import read_table

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
AUDIO = {".wav", ".mp3", ".flac", ".ogg", ".m4a"}
MAX_FILES = 500_000
TRIED = 200  # cells of a column that must all name files


@dataclass(frozen=True)
class Files:
    """`column` names a file a row, below `folder`; `train`: the table written for it, "" if train has such a column."""

    column: str = ""
    folder: str = ""
    train: str = ""
    kind: str = ""  # "image", "audio" or "files"


def files(root: Path, train: Sheet, id_column: str, targets: Sequence[str]) -> Files:
    """The column whose cells name files that are there; without one, Files()."""
    places = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and path.suffix.lower() != ".csv"
    ]
    if len(places) > MAX_FILES:
        raise Quarantine(
            "plan", f"more than {MAX_FILES} files; name `files_column` and `files_folder` in the blueprint"
        )
    suffixes = sorted({PurePosixPath(place).suffix for place in places} - {""})
    for name in train.columns:
        cells = list(train.cells[name])[:TRIED]
        if name in targets or len(set(cells)) < len(cells) / 2 or "" in cells:
            continue
        for suffix in ("", *suffixes):
            folder = _folder([f"{cell}{suffix}" for cell in cells], places)
            if folder is not None:
                kind = _kind(f"{cells[0]}{suffix}")
                if suffix or name == id_column:
                    return Files("file", folder, _with_column(root, train, name, suffix), kind)
                return Files(name, folder, "", kind)
    return Files()


def _folder(cells: Sequence[str], places: Iterable[str]) -> str | None:
    """The folder below which all these files are; one of test only if there is no other."""
    known = set(places)
    folders = sorted({place[: -len(cells[0])].rstrip("/") for place in known if f"/{place}".endswith(f"/{cells[0]}")})
    for folder in sorted(folders, key=lambda name: "test" in name):
        if all((PurePosixPath(folder) / cell).as_posix() in known for cell in cells):
            return folder
    return None


def _kind(name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    return "image" if suffix in IMAGES else "audio" if suffix in AUDIO else "files"


def _with_column(root: Path, train: Sheet, name: str, suffix: str) -> str:
    """Writes train with `name` replaced by a column "file" of whole names; returns its name below `root`."""
    table = read_table(train.path)
    table.insert(0, "file", [f"{cell}{suffix}" for cell in table[name]])
    path = root / MADE / "train.csv"
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f"train.{os.getpid()}.draft")
    table.drop(columns=name).to_csv(draft, index=False, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
    draft.replace(path)
    return path.relative_to(root).as_posix()
