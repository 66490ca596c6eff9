"""Whose a thing is: a mark in its name that names one process for ever.

Folders, control groups and containers outlive a process that is killed. Each carries the mark of its owner, and whoever
finds it can tell whether that owner is dead. A mark is boot, pid namespace, pid and start time: a pid alone is soon
another process's.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mlexpert.sandbox import processes

MARK = r"[0-9a-f]{8}-\d+-\d+-\d+"  # what a mark looks like


def mark() -> str:
    """This process's."""
    pid = os.getpid()
    return f"{_boot()}-{_namespace()}-{pid}-{processes.start_time(pid)}"


def named(prefix: str, name: str) -> str:
    """The mark in a name `<prefix>-<mark>-<something>`; "" in any other."""
    found = re.fullmatch(rf"{prefix}-({MARK})-.+", name)
    return found[1] if found else ""


def dead(mark: str, local: bool = True) -> bool:
    """Whether a mark's process is known to be dead; one in another pid namespace is out of view, and is not judged.

    `local`: the thing cannot be another machine's, so an owner of another boot died with it. A text that is no mark is
    not judged either.
    """
    if not re.fullmatch(MARK, mark):
        return False
    boot, namespace, pid, start = mark.split("-")
    if boot != _boot():
        return local
    return namespace == _namespace() and processes.start_time(int(pid)) != int(start)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)
