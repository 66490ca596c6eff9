"""Frames on a unix socket: 8 bytes of length, big-endian, then JSON. Raw bytes that a frame announces follow it.

A socket is opened by way of its folder, so its path may be longer than the 108 bytes that an address has room for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator

_HEAD = struct.Struct("!Q")


def pack(message: dict) -> bytes:
    body = json.dumps(message).encode()
    return _HEAD.pack(len(body)) + body


# ---------------------------------------------------------------- the server's end, which blocks
def listen(path: str) -> socket.socket:
    """A listening socket that only this user may connect to. Its folder must exist; a stale socket is replaced."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        with _short(path) as address:
            listener.bind(address)
    finally:
        os.umask(before)
    listener.listen(128)
    return listener


def send(connection: socket.socket, message: dict) -> None:
    connection.sendall(pack(message))


def receive(connection: socket.socket, at_most: int = 1 << 30) -> dict:
    """Raises ConnectionError if the other side closes in the middle, or announces more than `at_most` bytes."""
    length = _length(_exactly(connection, _HEAD.size), at_most)
    return json.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("the other side left")
        parts += part
    return bytes(parts)


# ---------------------------------------------------------------- the caller's end
async def connect(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with _short(path) as address:
        return await asyncio.open_unix_connection(address, limit=1 << 20)


async def read(reader: asyncio.StreamReader, at_most: int) -> dict:
    """Raises EOFError if the other side closes in the middle, ConnectionError if it announces more than `at_most`."""
    length = _length(await reader.readexactly(_HEAD.size), at_most)
    return json.loads(await reader.readexactly(length))


def _length(head: bytes, at_most: int) -> int:
    (length,) = _HEAD.unpack(head)
    if length > at_most:
        raise ConnectionError(f"a frame of {length} bytes, where {at_most} are the most")
    return length


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    if len(os.fsencode(path)) <= 100:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
