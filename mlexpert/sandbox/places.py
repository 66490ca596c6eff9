"""Where an execution happens, made before it and gone after it, once per way of making one.

in namespaces   a root of its own, which ends with the processes that see it
in a container  the three folders that the engine made, emptied afterwards
on the host     fresh folders that only the script's user may enter, removed afterwards
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from mlexpert.sandbox import namespaces, workspace
from mlexpert.sandbox.isolation import Layers, acting_as

_SHARED = "/dev/shm"  # which locks of `multiprocessing` need


@dataclass(frozen=True)
class Place:
    uid: int  # owner of what the script makes, as its namespace names it
    workspace: str = namespaces.WORKSPACE  # as the script sees it
    temporary: str = "/tmp"
    root: str = ""  # of the namespaces
    writable: tuple[str, ...] = (namespaces.WORKSPACE, "/tmp", _SHARED)
    measured: bool = False  # no file system limits its size


@contextlib.contextmanager
def made(
    layers: Layers, scratch: str, slot: int, uid: int, visible: list[str], given: list[workspace.Input], disk_mb: int
) -> Iterator[Place]:
    """The place that fits the layers, empty. Raises OSError where the kernel does not allow it."""
    if layers.namespaces:
        yield _in_namespaces(layers, f"{scratch}/root{slot}", uid, visible, given, disk_mb)
    elif layers.container:
        place = Place(uid)
        try:
            yield place
        finally:
            for folder in place.writable:
                workspace.empty(folder, uid)
    else:
        with _on_the_host(f"{scratch}/runs", uid, layers.own_uid) as place:
            yield place


def _in_namespaces(
    layers: Layers, root: str, uid: int, visible: list[str], given: list[workspace.Input], disk_mb: int
) -> Place:
    os.makedirs(root, exist_ok=True)  # as a mount point only: it stays empty
    namespaces.enter(layers.user_namespace)
    owner = uid if layers.own_uid else os.getuid()
    copied = [entry for entry in given if not entry.shown]
    files = len(given) + sum(entry.files for entry in copied)
    namespaces.build_root(root, visible, owner, disk_mb, sum(entry.size for entry in copied), files)
    return Place(owner, root=root)


@contextlib.contextmanager
def _on_the_host(folder: str, uid: int, own_uid: bool) -> Iterator[Place]:
    """/dev/shm belongs to it only where a user of its own tells its files from those of other programs."""
    shared = (_SHARED,) if own_uid and os.path.isdir(_SHARED) else ()
    with acting_as(uid):
        own = tempfile.mkdtemp(dir=folder)
        for part in ("workspace", "tmp"):
            os.mkdir(f"{own}/{part}", 0o700)
    parts = (f"{own}/workspace", f"{own}/tmp")
    try:
        yield Place(uid, *parts, writable=(*parts, *shared), measured=True)
    finally:
        for part in (own, *shared):
            workspace.empty(part, uid)
        with acting_as(uid), contextlib.suppress(FileNotFoundError):
            os.rmdir(own)
