"""The public files of a job in a folder that a container sees read-only, together with nothing else.

A file is linked if its rights allow any user to read it, and copied otherwise or from another file system. What lies
there already is kept as long as the public folder looks the same: tasks are executed many times in a row.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

Signature = tuple[tuple[str, int, int, int], ...]


def signature(inputs: Path) -> Signature:
    """What the folder looks like: changes with every name, size, time and inode in it."""
    found = []
    for folder, folders, files in os.walk(inputs):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            info = os.lstat(path)
            found.append((path, info.st_size, info.st_mtime_ns, info.st_ino))
    return tuple(sorted(found))


def stage(inputs: Path, staged: Path) -> None:
    """Make `staged` hold the files of `inputs`. Raises OSError on a full disk or an unreadable file."""
    empty(staged)
    for folder, folders, files in os.walk(inputs):
        target = staged / os.path.relpath(folder, inputs)
        for name in folders:
            if os.path.islink(os.path.join(folder, name)):
                _place(os.path.join(folder, name), target / name)
            else:
                os.mkdir(target / name)
                os.chmod(target / name, 0o755)
        for name in files:
            _place(os.path.join(folder, name), target / name)


def _place(path: str, target: Path) -> None:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):  # only below the top, and it resolves among what the container has
        target.symlink_to(os.readlink(path))
        return
    if mode & stat.S_IROTH:
        try:
            os.link(path, target, follow_symlinks=False)
            return
        except OSError:  # another file system, or another owner's file
            pass
    shutil.copyfile(path, target)
    os.chmod(target, 0o444)


def empty(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
