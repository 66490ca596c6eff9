"""The script's folder: filled with the public files before, searched for its results after, and emptied.

Public files are shown read-only where that is possible (a mount, or a link that the script's user may follow), else
copied. Results are collected only when every process inside is dead, so nothing can change between check and copy, and
only if they are plain data of the workspace itself: no link of either kind, no pipe, no device, nothing oversized.
Whatever touches the script's files does so with the script's own rights.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from mlexpert.sandbox import namespaces
from mlexpert.sandbox.isolation import Layers, acting_as

COLLECT_MB = 64  # no collected file may be larger, whatever the disk limit


# ---------------------------------------------------------------- filling
@dataclass(frozen=True)
class Input:
    """A top-level entry of the public folder; `shown` if the script may get it itself and not a copy."""

    name: str
    path: str
    shown: bool
    size: int  # bytes and inodes that a copy takes
    files: int


def inputs(folder: str, layers: Layers, uid: int) -> list[Input]:
    """Raises ValueError for a link at the top, which may lead out of the public folder."""
    found = []
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_symlink():
            raise ValueError(f"{entry.path} is a link: put the file itself into the public folder")
        paths = list(_below(entry.path))
        shown = layers.inputs != "copy" and _readable(paths, layers, uid)
        size = sum(os.lstat(path).st_size + 4096 for path in paths)
        found.append(Input(entry.name, entry.path, shown, size, len(paths)))
    return found


def _below(path: str) -> Iterator[str]:
    yield path
    for folder, folders, files in os.walk(path):
        yield from (os.path.join(folder, name) for name in [*folders, *files])


def _readable(paths: list[str], layers: Layers, uid: int) -> bool:
    """Whether the script's user may read all of them. A mount hides the folders above; a link does not."""
    if layers.inputs == "bind" and layers.own_uid:
        return all(_open_to_others(os.lstat(path).st_mode) for path in paths)
    with acting_as(uid):
        return all(os.path.islink(path) or os.access(path, _need(path), effective_ids=True) for path in paths)


def _open_to_others(mode: int) -> bool:
    wanted = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return stat.S_ISLNK(mode) or mode & wanted == wanted


def _need(path: str) -> int:
    return os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK


def fill(workspace: str, given: list[Input], source: bytes, layers: Layers, uid: int) -> None:
    """The public files and the script. A script may spoil a copy, never the original."""
    with acting_as(uid), open(f"{workspace}/script.py", "wb") as file:
        file.write(source)
    for entry in given:
        target = f"{workspace}/{entry.name}"
        if not entry.shown:
            _copy(entry.path, target, uid)
        elif layers.inputs == "link":
            with acting_as(uid):
                os.symlink(entry.path, target)
        else:
            _mount_point(target, os.path.isdir(entry.path), uid)
            namespaces.bind(entry.path, target)


def _mount_point(path: str, folder: bool, uid: int) -> None:
    with acting_as(uid):
        if folder:
            os.mkdir(path)
        else:
            open(path, "xb").close()


def _copy(path: str, target: str, uid: int) -> None:
    """Read with our rights, written as the script's."""
    if os.path.islink(path):
        with acting_as(uid):
            os.symlink(os.readlink(path), target)
    elif os.path.isdir(path):
        with acting_as(uid):
            os.mkdir(target, 0o700)
        for name in os.listdir(path):
            _copy(os.path.join(path, name), os.path.join(target, name), uid)
    else:
        with open(path, "rb") as source, acting_as(uid), open(target, "xb") as copy:
            os.fchmod(copy.fileno(), 0o400)
            shutil.copyfileobj(source, copy)


# ---------------------------------------------------------------- collecting
def collect(
    workspace: str, names: list[str], disk_mb: int, uid: int
) -> tuple[list[tuple[str, int, int]], dict[str, str]]:
    """(name, open file, size) of regular files with one link and a sane size; others are refused with a reason."""
    collected, refused = [], {}
    with acting_as(uid):
        workspace_fd = _open_folder(workspace)
        for name in names if workspace_fd is not None else ():
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=workspace_fd)
            except FileNotFoundError:
                continue
            except OSError as error:
                refused[name] = f"cannot be opened: {os.strerror(error.errno or 0)}"
                continue
            info = os.fstat(fd)
            if fault := _fault(info, min(disk_mb, COLLECT_MB)):
                refused[name] = fault
                os.close(fd)
            else:
                collected.append((name, fd, info.st_size))
        if workspace_fd is not None:
            os.close(workspace_fd)
    return collected, refused


def _fault(info: os.stat_result, limit_mb: int) -> str:
    if not stat.S_ISREG(info.st_mode):
        return "not a regular file"
    if info.st_nlink != 1:
        return "has more than one hard link"
    # Size, because a sparse file is large only once it is read; blocks, because they may reach past the end.
    return f"larger than {limit_mb} MB" if max(info.st_size, info.st_blocks * 512) > limit_mb << 20 else ""


def _open_folder(path: str) -> int | None:
    """None if the script, where nothing hindered it, put something else in the place of its folder."""
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    place = f"/proc/self/fd/{handle}"
    try:
        with contextlib.suppress(PermissionError):  # the folder of a container is not the script's, and was not changed
            os.chmod(place, 0o700)
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(handle)


# ---------------------------------------------------------------- emptying
def empty(folder: str, uid: int) -> None:
    """Remove what `uid` owns in a folder. Only for folders in which nothing runs any more.

    Folders are moved up before they are emptied, so no path grows too long and no recursion too deep, whatever the
    script built. Rights that it took away from itself are given back.
    """
    with acting_as(uid):
        top = _open_folder(folder)
        if top is None:
            return
        try:
            names = [name for name in os.listdir(top) if os.lstat(name, dir_fd=top).st_uid == uid]
            while names:
                names += _unfold(top, names.pop())
        finally:
            os.close(top)


def remove(folder: str) -> None:
    """Remove a whole folder as far as our rights go, for the folders of a server that was killed."""
    with contextlib.suppress(OSError):
        top = _open_folder(folder)
        if top is None:
            return
        try:
            names = os.listdir(top)
            while names:
                names += _unfold(top, names.pop())
        finally:
            os.close(top)
        os.rmdir(folder)


def _unfold(top: int, name: str) -> list[str]:
    """Remove an entry of `top`; the folders in it become entries of `top`, under the names returned."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
        os.unlink(name, dir_fd=top)
        return []
    inside, moved = _enter(top, name), []
    try:
        for entry in os.listdir(inside):
            if stat.S_ISDIR(os.lstat(entry, dir_fd=inside).st_mode):
                os.close(_enter(inside, entry))  # a folder that may not be written to may not be moved
                moved.append(secrets.token_hex(16))
                os.rename(entry, moved[-1], src_dir_fd=inside, dst_dir_fd=top)
            else:
                os.unlink(entry, dir_fd=inside)
    finally:
        os.close(inside)
    os.rmdir(name, dir_fd=top)
    return moved


def _enter(above: int, name: str) -> int:
    os.chmod(name, 0o700, dir_fd=above)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
