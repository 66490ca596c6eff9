"""The text of a file that nobody trusts: opened without following or blocking, unpacked under a cap, decoded strictly.

UTF-8 with or without a BOM, UTF-16 with one, either of them inside gzip. Everything else is refused by its name.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from pathlib import Path
from typing import NamedTuple

from mlexpert.tasks.reasons import Note, Reason, Refused, unreadable

MB = 2**20
_MAGIC = (
    (b"\x1f\x8b", "gzip"), (b"PK\x03\x04", "zip or Excel"), (b"PAR1", "Parquet"), (b"\x80\x04", "pickle"),
    (b"\x80\x05", "pickle"), (b"\x93NUMPY", "NumPy"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz"),
    (b"7z\xbc\xaf\x27\x1c", "7z"), (b"\x28\xb5\x2f\xfd", "Zstandard"), (b"\x89HDF", "HDF5"), (b"ARROW1", "Arrow"),
    (b"%PDF", "PDF"), (b"\x89PNG", "PNG"), (b"\xff\xfe\0\0", "UTF-32"), (b"\0\0\xfe\xff", "UTF-32"),
)  # fmt: skip


class Text(NamedTuple):
    text: str
    note: str  # how it had to be read, "" for plain UTF-8


def read_text(path: Path, limit: int) -> Text | None:
    """The text in `path`, at most `limit` bytes of it before and after unpacking; None if there is no such file.

    Raises Refused for a file that cannot be read as text, OSError for faults of the host alone.
    """
    data = _bytes(path, limit)
    if data is None:
        return None
    if not data.startswith(b"\x1f\x8b"):
        return _text(data)
    unpacked = _text(_unpacked(data, limit))
    return unpacked._replace(note=Note.GZIP.value)


def _bytes(path: Path, limit: int) -> bytes | None:
    """Contents of a regular file, None if there is none. A pipe or device never blocks, a link is never followed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A link, a socket, no permission: the file's fault. No descriptors left, a broken disk: ours, so it raises.
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EACCES, errno.ENOTDIR):
            raise
        raise unreadable(Reason.NOT_A_FILE) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise unreadable(Reason.NOT_A_FILE)
    with os.fdopen(handle, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _unpacked(data: bytes, limit: int) -> bytes:
    """All members of a gzip file. The output is asked for in bounded pieces: a bomb costs no more than `limit`."""
    pieces, size, rest = [], 0, data
    try:
        while rest:
            member = zlib.decompressobj(wbits=31)
            while not member.eof:
                piece = member.decompress(rest, min(MB, limit - size + 1))
                size += len(piece)
                if size > limit:
                    raise _too_large(limit)
                if not piece and not member.unconsumed_tail and not member.eof:
                    raise unreadable(Reason.BROKEN_GZIP)
                pieces.append(piece)
                rest = member.unconsumed_tail
            rest = member.unused_data.lstrip(b"\0")  # archives may be padded
    except zlib.error as error:
        raise unreadable(Reason.BROKEN_GZIP) from error
    return b"".join(pieces)


def _too_large(limit: int) -> Refused:
    return unreadable(Reason.TOO_LARGE, limit // MB)


def _text(data: bytes) -> Text:
    if not data.strip():
        raise unreadable(Reason.EMPTY)
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            raise unreadable(Reason.BINARY, kind)
    note, coding = ("", "utf-8-sig")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        note, coding = Note.UTF16.value, "utf-16"
    elif b"\0" in data:
        raise _with_zeros(data)
    text = _decoded(data, coding)
    _refuse_other_languages(text)
    return Text(text, note)


def _with_zeros(data: bytes) -> Refused:
    """Text of Western scripts in UTF-16 has a zero byte in every pair."""
    pairs = data[:4096]
    halves = (pairs[::2].count(0), pairs[1::2].count(0))
    if max(halves) * 2.5 > len(pairs) and min(halves) == 0:
        return unreadable(Reason.UTF16)
    return unreadable(Reason.BINARY, "binary")


def _decoded(data: bytes, coding: str) -> str:
    try:
        return data.decode(coding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        name = "UTF-16" if coding == "utf-16" else "UTF-8"
        raise unreadable(Reason.ENCODING, name, line, line=line) from error


def _refuse_other_languages(text: str) -> None:
    start = text[:4096].lstrip()[:1]
    if "\0" in text:
        raise unreadable(Reason.BINARY, "binary")
    if not start and not text.strip():
        raise unreadable(Reason.EMPTY)
    if start == "<":
        raise unreadable(Reason.BINARY, "HTML or XML")
    if start in ("{", "["):
        raise unreadable(Reason.BINARY, "JSON")
