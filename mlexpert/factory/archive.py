"""Unpacks archives that strangers made: what a user downloaded from Kaggle, and the archives inside of it.

The kind is told by the first bytes, never by the name: zip, tar (plain, gz, bz2, xz) and single tables in gz, bz2 or xz
are opened; 7z, rar and zstd are refused by name. Invariants:

    every file is new, below the folder, and a plain file: absolute and climbing names, links, devices and names that
    occur twice are refused, so nothing is ever written through or over something else
    sizes that an archive declares are not believed: what comes out is counted, against a total, a number of files, the
    room on the disk and a ratio to the archive's own size
    an archive that ends early, or whose checksums do not hold, is half a download and gives nothing
    the folder appears when it is whole; times and permissions of the archive are not taken over

Archives inside are opened in the place where they lie and then removed, up to a depth. Nothing is remembered from one
call to the next.

`origin` makes tasks of such archives, or of folders that a user has unpacked already.
"""

from __future__ import annotations

import filecmp
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlexpert.factory.archive_members import REFUSED, Limits, Meter, kind_of, open_archive, refuse, sniff
from mlexpert.factory.records import Blueprint, Lead, Origin, Quarantine, Raw
from mlexpert.tasks.task import Provenance

_NESTED = re.compile(
    r"\.(zip|tar|tgz|tar\.gz|tar\.bz2|tbz2|tar\.xz|txz|7z|rar|(csv|tsv|txt|jsonl?)\.(gz|bz2|xz))$", re.I
)

_ARCHIVE = re.compile(r"\.(zip|tar|tgz|tar\.(gz|bz2|xz)|tbz2|txz|7z|rar|gz|bz2|xz)$", re.I)
_PART = re.compile(r"(train|test|sample)", re.I)
_TEXTS = ("description.md", "description.txt", "data_description.txt", "data_description.md", "readme.md", "readme.txt")


@dataclass(frozen=True)
class Unpacked:
    folder: Path
    files: int
    bytes: int
    opened: tuple[str, ...]  # archives inside, in the order in which they were opened
    skipped: tuple[str, ...]  # members that were left out, with the reason


def unpack(archive: Path, folder: Path, limits: Limits | None = None) -> Unpacked:
    """The files of `archive` in `folder`, which must not exist yet or be empty.

    Raises Quarantine (stage "fetch") saying what is wrong with which member and what to do; nothing is left behind.
    """
    limits = limits or Limits()
    kind = kind_of(archive)
    if folder.exists() and any(folder.iterdir()):
        raise refuse(archive, f"{folder} is not empty; name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as aside:
        root = Path(aside) / "whole"
        root.mkdir()
        meter = Meter(archive, limits, shutil.disk_usage(root).free, archive.stat().st_size)
        open_archive(archive, kind, root, meter)
        opened, skipped = _open_nested(root, meter)
        if not any(path.is_file() for path in root.rglob("*")):
            raise refuse(archive, "it holds no file")
        if folder.exists():
            folder.rmdir()
        root.rename(folder)
    return Unpacked(folder, meter.files, meter.bytes, tuple(opened), (*meter.skipped, *skipped))


# ---------------------------------------------------------------- as an origin of tasks
def origin(
    paths: Sequence[Path],
    plan: Callable[[Raw], Blueprint],
    *,
    licence: str = "unknown, downloaded by the user",
    version: str = "",
    limits: Limits | None = None,
) -> Origin:
    """One task for each archive: files, or folders of which every archive is taken.

    A folder with a table in it, or with archives called train, test or sample, was unpacked already: it is one task.
    The description is a text inside (see `text_in`), or one beside the archive that is called like it. Such data are
    never redistributable.
    """

    def discover() -> list[Lead]:
        return [_lead(path, licence) for path in _archives(paths)]

    def fetch(lead: Lead, folder: Path) -> Raw:
        path, into = Path(lead.where["path"]), folder / "files"
        shutil.rmtree(into, ignore_errors=True)
        if path.is_dir():
            _take(path, into, limits or Limits())
        else:
            unpack(path, into, limits)
        return Raw(lead.id, into, lead.provenance, lead.title, _text_beside(path) or text_in(into))

    return Origin(discover, fetch, plan, version)


def _take(source: Path, into: Path, limits: Limits) -> None:
    """A folder that a user has unpacked, archives inside opened."""
    if links := [path for path in source.rglob("*") if path.is_symlink()]:
        raise refuse(source, f"{links[0].name!r} in it is a link; put the file itself there")
    shutil.copytree(source, into, copy_function=shutil.copyfile)
    size = sum(path.stat().st_size for path in into.rglob("*") if path.is_file())
    _open_nested(into, Meter(source, limits, shutil.disk_usage(into).free, size))


def _archives(paths: Sequence[Path]) -> list[Path]:
    found = []
    for path in paths:
        inside = [p for p in sorted(path.iterdir()) if _NESTED.search(p.name)] if path.is_dir() else []
        unpacked = (path.is_dir() and any(path.glob("*.csv"))) or any(_PART.match(p.name) for p in inside)
        found += [path] if unpacked else inside or [path]
    ids = [slug(path.name) for path in found]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise Quarantine("discover", f"two archives would be the task {twice[0]!r}; rename one of them")
    return found


def _lead(path: Path, licence: str) -> Lead:
    name = slug(path.name)
    provenance = Provenance("archive", "", licence, False, name.lower(), note=path.name)
    size, changed = (path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else (0, 0)
    where = {"path": str(path.resolve()), "bytes": size, "changed": changed}
    return Lead(name, name.replace("-", " ").replace("_", " ").capitalize(), provenance, where)


def slug(name: str) -> str:
    """A task id out of the name of an archive."""
    stem = _ARCHIVE.sub("", name)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._") or "archive"


def text_in(folder: Path) -> str:
    """The description among the files: what is called so, the shallowest first; "" if there is none."""
    named = [p for p in folder.rglob("*") if p.is_file() and p.name.lower() in _TEXTS]
    if not named:
        return ""
    first = min(named, key=lambda p: (len(p.parts), _TEXTS.index(p.name.lower())))
    return first.read_text(encoding="utf-8-sig", errors="replace")


def _text_beside(path: Path) -> str:
    for suffix in (".md", ".txt"):
        if (text := path.parent / (_ARCHIVE.sub("", path.name) + suffix)).is_file():
            return text.read_text(encoding="utf-8-sig", errors="replace")
    return ""


# ---------------------------------------------------------------- archives inside
def _open_nested(root: Path, meter: Meter) -> tuple[list[str], list[str]]:
    opened, skipped = [], []
    for depth in range(meter.limits.depth + 1):
        inside = [path for path in sorted(root.rglob("*")) if path.is_file() and _NESTED.search(path.name)]
        inside = [path for path in inside if sniff(path)]  # an archive's name on something else is a plain file
        if not inside:
            break
        if depth == meter.limits.depth:
            raise refuse(
                meter.archive, f"archives lie more than {depth} deep in it ({inside[0].name}); unpack them first"
            )
        for path in inside:
            name, kind = path.relative_to(root).as_posix(), sniff(path)
            if kind not in REFUSED:
                _open_beside(path, kind, meter)
                opened.append(name)
            elif _has_twin(path):
                skipped.append(f"{name}: a {kind} archive of what is there already")
                path.unlink()
            else:
                reason = f"{name} in it is a {kind} archive, which is not opened here"
                raise refuse(meter.archive, f"{reason}; unpack it, remove it and zip the folder again")
    return opened, skipped


def _has_twin(path: Path) -> bool:
    """Whether the same name stands there unpacked, or packed in a way that is opened (old competitions offer both)."""
    stem = _stem(path)
    return any(
        other != path and stem in (other.name, _stem(other)) and (other.is_dir() or sniff(other) not in REFUSED)
        for other in path.parent.iterdir()
    )


def _stem(path: Path) -> str:
    return _ARCHIVE.sub("", path.name)


def _open_beside(path: Path, kind: str, meter: Meter) -> None:
    """One file, or one folder of the archive's name, goes where the archive lies; anything else into such a folder."""
    with _aside(path) as aside:
        open_archive(path, kind, aside, meter)
        entries = list(aside.iterdir())
        alone = len(entries) == 1 and (entries[0].is_file() or entries[0].name == _stem(path))
        path.unlink()
        target = path.parent if alone else path.parent / _stem(path)
        _merge(aside, target, path, meter)


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=".inside."))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _merge(source: Path, target: Path, archive: Path, meter: Meter) -> None:
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        place = target / path.relative_to(source)
        if place.exists():
            if place.is_file() and filecmp.cmp(place, path, shallow=False):
                meter.skipped.append(f"{archive.name}: {place.name} is there already, with the same content")
                continue
            raise refuse(meter.archive, f"{archive.name} in it and {place.name} beside it differ; keep one of them")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise refuse(meter.archive, f"{archive.name} in it needs a folder where a file is; rename it") from error
        path.rename(place)
