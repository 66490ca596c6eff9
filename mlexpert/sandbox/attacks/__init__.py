"""What scripts do to sandboxes, as data: see `catalogue` for the list and `check` for what runs it."""

from __future__ import annotations

from dataclasses import replace

from mlexpert.sandbox.attacks import cpu, disk, ending, files, intake, memory, network, output, processes, semantics
from mlexpert.sandbox.attacks.attack import Attack

_WARM = tuple(
    found
    for room in (files, network, processes, memory, cpu, disk, ending, intake, output, semantics)
    for found in room.ATTACKS
)
# A fresh interpreter is confined by another path of the code than a fork, so what matters most is tried there too.
_ALSO_COLD = (
    *("searches the disk", "searches /proc", "searches its own memory", "connects", "fork bomb", "kills everyone"),
    *("opens doors", "becomes root", "one hog", "many files", "forged success", "orphan in its own session"),
)
_COLD = tuple(
    replace(one, name=f"{one.name}, cold", script="# sandbox: cold\n" + one.script)
    for one in _WARM
    if one.name in _ALSO_COLD
)
ALL: tuple[Attack, ...] = _WARM + _COLD
