"""`EmbeddedSandbox`: scripts run on this machine, under a warm server that is a child of this process.

`start` runs one script that attacks the isolation, kind after kind from the strongest down, and keeps the first whose
answers are right; what is really enforced is in `isolation` and in every `Execution`. A server that dies is replaced;
one whose owner dies ends, with all that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import mlexpert
from mlexpert.sandbox import client, isolation, namespaces, scratch, seccomp, server, workspace
from mlexpert.sandbox.api import NOT_STARTED, Job, SandboxError
from mlexpert.types import ExecStatus, Execution, Isolation, Limits

_START_S = 120.0  # importing the libraries from a cold disk
_STOP_S = 20.0
# What a script must not be able to do. Each line of the answer is one attempt and whether it succeeded.
_PROBE = """
import json, os, socket
def succeeds(attempt, *arguments):
    try:
        attempt(*arguments)
    except OSError:
        return False
    return True
def read(path):
    with open(path, "rb") as file:
        file.read(1)
def write(folder):
    with open(folder + "/written", "wb"):
        pass
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(b"x", ("192.0.2.1", 9))
def connect():
    with socket.socket() as out:
        out.settimeout(0.3)
        try:
            out.connect(("192.0.2.1", 9))
        except TimeoutError:  # it was let out, nobody answered
            pass
print(json.dumps({{
    "files": any(succeeds(read, path) for path in {hidden!r}) or succeeds(write, {open!r})
    or succeeds(os.truncate, {hidden!r}[0], 0),
    "network": succeeds(send) or succeeds(connect),
    "processes": succeeds(os.kill, {server}, 0),
}}))
read(os.__file__)
"""


class EmbeddedSandbox:
    """`slots` executions at a time; more wait their turn. Start with `async with`, or `start` and `close`.

    `kind` is one of namespaces, user, landlock, plain; None takes the strongest that works here.
    """

    def __init__(self, slots: int = 2, kind: str | None = None) -> None:
        if not 1 <= slots <= isolation.SLOTS:
            raise ValueError(f"a sandbox has 1 to {isolation.SLOTS} slots, not {slots}")
        kinds = _kinds_from_the_strongest()
        if kind is not None and kind not in (*kinds, isolation.USER, isolation.NAMESPACES):
            raise ValueError(f"sandbox kind {kind!r}: one of {', '.join(kinds)}")
        self._kinds = kinds if kind is None else (kind,)
        self._slots: asyncio.Queue[int] = asyncio.Queue()
        for slot in range(slots):
            self._slots.put_nowait(slot)
        self._server: subprocess.Popen | None = None
        self._lifeline: asyncio.StreamWriter | None = None
        self._facts: dict = {}
        self._scratch = ""
        self._starting = asyncio.Lock()
        self._visible = namespaces.visible_paths()
        self.isolation = NOT_STARTED
        self.restarts = -1  # servers started after the first

    async def __aenter__(self) -> EmbeddedSandbox:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def server_pid(self) -> int | None:
        """None if no server runs."""
        return None if self._server is None or self._server.poll() is not None else self._server.pid

    async def start(self) -> None:
        """Start the server and find the best isolation that really holds. Raises SandboxError if none runs a script."""
        scratch.sweep()
        self._scratch = str(scratch.make())
        os.chmod(self._scratch, 0o711)  # scripts with a user of their own have their folders in it
        refusals: list[str] = []
        try:
            for kind in self._kinds:
                found, reason = await self._probe(kind, refusals)
                if found is not None:
                    self.isolation = found
                    return
                refusals.append(f"{kind}: {reason}")
            raise SandboxError("no kind of isolation can run a script here; " + "; ".join(refusals))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the server and all that it still runs."""
        folder, self._scratch = self._scratch, ""
        async with self._starting:
            await self._stop_server()
        if folder:
            workspace.remove(folder)  # the server has done it, unless it was killed
        self.isolation = NOT_STARTED

    async def execute(self, job: Job) -> Execution:
        """Run one script. Raises ValueError on a job that no sandbox could run; never for what the script does."""
        if not self._scratch:
            raise SandboxError("the sandbox is not started, or is closed")
        client.check(job)
        inputs = job.inputs.resolve()
        inside = [path for path in self._visible if inputs.is_relative_to(path)]
        if inside and self.isolation.files:
            raise ValueError(f"{job.inputs} lies in {inside[0]}, which scripts may read: move the tasks elsewhere")
        waiting = time.monotonic()
        async with self._slot() as slot:
            queued_s = time.monotonic() - waiting
            return replace(await self._run(job, slot, self.isolation.kind, self.isolation), queued_s=queued_s)

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[int]:
        slot = await self._slots.get()
        try:
            yield slot
        finally:
            self._slots.put_nowait(slot)

    async def _run(self, job: Job, slot: int, kind: str, label: Isolation) -> Execution:
        request = client.request_of(job, slot, kind, str(job.inputs.resolve()), self._visible)

        async def once() -> dict:
            await self._ensure_server()
            return await client.ask(self._socket, request, job.into, job.limits.wall_s + client.GRACE_S)

        return await client.execute(job, label, once)

    # ------------------------------------------------------------ the server
    @property
    def _socket(self) -> str:
        return f"{self._scratch}/socket"

    async def _ensure_server(self) -> None:
        async with self._starting:
            if not self._scratch:
                raise SandboxError("the sandbox was closed meanwhile")
            if self._server is None or self._server.poll() is not None:
                await self._stop_server()
                await self._start_server()

    async def _start_server(self) -> None:
        os.makedirs(self._scratch, mode=0o711, exist_ok=True)  # a server that ended in good order took it along
        packages = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
        source = str(Path(mlexpert.__file__).resolve().parents[1])
        command = [sys.executable, "-s", "-P", "-c", server.BOOT, self._socket, self._scratch, source]
        with open(f"{self._scratch}/server.log", "ab", opener=_private) as log:
            self._server = subprocess.Popen(
                [*command, json.dumps(packages)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=server.ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        self.restarts += 1
        running = self._server
        try:
            self._facts, self._lifeline = await client.lifeline(self._socket, _START_S, lambda: running.poll() is None)
        except SandboxError as error:
            said = Path(self._scratch, "server.log")
            tail = said.read_text(errors="replace")[-500:] if said.exists() else ""
            raise SandboxError(f"{error}: {tail}") from error

    async def _stop_server(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None
        if self._server is not None:
            server, self._server = self._server, None
            await asyncio.to_thread(_ended, server)

    # ------------------------------------------------------------ the probe
    async def _probe(self, kind: str, refusals: list[str]) -> tuple[Isolation | None, str]:
        """Attack `kind`; return what held, or why this kind is unusable."""
        try:
            isolation.layers(kind)
            await self._ensure_server()
        except (OSError, SandboxError) as error:
            return None, str(error)
        with tempfile.TemporaryDirectory(dir=self._scratch, ignore_cleanup_errors=True) as folder:
            os.chmod(folder, 0o777)
            Path(folder, "canary").touch(0o666)
            Path(folder, "public").mkdir()
            hidden = [f"{folder}/canary", "/proc/1/root/etc/shadow", *self._source_out_of_view()]
            script = _PROBE.format(hidden=hidden, open=folder, server=self._facts["pid"])
            job = Job(script, Path(folder, "public"), Path(folder), collect=(), limits=replace(Limits(), wall_s=30.0))
            run = await self._run(job, 0, kind, NOT_STARTED)
        if run.status is not ExecStatus.OK:
            return None, run.reason
        broken = json.loads(run.stdout)
        if kind != isolation.PLAIN and (broken["files"] or broken["network"]):
            return None, f"a probe broke through it: {', '.join(name for name, done in broken.items() if done)}"
        return self._label(kind, broken, refusals), ""

    def _source_out_of_view(self) -> list[str]:
        source = str(Path(mlexpert.__file__).resolve())
        return [] if any(source.startswith(path + "/") for path in self._visible) else [source]

    def _label(self, kind: str, broken: dict[str, bool], refusals: list[str]) -> Isolation:
        layers, notes = isolation.layers(kind), list(refusals)
        if kind == isolation.PLAIN:
            notes.insert(0, "NOT a security boundary: scripts run as this user and can read its files")
        elif broken["processes"]:
            notes.append("scripts can signal this user's other processes: Linux before 6.12")
        if self._facts["no_cgroup"]:
            notes.append(f"memory is looked at every 50 ms ({self._facts['no_cgroup']})")
        if not layers.namespaces:
            notes.append("disk use is looked at every 50 ms")
        if layers.landlock and not layers.own_uid:
            notes.append("no shared memory, so no locks of multiprocessing: /dev/shm holds files of this user")
        if not seccomp.available():
            notes.append("no system-call filter on this machine type")
        held = {name: not done for name, done in broken.items()}
        return Isolation(kind, memory=True, cpu=True, disk=True, note="; ".join(notes), **held)


# ---------------------------------------------------------------- folders and processes
def _kinds_from_the_strongest() -> tuple[str, ...]:
    best = isolation.NAMESPACES if os.geteuid() == 0 else isolation.USER
    return best, isolation.LANDLOCK, isolation.PLAIN


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _ended(server: subprocess.Popen) -> None:
    try:
        server.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
