"""Everything that lies in the public folder, archives opened, down to fields of the files in them.

Archives are read in memory, a few levels deep, within bounds that no zip bomb passes; what was not looked into is said.
Nothing is unpickled.
"""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

MAX_DEPTH = 4
MAX_MEMBERS = 200_000
MAX_MEMBER = 2**27  # bytes of one member
MAX_INFLATED = 2**30  # bytes of one task
CLOSED = {".7z", ".rar", ".zst", ".lz4", ".z"}  # archives for which there is no reader here
_SINGLE: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file)),
    ".bz2": lambda file: cast(IO[bytes], bz2.BZ2File(file)),
    ".xz": lambda file: cast(IO[bytes], lzma.LZMAFile(file)),  # noqa: SIM115
}
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    OSError,
    EOFError,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True)
class Entry:
    """A file of the public folder, or a member of an archive in it: "test.zip!/a/1.jpg"."""

    place: str
    size: int
    moment: float  # seconds, when it was last changed
    path: Path | None = None  # None inside an archive

    @property
    def name(self) -> str:
        return PurePosixPath(self.place).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.place).suffix.lower()


@dataclass
class Purse:  # mutable: one account for all archives of a task
    """What may still be inflated, and what could not be looked into for it or for other reasons."""

    left: int = MAX_INFLATED
    members: int = MAX_MEMBERS
    unread: list[str] = field(default_factory=list)


Read = Callable[[], bytes]


def walk(public: Path, purse: Purse) -> Iterator[tuple[Entry, Read]]:
    """All files and all members of archives, in the order of their names.

    `read` gives the content while its entry is the current one; b"" if that is too large or broken, which the purse
    remembers.
    """
    for path in sorted(public.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        entry = Entry(path.relative_to(public).as_posix(), status.st_size, status.st_mtime, path)
        yield entry, path.read_bytes if status.st_size <= MAX_MEMBER else bytes
        if is_archive(entry.place):
            with path.open("rb") as file:
                yield from _inside(entry.place, file, purse, 1)


def is_archive(name: str) -> bool:
    """By its name."""
    return PurePosixPath(name).suffix.lower() in {".zip", ".npz", ".tar", ".tgz", *_SINGLE, *CLOSED}


def _inside(place: str, file: IO[bytes], purse: Purse, depth: int) -> Iterator[tuple[Entry, Read]]:
    suffix = PurePosixPath(place).suffix.lower()
    if suffix in CLOSED or depth > MAX_DEPTH:
        purse.unread.append(f"{place}: " + (f"no reader for {suffix}" if suffix in CLOSED else "nested too deep"))
        return
    try:
        for entry, read in _members(place, suffix, file):
            checked = _checked(entry, read, purse)
            yield entry, checked
            if is_archive(entry.place):
                yield from _inside(entry.place, io.BytesIO(checked()), purse, depth + 1)
    except _BROKEN as error:
        purse.unread.append(f"{place}: {type(error).__name__} {error}".strip())


def _checked(entry: Entry, read: Read, purse: Purse) -> Read:
    """`read` within the bounds, once: what is inflated is paid for."""
    kept: list[bytes] = []

    def once() -> bytes:
        if not kept:
            kept.append(_paid(entry, read, purse))
        return kept[0]

    return once


def _paid(entry: Entry, read: Read, purse: Purse) -> bytes:
    purse.members -= 1
    if entry.size > MAX_MEMBER or entry.size > purse.left or purse.members < 0:
        purse.unread.append(f"{entry.place}: {entry.size} bytes, more than may be inflated")
        return b""
    purse.left -= entry.size
    try:
        return read()
    except _BROKEN as error:
        purse.unread.append(f"{entry.place}: {type(error).__name__} {error}".strip())
        return b""


def _members(place: str, suffix: str, file: IO[bytes]) -> Iterator[tuple[Entry, Read]]:
    if suffix in (".zip", ".npz"):
        with zipfile.ZipFile(file) as archive:
            for info in (info for info in archive.infolist() if not info.is_dir()):
                moment = datetime.datetime(*info.date_time, tzinfo=datetime.UTC).timestamp()
                yield Entry(f"{place}!/{info.filename}", info.file_size, moment), partial(archive.read, info)
    elif suffix in (".tar", ".tgz") or PurePosixPath(place).suffixes[-2:-1] == [".tar"]:
        with tarfile.open(fileobj=file, mode="r:*") as archive:
            for info in (info for info in archive if info.isfile()):
                yield Entry(f"{place}!/{info.name}", info.size, float(info.mtime)), partial(_of_tar, archive, info)
    else:
        with _SINGLE[suffix](file) as inflated:
            data = inflated.read(MAX_MEMBER + 1)
        yield Entry(f"{place}!/{PurePosixPath(place).stem}", len(data), 0.0), lambda: data


def _of_tar(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(info)
    return file.read() if file else b""
