"""One execution, seen from its supervisor: set up, start, drain, watch the clock, kill everything, then collect.

    supervisor (host's pid namespace)  drains output, keeps the deadline, kills, copies files out, answers
      init     (first process inside)  reaps orphans, watches the memory of the whole tree, reports how main ended
        main   (the script)            its own uid, no privileges, no file descriptor but its output and the report

The end of main ends the execution: a grandchild that holds the output open delays nothing and survives nothing. Files
are read only after every process inside is dead, so nothing can change them between check and copy.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import socket
import struct
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from mlexpert.sandbox import isolation, runner, workspace

_POLL_S = 0.05
_CHUNK = 1 << 16


# ---------------------------------------------------------------- messages: 8 bytes of length, then JSON
def send(connection: socket.socket, message: dict) -> None:
    body = json.dumps(message).encode()
    connection.sendall(struct.pack("!Q", len(body)) + body)


def receive(connection: socket.socket) -> dict:
    """Raises ConnectionError if the other side closes in the middle."""
    (length,) = struct.unpack("!Q", _exactly(connection, 8))
    return json.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("the request was cut")
        parts += part
    return bytes(parts)


# ---------------------------------------------------------------- output
@dataclass
class Capture:
    """Head and tail of a stream in bounded memory; the middle is counted and dropped."""

    limit: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, data: bytes) -> None:
        room = self.limit // 2 - len(self.head)
        self.head += data[: max(0, room)]
        self.tail += data[max(0, room) :]
        excess = len(self.tail) - (self.limit - self.limit // 2)
        if excess > 0:
            del self.tail[:excess]
            self.dropped += excess

    def text(self) -> str:
        middle = f"\n... [{self.dropped} bytes cut] ...\n".encode() if self.dropped else b""
        return (bytes(self.head) + middle + bytes(self.tail)).decode("utf-8", "replace")


# ---------------------------------------------------------------- the supervisor
def serve(connection: socket.socket, scratch: str, library: list[str], server_pid: int) -> NoReturn:
    """Body of the process forked for one execution: receive the request, answer it, leave."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        isolation.die_with_parent()
        request = receive(connection)
        try:
            answer = _execute(request, connection, scratch, library, server_pid)
        except Exception:
            answer = {"setup_failed": traceback.format_exc(limit=-4)}
        send(connection, answer)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _execute(request: dict, connection: socket.socket, scratch: str, library: list[str], server_pid: int) -> dict:
    kind, limits = request["kind"], request["limits"]
    uid = isolation.slot_uid(kind, server_pid, request["slot"])
    into_fd = os.open(request["into"], os.O_RDONLY | os.O_DIRECTORY)
    root = f"{scratch}/slot{request['slot']}"  # as a mount point only, where there are namespaces: it stays empty
    if kind == isolation.PLAIN:
        root = tempfile.mkdtemp(dir=scratch)
    os.makedirs(root, exist_ok=True)
    try:
        place = _prepare(request, root, uid)
        source = request["script"].encode("utf-8", "surrogatepass")
        workspace.fill(place, request["inputs"], source, uid if kind == isolation.NAMESPACES else None)
        isolation.adopt_orphans()
        outcome = _run(source, root, library, request, uid, connection)
        place = root if kind == isolation.PLAIN else isolation.WORKSPACE
        outcome["files"], outcome["refused"] = workspace.collect(place, into_fd, request["collect"], limits["disk_mb"])
        return outcome
    finally:
        if kind == isolation.PLAIN:
            workspace.remove(root)


def _prepare(request: dict, root: str, uid: int) -> str:
    limits, kind = request["limits"], request["kind"]
    if kind == isolation.PLAIN:
        return root
    isolation.enter(kind)
    inputs_mb = sum(f.stat().st_size + 4096 for f in Path(request["inputs"]).rglob("*")) // (1 << 20) + 1
    return isolation.build_root(root, request["visible"], uid, limits["disk_mb"], limits["disk_mb"] + inputs_mb)


def _run(source: bytes, root: str, library: list[str], request: dict, uid: int, connection: socket.socket) -> dict:
    pipes = {name: os.pipe() for name in ("stdout", "stderr", "status", "report")}
    baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    init = os.fork()
    if init == 0:
        _init(source, root, library, request, uid, {name: pipe[1] for name, pipe in pipes.items()})
    for _, write_end in pipes.values():
        os.close(write_end)
    limit = request["limits"]["output_kb"] * 1024
    captures = {name: Capture(limit if name in ("stdout", "stderr") else _CHUNK) for name in pipes}
    deadline = started + request["limits"]["wall_s"]
    with selectors.DefaultSelector() as selector:
        for name, (read_end, _) in pipes.items():
            os.set_blocking(read_end, False)
            selector.register(read_end, selectors.EVENT_READ, name)
        selector.register(connection, selectors.EVENT_READ, "caller")
        timed_out = _drain_until_ended(selector, captures, deadline)
        wall_s = time.monotonic() - started
        isolation.kill_tree(init, request["kind"])
        for name, (read_end, _) in pipes.items():  # all writers are dead: what is left is bounded by the pipe
            _read_available(read_end, captures[name])
    return _outcome(captures, timed_out, wall_s, baseline, request["kind"])


def _drain_until_ended(selector: selectors.BaseSelector, captures: dict[str, Capture], deadline: float) -> bool:
    """Read all streams until init has reported or the deadline passes; true if it passed."""
    while (left := deadline - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            if key.data == "caller":
                raise ConnectionError("the caller left")
            data = os.read(key.fd, _CHUNK)
            captures[key.data].add(data)
            if key.data == "status":
                return False
            if not data:
                selector.unregister(key.fd)
    return True


def _read_available(fd: int, capture: Capture) -> None:
    try:
        while data := os.read(fd, _CHUNK):
            capture.add(data)
    except BlockingIOError:  # plain mode only: a process that escaped still holds the other end
        return


def _outcome(captures: dict[str, Capture], timed_out: bool, wall_s: float, baseline: int, kind: str) -> dict:
    status = json.loads(captures["status"].head or "{}")
    if "setup_failed" in status:
        return status
    if not status and not timed_out:
        if kind != isolation.PLAIN:
            raise RuntimeError("the first process of the sandbox died without a report")
        status = {"code": -int(signal.SIGKILL)}  # without isolation a script can kill it: then it killed itself
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "code": None if timed_out else status.get("code"),
        "timed_out": timed_out,
        "out_of_memory": status.get("out_of_memory", False),
        "report": _read_report(bytes(captures["report"].head)),
        "stdout": captures["stdout"].text(),
        "stderr": captures["stderr"].text(),
        "truncated": bool(captures["stdout"].dropped or captures["stderr"].dropped),
        "wall_s": wall_s,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mb": max(0, used.ru_maxrss - baseline) / 1024,
    }


def _read_report(raw: bytes) -> dict:
    """The script can write to this pipe too: anything but the expected shape counts as no report."""
    try:
        report = json.loads(raw)
        errno_ = report["errno"] if isinstance(report["errno"], int) else None
        return {
            "exception": str(report["exception"])[:200],
            "message": str(report["message"])[: runner.MESSAGE_LIMIT],
            "errno": errno_,
            "memory": report["memory"] is True,
        }
    except (ValueError, KeyError, TypeError):
        return {}


# ---------------------------------------------------------------- inside
def _init(source: bytes, root: str, library: list[str], request: dict, uid: int, ends: dict[str, int]) -> NoReturn:
    """First process inside. Its last act is the status line; in a pid namespace its exit kills what is left."""
    kind = request["kind"]
    try:
        isolation.die_with_parent()
        isolation.hide_memory()
        # An init with a handler can be signalled from inside; without one the kernel protects it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _close_all_but(set(ends.values()))
        place = root
        if kind != isolation.PLAIN:
            isolation.pivot(root)
            place = isolation.WORKSPACE
        isolation.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        main = os.fork()
        if main == 0:
            _main(source, place, library, request, uid, ends)
        status = _wait(main, request["limits"]["memory_mb"] << 20)
    except Exception:
        status = {"setup_failed": traceback.format_exc(limit=-4)}
    os.write(ends["status"], json.dumps(status).encode())
    signal.pause()  # the supervisor kills; ending here could let a plain-mode orphan slip away
    os._exit(0)


def _wait(main: int, memory_limit: int) -> dict:
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, _POLL_S)
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if ended[0] == main:
                return {"code": os.waitstatus_to_exitcode(ended[1])}
        if isolation.memory_over(isolation.processes_below(os.getpid()), memory_limit):
            return {"code": None, "out_of_memory": True}


def _main(source: bytes, place: str, library: list[str], request: dict, uid: int, ends: dict[str, int]) -> NoReturn:
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(ends["stdout"], 1)
        os.dup2(ends["stderr"], 2)
        _close_all_but({0, 1, 2, ends["status"], ends["report"]})
        isolation.drop(request["kind"], uid, request["limits"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.chdir(place)
        os.umask(0o022)
        os.close(ends["status"])  # from here on nothing that happens is the sandbox's failure
    except Exception:
        os.write(ends["status"], json.dumps({"setup_failed": traceback.format_exc(limit=-4)}).encode())
        os._exit(1)
    try:
        code = runner.main(source, f"{place}/script.py", library, request["seed"], ends["report"])
    except BaseException:  # a script that broke the interpreter's own functions must not return into the sandbox's
        code = 1
    os._exit(code)


def _close_all_but(kept: set[int]) -> None:
    low = 3
    for fd in sorted(kept):
        if fd >= low:
            os.closerange(low, fd)
            low = fd + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
