"""The script's folder: filled with a copy of the public files before, and searched for its results after.

Results are collected only when every process inside is dead, so nothing can change between check and copy, and only if
they are plain data of the workspace itself: no link of either kind, no pipe, no device, nothing oversized.
"""

from __future__ import annotations

import os
import shutil
import stat

_COLLECT_MB = 64  # no collected file may be larger, whatever the disk limit


def fill(workspace: str, inputs: str, source: bytes, owner: int | None) -> None:
    """A fresh copy of the public files, and the script; a script may spoil its copy, never the original."""
    shutil.copytree(inputs, workspace, dirs_exist_ok=True)
    os.chmod(workspace, 0o700)
    with open(f"{workspace}/script.py", "wb") as file:
        file.write(source)
    for folder, _, files in os.walk(workspace):
        for path in [folder, *(os.path.join(folder, name) for name in files)]:
            os.chmod(path, 0o700 if path == folder else 0o600)
            if owner is not None:
                os.chown(path, owner, owner)


def remove(folder: str) -> None:
    """Remove a workspace even if the script took away its own rights."""
    os.chmod(folder, 0o700)
    for path, folders, _ in os.walk(folder):
        for inner in (os.path.join(path, name) for name in folders):
            if not os.path.islink(inner):  # chmod would follow it out of the workspace
                os.chmod(inner, 0o700)
    shutil.rmtree(folder)


def collect(workspace: str, into_fd: int, names: list[str], disk_mb: int) -> tuple[list[str], dict[str, str]]:
    """Copy regular, singly linked files of sane size; anything else is refused with its reason."""
    collected, refused = [], {}
    os.chmod(workspace, 0o700)
    workspace_fd = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    for name in names:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=workspace_fd)
        except FileNotFoundError:
            continue
        except OSError as error:
            refused[name] = f"cannot be opened: {os.strerror(error.errno or 0)}"
            continue
        if fault := _fault(os.fstat(fd), min(disk_mb, _COLLECT_MB)):
            refused[name] = fault
            os.close(fd)
            continue
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(fd, "rb") as source, open(os.open(name, flags, 0o644, dir_fd=into_fd), "wb") as target:
            shutil.copyfileobj(source, target)
        collected.append(name)
    return collected, refused


def _fault(info: os.stat_result, limit_mb: int) -> str:
    if not stat.S_ISREG(info.st_mode):
        return "not a regular file"
    if info.st_nlink != 1:
        return "has more than one hard link"
    return f"larger than {limit_mb} MB" if info.st_size > limit_mb << 20 else ""
