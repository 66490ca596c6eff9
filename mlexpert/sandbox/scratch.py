"""A sandbox's folder below the temporary one. Its name says whose it is, so those of dead owners can be removed."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import tempfile
from pathlib import Path

from mlexpert.sandbox import processes, workspace

_PREFIX = "mlexpert-sandbox"


def make() -> Path:
    """A new folder of this process that only its user may enter. Raises OSError on a full or read-only disk."""
    pid = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{pid}-{processes.start_time(pid)}-"))


def sweep() -> None:
    """Remove the folders of owners that are dead; of another user's, or another pid namespace's, none."""
    for entry in Path(tempfile.gettempdir()).iterdir():
        owner = re.fullmatch(rf"{_PREFIX}-(\d+)-(\d+)-.+", entry.name)
        if owner and processes.start_time(int(owner[1])) != int(owner[2]) and not _in_use(entry):
            workspace.remove(str(entry))


def _in_use(folder: Path) -> bool:
    """Whether a server listens in it: then its owner lives where we cannot see it, or has only just died."""
    with contextlib.suppress(OSError):  # not ours to look into
        return any(_answers(path) for pattern in ("socket", "*/*/socket") for path in folder.glob(pattern))
    return True


def _answers(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(str(path))
        return True
    return False
