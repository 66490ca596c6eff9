"""Disk use where no file system of the script's own limits it: counted now and then.

Counted are the blocks of all files of the script's user below the folders that it may write to, and of files that it
deleted and still holds open. A script that hides files from the count by taking away rights gets these rights back;
one that builds paths too long to follow is over the limit.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from mlexpert.sandbox.isolation import acting_as
from mlexpert.sandbox.namespaces import INODES


def over(folders: list[str], pids: list[int], uid: int, limit: int) -> bool:
    """Whether `uid`'s files take more than `limit` bytes or are too many; `pids` are the script's processes."""
    size, seen = 0, set()
    with acting_as(uid):
        try:
            for info in _files(folders, pids, uid):
                size += 0 if (info.st_dev, info.st_ino) in seen else info.st_blocks * 512
                seen.add((info.st_dev, info.st_ino))
                if size > limit or len(seen) > INODES:
                    return True
        except OSError:  # a path too long
            return True
    return False


def _files(folders: list[str], pids: list[int], uid: int) -> Iterator[os.stat_result]:
    waiting = list(folders)
    while waiting:
        for entry in _listed(waiting.pop()):
            with contextlib.suppress(FileNotFoundError):
                info = entry.stat(follow_symlinks=False)
                if info.st_uid == uid:
                    yield info
                    waiting += [entry.path] if stat.S_ISDIR(info.st_mode) else []
    for pid in pids:
        yield from _deleted(pid)


def _listed(folder: str) -> list[os.DirEntry]:
    for _ in range(2):
        try:
            return list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []  # it went away meanwhile
        except PermissionError:
            fd = os.open(folder, os.O_PATH | os.O_NOFOLLOW)
            os.chmod(f"/proc/self/fd/{fd}", 0o700)
            os.close(fd)
    return []


def _deleted(pid: int) -> Iterator[os.stat_result]:
    with contextlib.suppress(OSError):  # it ended meanwhile
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                info = os.stat(f"/proc/{pid}/fd/{name}")
                if stat.S_ISREG(info.st_mode) and info.st_nlink == 0:
                    yield info
