"""A sandbox's folder below the temporary one. Its name says whose it is, so those of dead owners can be removed."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from pathlib import Path

from mlexpert.sandbox import owner, workspace

PREFIX = "mlexpert-sandbox"


def make() -> Path:
    """A new folder of this process that only its user may enter. Raises OSError on a full or read-only disk."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}-{owner.mark()}-"))


def mine() -> list[Path]:
    """The folders of this process."""
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}-{owner.mark()}-*"))


def sweep() -> None:
    """Remove the folders of owners that are dead; of another user's, or another pid namespace's, none."""
    for entry in Path(tempfile.gettempdir()).iterdir():
        if owner.dead(owner.named(PREFIX, entry.name)) and not _in_use(entry):
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
