"""Control groups: the one limit that holds memory, swap and processes of a whole tree, versions 1 and 2.

A group of ours is made below or beside the group this process is in, so limits set further up keep holding:

    version 1  one tree of groups per controller (memory, pids, cpuacct): a child of our own group in each
    version 2  one tree; a group that holds processes cannot hand controllers to children, so the place is our own group
               only if controllers are handed out there already (the root may), else its parent, as a sibling

Nothing but groups of our names is made or changed. A name carries the mark of its owner, so `sweep` can tell what dead
owners left. `find` proves a place by making, limiting, entering and removing a group.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from errno import EBUSY, ENODEV, ENOENT
from pathlib import Path

from mlexpert.sandbox import owner

_PREFIX = "mlexpert"
_V1_CONTROLLERS = ("memory", "pids", "cpuacct")
_V2_CONTROLLERS = ("memory", "pids")  # the processor time of a group is counted there without a controller
_PATIENCE_S, _PAUSE_S = 5.0, 0.002
_TRIAL_BYTES, _TRIAL_PIDS = 64 << 20, 8


@dataclass(frozen=True)
class Hierarchy:
    """Where groups can be made: controller -> folder. Memory is always there; in version 2 all folders are one."""

    version: int
    folders: Mapping[str, str]

    @property
    def places(self) -> list[str]:
        return list(dict.fromkeys(self.folders.values()))


@dataclass(frozen=True)
class Group:
    hierarchy: Hierarchy
    name: str

    @property
    def folders(self) -> list[str]:
        return [f"{place}/{self.name}" for place in self.hierarchy.places]

    def file(self, controller: str, name: str) -> Path | None:
        """A control file, or None if this controller, or this kernel, does not have it."""
        place = self.hierarchy.folders.get(controller)
        path = Path(f"{place}/{self.name}/{name}")
        return path if place and path.exists() else None


# ---------------------------------------------------------------- finding a place
def find(proc: str = "/proc") -> tuple[Hierarchy | None, str]:
    """A place where groups work, tried for real; else None and the reason in one line."""
    reasons = []
    for candidates, reason in (_version_2(proc), _version_1(proc)):
        reasons += [reason] if reason else []
        for hierarchy in candidates:
            if not (fault := _fault(hierarchy)):
                return hierarchy, ""
            reasons.append(f"cgroup version {hierarchy.version}: {fault}")
    return None, "; ".join(reasons)


def _version_2(proc: str) -> tuple[list[Hierarchy], str]:
    mounted = [own for controllers, own, _ in _mounts(proc) if controllers is None]
    if not mounted or mounted[0] is None:
        return [], "" if not mounted else "cgroup version 2: this process's group lies outside of the mounted tree"
    own = mounted[0]
    places = [own] if Path(own, "cgroup.procs").exists() else []
    places += [parent for parent in [os.path.dirname(own)] if Path(parent, "cgroup.procs").exists()]
    able = [place for place in places if set(_V2_CONTROLLERS) <= set(_words(place, "cgroup.subtree_control"))]
    hierarchies = [Hierarchy(2, dict.fromkeys((*_V2_CONTROLLERS, "cpuacct"), place)) for place in able]
    if hierarchies or "memory" not in _words(own, "cgroup.controllers"):
        return hierarchies, ""
    return [], (
        f"cgroup version 2: neither {own} nor its parent hands memory and pids to groups below it "
        "(cgroup.subtree_control); start the run where one does, as `systemd-run --user --scope` would"
    )


def _version_1(proc: str) -> tuple[list[Hierarchy], str]:
    folders = {
        controller: own
        for controllers, own, _ in _mounts(proc)
        for controller in controllers or ()
        if controller in _V1_CONTROLLERS and own is not None
    }
    if "memory" in folders:
        return [Hierarchy(1, folders)], ""
    return [], "cgroup version 1: no memory controller is mounted"


def _mounts(proc: str) -> list[tuple[list[str] | None, str | None, str]]:
    """(controllers, or None for version 2; folder of this process's own group, or None if out of view; mount point)."""
    own = {}
    for line in Path(proc, "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    mounts = []
    for line in Path(proc, "self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        root, point = (_unescaped(word) for word in left.split()[3:5])
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2":
            mounts.append((None, _folder(own.get(""), root, point), point))
        elif kind == "cgroup":
            controllers = [word for word in options.split(",") if word in own]
            path = next((own[word] for word in controllers), None)
            mounts.append((controllers, _folder(path, root, point), point))
    return mounts


def _folder(group: str | None, root: str, point: str) -> str | None:
    """The folder of a group if a mount at `point` shows the tree from group `root` on; None outside of it."""
    if group is None or ".." in group.split("/"):
        return None
    base = root.rstrip("/")
    if group != root and not group.startswith(base + "/"):
        return None
    return (point + group[len(base) :]).rstrip("/")


def _unescaped(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _words(folder: str, name: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(folder, name).read_text().split()
    return []


def _fault(hierarchy: Hierarchy) -> str:
    """What stops a group from being made, limited, entered or removed here; "" if nothing does."""
    try:
        group = make(hierarchy, own_name("trial"), _TRIAL_BYTES, _TRIAL_PIDS)
        try:
            return "" if _entered_by_child(group) else "a process may not enter a group of its own"
        finally:
            remove(group)
    except OSError as error:
        return str(error)


def _entered_by_child(group: Group) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            enter(group)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def own(proc: str = "/proc") -> Group | None:
    """The group that this process is in, for its counters; None if it is out of view or does not count memory."""
    for controllers, folder, _ in _mounts(proc):
        if controllers is None and folder is not None and Path(folder, "memory.events").exists():
            return Group(Hierarchy(2, dict.fromkeys((*_V2_CONTROLLERS, "cpuacct"), folder)), ".")
    found, _ = _version_1(proc)
    return Group(found[0], ".") if found else None


# ---------------------------------------------------------------- one group
def own_name(label: str) -> str:
    """A group name that says whose it is: this process's."""
    return f"{_PREFIX}-{owner.mark()}-{label}"


def owner_of(name: str) -> str:
    """The mark in a group's name; "" if the name is not one of ours."""
    return owner.named(_PREFIX, name)


def make(hierarchy: Hierarchy, name: str, memory_bytes: int, pids: int) -> Group:
    """A new group with limits; `memory_bytes` includes swap. Raises OSError, and then leaves nothing behind."""
    group = Group(hierarchy, name)
    try:
        for folder in group.folders:
            os.mkdir(folder)
        _limit_memory(group, memory_bytes)
        if limit := group.file("pids", "pids.max"):
            limit.write_text(str(pids))
    except OSError:
        for folder in group.folders:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        raise
    return group


def _limit_memory(group: Group, memory_bytes: int) -> None:
    """Raises OSError if the machine swaps and the group could."""
    version_2 = group.hierarchy.version == 2
    limit = group.file("memory", "memory.max" if version_2 else "memory.limit_in_bytes")
    if limit is None:
        raise OSError(f"the new group {group.folders[0]} has no file that limits memory")
    limit.write_text(str(memory_bytes))
    if version_2 and (swap := group.file("memory", "memory.swap.max")):
        swap.write_text("0")
    elif not version_2 and (both := group.file("memory", "memory.memsw.limit_in_bytes")):
        both.write_text(str(memory_bytes))
    elif not version_2 and (swappiness := group.file("memory", "memory.swappiness")):
        swappiness.write_text("0")
    elif len(Path("/proc/swaps").read_text().splitlines()) > 1:
        raise OSError("the machine swaps, and its kernel does not limit the swap of a group")


def enter(group: Group) -> None:
    """Move this process, which has one thread, into the group; its later children are born there.

    Call before /sys is out of view. In version 1 a thread that moves itself waits for nobody, while moving a process
    waits until no process of the machine is about to fork: 3 to 15 ms.
    """
    name = "tasks" if group.hierarchy.version == 1 else "cgroup.procs"
    for folder in group.folders:
        Path(folder, name).write_text("0")


def oom_kills(group: Group) -> int:
    """How many of its processes the kernel has killed because the group reached its memory limit."""
    name = "memory.events" if group.hierarchy.version == 2 else "memory.oom_control"
    return _counter(group.file("memory", name), "oom_kill") or 0


def refused_forks(group: Group) -> int:
    """How many times the limit on processes and threads has refused one."""
    return _counter(group.file("pids", "pids.events"), "max") or 0


def peak_bytes(group: Group) -> int | None:
    """Most memory in use at one time; None if this kernel does not record it."""
    for name in ("memory.peak", "memory.memsw.max_usage_in_bytes", "memory.max_usage_in_bytes"):
        if path := group.file("memory", name):
            return int(path.read_text())
    return None


def cpu_s(group: Group) -> float | None:
    """Seconds of processor time of all that ever ran in it; None without a counter."""
    if path := group.file("cpuacct", "cpuacct.usage"):
        return int(path.read_text()) / 1e9
    microseconds = _counter(group.file("cpuacct", "cpu.stat"), "usage_usec")
    return None if microseconds is None else microseconds / 1e6


def _counter(path: Path | None, name: str) -> int | None:
    if path is None:
        return None
    lines = (line.split() for line in path.read_text().splitlines())
    return next((int(value) for key, value in lines if key == name), None)


def kill(group: Group, patience_s: float = _PATIENCE_S) -> None:
    """Kill all its processes. Raises TimeoutError naming who is left. Those that ended stay to be reaped."""
    if limit := group.file("pids", "pids.max"):
        limit.write_text("0")  # nothing is born any more, so one round of kills reaches all
    until = time.monotonic() + patience_s
    while members := _members(group):
        if at_once := group.file("memory", "cgroup.kill"):
            at_once.write_text("1")
        else:
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise TimeoutError(f"processes {members} in cgroup {group.name} outlived SIGKILL for {patience_s} s")
        time.sleep(_PAUSE_S)


def _members(group: Group) -> list[int]:
    pids = {int(word) for folder in group.folders for word in _words(folder, "cgroup.procs")}
    return sorted(pids - {0})  # 0: a process of another pid namespace


def remove(group: Group, patience_s: float = _PATIENCE_S) -> None:
    """Remove an empty group; the kernel may need a moment after its last process. Raises OSError if it is in use."""
    until = time.monotonic() + patience_s
    for folder in group.folders:
        while os.path.exists(folder):
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno != EBUSY or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_S)


# ---------------------------------------------------------------- what dead owners left
def sweep(hierarchy: Hierarchy) -> list[str]:
    """Kill and remove the groups of owners that are dead; returns their names. Other pid namespaces are not judged.

    An owner may have been started elsewhere: the groups beside each place, such as other sessions', are searched too.
    """
    swept = set()
    for place in hierarchy.places:
        controllers = [controller for controller, folder in hierarchy.folders.items() if folder == place]
        for folder in {*Path(place).glob(f"{_PREFIX}-*"), *Path(place).parent.glob(f"*/{_PREFIX}-*")}:
            if owner.dead(owner_of(folder.name)):
                group = Group(Hierarchy(hierarchy.version, dict.fromkeys(controllers, str(folder.parent))), folder.name)
                try:
                    kill(group)
                    remove(group)
                except OSError as error:
                    if error.errno not in (ENOENT, ENODEV):  # somebody else swept it at the same time
                        raise
                swept.add(folder.name)
    return sorted(swept)
