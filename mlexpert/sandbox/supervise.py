"""One execution, seen from its supervisor: set up, start, drain, watch the clock, kill everything, then collect.

    supervisor (host's pid namespace)  drains output, keeps the deadline, kills, copies files out, answers
      init     (first process inside)  watches the tree, reports how main ended
        main   (the script)            its own user, no privileges, no file descriptor but its output and the report

The end of main ends the execution: a grandchild that holds the output open delays nothing and survives nothing. Files
are read only after every process inside is dead, so nothing can change them between check and copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from mlexpert.sandbox import cgroup, inside, isolation, places, processes, runner, wire, workspace
from mlexpert.sandbox.isolation import Layers
from mlexpert.sandbox.terminal import Capture, shown

_CHUNK = 1 << 16
_MEGABYTE = 1 << 20
_LOOK_S = 0.1  # between two looks at the processor time of the group
_DYING_S = 2.0  # for the kernel to end what was killed, before it is looked for
_PAUSE_S = 0.001


@dataclass(frozen=True)
class Server:
    """What every supervisor knows of its server; nothing of it belongs to a task."""

    pid: int
    scratch: str  # a folder in which others may enter what they own
    library: list[str]
    hierarchy: cgroup.Hierarchy | None
    around: cgroup.Group | None  # the group that the server is in: in a container, that of the container
    first_uid: int
    runner: str


def serve(connection: socket.socket, server: Server) -> NoReturn:
    """Body of the process forked for one execution: receive the request, answer it, leave."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, _end)
        isolation.die_with_parent(signal.SIGTERM)
        if os.getppid() != server.pid:
            sys.exit("the server has ended")
        request = wire.receive(connection)
        files: list[tuple[str, int, int]] = []
        try:
            answer, files = _execute(request, connection, server)
        except ConnectionError:
            raise
        except Exception as error:
            answer = {"setup_failed": inside.fault(error)}
        wire.send(connection, answer)
        for _, fd, size in files:
            with open(fd, "rb") as file:
                connection.sendfile(file, count=size)
        os._exit(0)
    except ConnectionError:  # the caller left, and all is cleaned up
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _end(*_: object) -> NoReturn:
    """End the execution; nothing may interrupt that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("the server ends")


def _execute(request: dict, connection: socket.socket, server: Server) -> tuple[dict, list[tuple[str, int, int]]]:
    if request["op"] != "execute":
        raise ValueError(f"op {request['op']!r}: this server has its owner, so there is only 'execute'")
    layers = isolation.layers(request["kind"])
    isolation.adopt_orphans()
    with (
        _turn(server, request["slot"], layers) as uid,
        _group(server, request["limits"]) as group,
        _prepared(request, layers, uid, group, server) as plan,
    ):
        outcome = _run(plan, connection)
        if "setup_failed" in outcome:
            return outcome, []
        place, disk_mb = plan.place, request["limits"]["disk_mb"]
        folder = place.root + place.workspace
        files, refused = workspace.collect(folder, request["collect"], disk_mb, place.uid)
        return outcome | {"refused": refused, "files": [(name, size) for name, _, size in files]}, files


# ---------------------------------------------------------------- setting up
@contextlib.contextmanager
def _turn(server: Server, slot: int, layers: Layers) -> Iterator[int]:
    """The slot for ourselves, and the user of this execution: if it has its own, not the one of the last execution."""
    if not 0 <= slot < isolation.SLOTS:
        raise ValueError(f"slot {slot}: there are {isolation.SLOTS}")
    name = "container" if layers.container else f"slot{slot}"
    with open(f"{server.scratch}/{name}.turn", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not layers.own_uid:
            yield os.geteuid()
            return
        os.setgroups([])
        file.seek(0)
        turn = file.read() == ""
        file.truncate(0)
        file.write("x" * turn)
        file.flush()
        yield server.first_uid + 2 * slot + turn


@contextlib.contextmanager
def _group(server: Server, limits: dict) -> Iterator[cgroup.Group | None]:
    if server.hierarchy is None:
        yield None
        return
    name, pids = cgroup.own_name("run"), limits["pids"] + 1  # and init
    group = cgroup.make(server.hierarchy, name, limits["memory_mb"] * _MEGABYTE, pids)
    try:
        yield group
    finally:
        cgroup.kill(group)
        cgroup.remove(group)


@contextlib.contextmanager
def _prepared(
    request: dict, layers: Layers, uid: int, group: cgroup.Group | None, server: Server
) -> Iterator[inside.Plan]:
    """A filled workspace and the plan for it; afterwards nothing of the execution is left."""
    limits, visible = request["limits"], request["visible"]
    counted = server.around if layers.container else group
    given = workspace.inputs(request["inputs"], layers, uid)
    source = request["script"].encode("utf-8", "surrogatepass")
    with places.made(layers, server.scratch, request["slot"], uid, visible, given, limits["disk_mb"]) as place:
        workspace.fill(place.root + place.workspace, given, source, layers, place.uid)
        linked = [entry.path for entry in given if entry.shown]
        yield inside.Plan(
            source=source,
            seed=request["seed"],
            limits=limits,
            layers=layers,
            place=place,
            readable=["/"] if layers.container else [*visible, *linked],
            group=group,
            counted=counted,
            watched=_watched(layers, group, counted, place),
            library=server.library,
            runner=server.runner,
        )


def _watched(
    layers: Layers, group: cgroup.Group | None, counted: cgroup.Group | None, place: places.Place
) -> frozenset[str]:
    """What the kernel does not hold for us: the first process inside looks at it now and then."""
    held = {
        "memory": group is not None or counted is not None,
        "cpu": group is not None and cgroup.cpu_s(group) is not None,
        "pids": group is not None or layers.guarded,
        "disk": not place.measured,
    }
    return frozenset(name for name, kept in held.items() if not kept)


# ---------------------------------------------------------------- running
def _run(plan: inside.Plan, connection: socket.socket) -> dict:
    pipes = {name: os.pipe() for name in ("stdout", "stderr", "status", "report")}
    baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    kills_before = _oom_kills(plan)
    started = time.monotonic()
    init = os.fork()
    if init == 0:
        inside.init(plan, {name: pipe[1] for name, pipe in pipes.items()})
    for _, write_end in pipes.values():
        os.close(write_end)
    limit = plan.limits["output_kb"] * 1024
    sinks = {name: Capture(limit) for name in ("stdout", "stderr")} | {name: _Note() for name in ("status", "report")}
    try:
        with selectors.DefaultSelector() as selector:
            for name, (read_end, _) in pipes.items():
                os.set_blocking(read_end, False)
                selector.register(read_end, selectors.EVENT_READ, name)
            selector.register(connection, selectors.EVENT_READ, "caller")
            stopped = _drain(selector, sinks, started + plan.limits["wall_s"], plan)
        wall_s = time.monotonic() - started
        last_look = _look(init, baseline) if plan.group is None else (0.0, 0)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # whoever asks for the end: it is coming
        _kill(plan, init)
    for name, (read_end, _) in pipes.items():  # all writers are dead: what is left is bounded by the pipe
        _read_available(read_end, sinks[name])
    used = {"wall_s": wall_s} | _used(plan, baseline, last_look)
    return _outcome(sinks, stopped, _oom_kills(plan) - kills_before, plan) | used


class _Note:
    """The first bytes of a pipe that carries one short message."""

    def __init__(self) -> None:
        self.data = b""

    def add(self, data: bytes) -> None:
        self.data += data[: _CHUNK - len(self.data)]


def _drain(selector: selectors.BaseSelector, sinks: dict, deadline: float, plan: inside.Plan) -> str:
    """Read all streams until init has reported; else the limit that was passed first: "wall" or "cpu"."""
    while (left := deadline - time.monotonic()) > 0:
        for key, _ in selector.select(min(left, _LOOK_S)):
            if key.data == "caller":
                raise ConnectionError("the caller left")
            data = os.read(key.fd, _CHUNK)
            sinks[key.data].add(data)
            if key.data == "status":
                return ""
            if not data:
                selector.unregister(key.fd)
        if plan.group is not None and (cgroup.cpu_s(plan.group) or 0.0) > plan.limits["cpu_s"]:
            return "cpu"
    return "wall"


def _read_available(fd: int, sink: Capture | _Note) -> None:
    with contextlib.suppress(BlockingIOError):  # `plain` only: a process that escaped still holds the other end
        while data := os.read(fd, _CHUNK):
            sink.add(data)
    os.close(fd)


def _kill(plan: inside.Plan, init: int) -> None:
    """Kill and reap all that runs below this process. Raises TimeoutError if something outlives SIGKILL."""
    if plan.layers.own_uid and not plan.layers.namespaces:
        processes.kill_uid(plan.place.uid)
    if plan.layers.guarded:
        with contextlib.suppress(ProcessLookupError):
            os.kill(init, signal.SIGKILL)
        until = time.monotonic() + _DYING_S
        while processes.reap() and time.monotonic() < until:
            time.sleep(_PAUSE_S)
    if processes.reap():
        processes.kill_below()


# ---------------------------------------------------------------- the answer
def _outcome(sinks: dict, stopped: str, kills: int, plan: inside.Plan) -> dict:
    status = json.loads(sinks["status"].data.partition(b"\n")[0] or "{}")
    if "setup_failed" in status:
        return status
    stopped = stopped or status.get("stopped", "")
    if not status and not stopped:
        if kills:
            stopped = "memory"
        elif plan.layers.guarded:
            raise RuntimeError("the first process of the sandbox died without a report")
        else:  # a script of the same user can kill it: then it killed itself
            status = {"code": -int(signal.SIGKILL)}
    return {
        "code": None if stopped else status["code"],
        "stopped": stopped,
        "oom_kills": max(kills, int(stopped == "memory")),
        "report": _read_report(sinks["report"].data),
        "stdout": sinks["stdout"].text(),
        "stderr": sinks["stderr"].text(),
        "stdout_bytes": sinks["stdout"].received,
        "stderr_bytes": sinks["stderr"].received,
        "truncated": sinks["stdout"].truncated or sinks["stderr"].truncated,
    }


def _oom_kills(plan: inside.Plan) -> int:
    """So far, in the execution's group, or in that of the container around it."""
    return 0 if plan.counted is None else cgroup.oom_kills(plan.counted)


def _look(init: int, baseline: int) -> tuple[float, int]:
    """Processor time, and bytes above the baseline, of what still lives: the kernel forgets both with a kill."""
    family = processes.below(init)
    peak_bytes = sum(max(0, _most_bytes(process.pid) - baseline) for process in family if process.living)
    return processes.cpu_s_of(init, family), peak_bytes


def _most_bytes(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:  # it may have ended meanwhile
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), 0)
    return 0


def _used(plan: inside.Plan, baseline: int, last_look: tuple[float, int]) -> dict:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = cgroup.cpu_s(plan.group) if plan.group is not None else None
    peak = cgroup.peak_bytes(plan.group) if plan.group is not None else None
    if cpu_s is None:
        cpu_s = max(ended.ru_utime + ended.ru_stime, last_look[0])
    if peak is None:
        peak = max(0, ended.ru_maxrss * 1024 - baseline, last_look[1])
    return {"cpu_s": cpu_s, "peak_mb": peak / _MEGABYTE}


def _read_report(raw: bytes) -> dict:
    """The script can write to this pipe too: anything but the expected shape counts as no report."""
    try:
        report = json.loads(raw)
        errno_ = report["errno"] if isinstance(report["errno"], int) else None
        return {
            "exception": " ".join(shown(str(report["exception"])).split())[:200],
            "message": shown(str(report["message"]))[: runner.MESSAGE_LIMIT],
            "errno": errno_,
            "memory": report["memory"] is True,
        }
    except (ValueError, KeyError, TypeError):
        return {}
