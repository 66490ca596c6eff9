"""One archive, opened with suspicion: the rules for members and for sizes that `archive.unpack` states."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mlexpert.factory.records import Quarantine

MEGABYTE, GIGABYTE = 1 << 20, 1 << 30
_OPENERS: dict[str, Callable[..., Any]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
_MAGIC = (
    (b"PK\x03\x04", "zip"), (b"PK\x05\x06", "zip"), (b"PK\x07\x08", "zip"), (b"\x1f\x8b", "gz"), (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "xz"), (b"7z\xbc\xaf\x27\x1c", "7z"), (b"Rar!\x1a\x07", "rar"), (b"\x28\xb5\x2f\xfd", "zstd"),
)  # fmt: skip
DAMAGED = "damaged"  # kind of the Quarantine for an archive that another download may mend
REFUSED = ("7z", "rar", "zstd")
_ZIP_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}
_ZIP_NAMES = {6: "implode", 9: "Deflate64", 93: "Zstandard", 95: "XZ", 98: "PPMd", 99: "AES encryption"}
_BROKEN = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile)
_HALF = (".part", ".crdownload", ".download", ".partial", ".kaggle-partial")
_JUNK = ("__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini")
_PIECE, _TAIL = 16 * MEGABYTE, 100  # bytes that are read at once; megabytes of padding after a tar


@dataclass(frozen=True)
class Limits:
    total: int = 100 * GIGABYTE  # bytes that may come out, all depths together
    ratio: float = 200.0  # bytes out for each byte of the archive, beyond `allowance`
    allowance: int = 100 * MEGABYTE
    files: int = 2_000_000
    depth: int = 3  # archives in archives
    reserve: int = GIGABYTE  # bytes of the disk that stay free


def refuse(archive: Path, reason: str, kind: str = "") -> Quarantine:
    return Quarantine("fetch", f"{archive.name}: {reason}", kind)


class Meter:
    """What came out so far, all depths together."""

    def __init__(self, archive: Path, limits: Limits, free: int, size: int) -> None:
        self.archive, self.limits = archive, limits
        self.files, self.bytes = 0, 0
        self.skipped: list[str] = []
        self.room = free - limits.reserve
        self.most = limits.ratio * size + limits.allowance

    def file(self) -> None:
        self.files += 1
        if self.files > self.limits.files:
            raise refuse(
                self.archive, f"more than {self.limits.files:,} files come out; unpack it yourself and name the folder"
            )

    def take(self, n_bytes: int) -> None:
        self.bytes += n_bytes
        if self.bytes > self.most:
            raise refuse(
                self.archive,
                f"more than {self.limits.ratio:g} bytes come out for each of its own: a zip bomb; do not trust it",
            )
        if self.bytes > self.limits.total:
            raise refuse(self.archive, f"more than {self.limits.total:,} bytes come out; raise max_gb if you trust it")
        if self.bytes > self.room:
            raise refuse(self.archive, f"the disk has no room for it; free more than {self.limits.reserve:,} bytes")


# ---------------------------------------------------------------- kinds
def kind_of(archive: Path) -> str:
    if not archive.is_file():
        raise refuse(archive, "no such file")
    if archive.name.lower().endswith(_HALF):
        raise refuse(archive, "an unfinished download; finish it and name the finished file")
    if archive.stat().st_size == 0:
        raise refuse(archive, "an empty file; download it again")
    kind = sniff(archive)
    if kind in REFUSED:
        raise refuse(archive, f"a {kind} archive, which is not opened here; unpack it and zip its files again")
    if not kind:
        with archive.open("rb") as file:
            head = file.read(64).lstrip().lower()
        page = head.startswith((b"<!doctype", b"<html"))
        raise refuse(archive, "a web page, not an archive; log in and download it again" if page else
                      "neither a zip nor a tar archive; download it again or name another file")  # fmt: skip
    return kind


def sniff(path: Path) -> str:
    """The kind of archive that a file's content says: zip, tar, tar.gz ..., gz, 7z ..., or "" for none of them."""
    with path.open("rb") as file:
        head = file.read(512)
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if kind in _OPENERS:
        try:
            with _OPENERS[kind](path) as file:
                return f"tar.{kind}" if _is_tar(file.read(512)) else kind
        except (*_BROKEN, OSError):
            return kind
    return kind or ("tar" if _is_tar(head) else "")


def _is_tar(head: bytes) -> bool:
    return len(head) == 512 and head[257:262] == b"ustar"


def open_archive(archive: Path, kind: str, root: Path, meter: Meter) -> None:
    """Writes the members below `root`."""
    try:
        if kind == "zip":
            _unzip(archive, root, meter)
        elif kind.startswith("tar"):
            _untar(archive, kind, root, meter)
        else:
            _inflate(archive, kind, root, meter)
    except Quarantine:
        raise
    except (*_BROKEN, OSError) as error:
        # OSError: bz2 and gzip report damage so; a full disk too, which the text then says.
        if isinstance(error, OSError) and error.errno is not None:
            raise refuse(archive, f"cannot be unpacked: {error.strerror}") from error
        size = archive.stat().st_size
        told = f"ends early or is damaged after {size:,} bytes ({error}): half a download? Download it again"
        raise refuse(archive, told, DAMAGED) from error


# ---------------------------------------------------------------- members
def _unzip(archive: Path, root: Path, meter: Meter) -> None:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            where = _place(archive, member.filename, meter)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise refuse(archive, f"{member.filename!r} is a link or a device; make the archive without it")
            if where is None or member.is_dir() or kind == stat.S_IFDIR:
                continue
            if member.flag_bits & 0x1:
                raise refuse(archive, f"{member.filename!r} is locked with a password; unpack it and zip it again")
            if member.compress_type not in _ZIP_METHODS:
                method = _ZIP_NAMES.get(member.compress_type, f"method {member.compress_type}")
                raise refuse(archive, f"{member.filename!r} is packed with {method}; unpack it and zip it again")
            with opened.open(member) as source:
                _write(archive, source, root, where, meter)


def _untar(archive: Path, kind: str, root: Path, meter: Meter) -> None:
    opener = _OPENERS.get(kind.removeprefix("tar."), open)
    with opener(archive, "rb") as file, tarfile.open(fileobj=_Small(file), mode="r:") as opened:  # type: ignore
        for member in opened:
            where = _place(archive, member.name, meter)
            if not (member.isreg() or member.isdir()):
                raise refuse(archive, f"{member.name!r} is a link or a device; make the archive without it")
            if where is None or member.isdir():
                continue
            source = opened.extractfile(member)
            assert source is not None  # a regular file
            _write(archive, source, root, where, meter)
        # Without the two blocks of zeros at its end a tar may have lost members, and tarfile does not say so.
        if file.tell() - opened.offset < 512:
            raise EOFError("no end of archive")
        for _ in range(_TAIL):  # to the end, where gz, bz2 and xz have their checksums
            if not file.read(MEGABYTE):
                return
        raise refuse(archive, "nothing but padding comes out at its end: a zip bomb; do not trust it")


class _Small:
    """A file of which only small pieces are read: a header of a tar may claim gigabytes, and tarfile takes its word."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.seek, self.tell, self.close = file, file.seek, file.tell, file.close

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _PIECE:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self.file.read(size)


def _inflate(archive: Path, kind: str, root: Path, meter: Meter) -> None:
    name = archive.name.removesuffix(f".{kind}")
    name = name if name != archive.name else f"{name}.unpacked"
    with _OPENERS[kind](archive, "rb") as source:
        _write(archive, source, root, PurePosixPath(name), meter)


def _place(archive: Path, name: str, meter: Meter) -> PurePosixPath | None:
    """Where a member belongs, below the folder; None for what operating systems leave in archives."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name) or "\0" in name:
        raise refuse(archive, f"{name!r} would be written outside of the folder; do not trust this archive")
    if any(len(os.fsencode(part)) > 255 for part in path.parts):
        raise refuse(archive, f"the name {name[:60]!r}... is too long for a file; rename it")
    if any(part in _JUNK for part in path.parts):
        meter.skipped.append(f"{path}: left by an operating system")
        return None
    return path if path.parts else None


def _write(archive: Path, source: IO[bytes], root: Path, where: PurePosixPath, meter: Meter) -> None:
    meter.file()
    target = root / where
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            while block := source.read(MEGABYTE):
                meter.take(len(block))
                file.write(block)
    except (FileExistsError, NotADirectoryError) as error:
        raise refuse(archive, f"{str(where)!r} is in it twice; make the archive again") from error
