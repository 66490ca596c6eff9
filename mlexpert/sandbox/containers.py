"""`DockerSandbox`: scripts run in containers, one per slot, each with a warm server that outlives many scripts.

`start` checks the engine and the image, removes what dead owners left, and runs a script that attacks its container.
A container is made for one set of limits, so a job with others gets its slot a new one. Whatever fails between here
and the script, a container that dies, an engine that vanishes, costs the container: the execution is tried once more
in a fresh one and then comes back as SETUP_FAILED.

GPUs are passed on by the engine (NVIDIA Container Toolkit), all that were chosen to every container. They are shared:
no limit holds their memory or time. They need an image with a library that uses them, whose scripts start cold.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlexpert.sandbox import client, container, images, isolation, scratch, server, staging
from mlexpert.sandbox.api import NOT_STARTED, Job, SandboxError
from mlexpert.sandbox.container import Container
from mlexpert.types import ExecStatus, Execution, Isolation, Limits

if TYPE_CHECKING:
    from docker import DockerClient

_START_S = 60.0  # importing the libraries from a cold disk
_ENDING_S = 2.0  # until the engine tells that a container has ended
# Each attempt must fail; printed is which did not.
_PROBE = """
import ctypes, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def succeeds(attempt, *arguments):
    try:
        attempt(*arguments)
    except OSError:
        return False
    return True
def connect():
    with socket.socket() as out:
        out.settimeout(0.3)
        try:
            out.connect(("192.0.2.1", 9))
        except TimeoutError:  # it was let out, nobody answered
            pass
def size(folder):
    info = os.statvfs(folder)
    return info.f_blocks * info.f_frsize
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({{
    "files": any(os.path.exists(path) for path in {hidden!r}) or succeeds(open, os.__file__, "a"),
    "network": succeeds(connect),
    "processes": any(succeeds(os.kill, pid, 0) for pid in (1, {server})) or libc.ptrace(16, 1, 0, 0) == 0,
    "privileges": os.getuid() == 0 or int(status["CapEff"], 16) != 0 or status["NoNewPrivs"].strip() != "1"
        or status["Seccomp"].strip() != "2" or libc.unshare(0x10000000) == 0,
    "disk": any(size(folder) > {disk_bytes} for folder in {writable!r}),
}}))
"""


@dataclass
class _Slot:
    number: int
    container: Container | None = None
    lifeline: asyncio.StreamWriter | None = None
    staged: staging.Signature | None = None


class DockerSandbox:
    """`slots` executions at a time, each with `cpus` processors; more wait their turn.

    Start with `async with`, or `start` and `close`. `runtime` names one of the engine's own, such as runsc; "" leaves
    the choice to the engine. `gpus` are "all", or indices or UUIDs separated by commas. Raises ValueError for others.
    """

    def __init__(
        self,
        slots: int = 2,
        image: str = "mlexpert-sandbox:latest",
        runtime: str = "",
        cpus: float = 1.0,
        gpus: str = "",
    ) -> None:
        if not 1 <= slots <= isolation.SLOTS:
            raise ValueError(f"a sandbox has 1 to {isolation.SLOTS} slots, not {slots}")
        if not re.fullmatch(r"([\w-]+(,[\w-]+)*)?", gpus):
            raise ValueError(f'gpus={gpus!r}: "all", or indices or UUIDs separated by commas, or "" for none')
        self._model = self._pinned = container.Model(image, runtime, cpus, gpus)  # pinned: by the image's id
        self._free: asyncio.Queue[_Slot] = asyncio.Queue()
        self._slots = [_Slot(number) for number in range(slots)]
        for slot in self._slots:
            self._free.put_nowait(slot)
        self._engine: DockerClient | None = None
        self._scratch: Path | None = None
        self._facts: dict = {}
        self.isolation = NOT_STARTED
        self.restarts = 0  # containers that were lost and replaced

    async def __aenter__(self) -> DockerSandbox:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def server_pid(self) -> int | None:
        """The first process of a container, as this machine numbers it; None if there is no container."""
        return next((slot.container.pid for slot in self._slots if slot.container is not None), None)

    async def start(self) -> None:
        """Raises SandboxError, with what to do, if containers cannot be used or do not hold."""
        try:
            labels = await asyncio.to_thread(self._prepare)
            self.isolation = await self._probe(labels)
        except BaseException:
            await self.close()
            raise

    def _prepare(self) -> dict[str, str]:
        self._engine = images.connect()
        image = images.check_image(self._engine, self._model.image)
        images.check_runtime(self._engine, self._model.runtime)
        self._pinned = replace(self._model, image=str(image.id))
        images.sweep(self._engine)
        scratch.sweep()
        self._scratch = scratch.make()
        container.copy_source(self._scratch / "source")
        return dict(image.labels)

    async def close(self) -> None:
        """End all containers. Raises SandboxError if the engine does not remove one."""
        for slot in self._slots:
            if slot.lifeline is not None:
                slot.lifeline.close()
            slot.container = slot.lifeline = slot.staged = None
        self.isolation = NOT_STARTED
        engine, self._engine = self._engine, None
        folder, self._scratch = self._scratch, None
        if engine is not None:
            await asyncio.to_thread(_close, engine, folder)

    async def execute(self, job: Job) -> Execution:
        """Run one script. Raises ValueError on a job that no sandbox could run; never for what the script does."""
        if self._scratch is None:
            raise SandboxError("the sandbox is not started, or is closed")
        client.check(job)
        waiting = time.monotonic()
        slot = await self._free.get()
        try:
            queued_s = time.monotonic() - waiting
            return replace(await self._run(job, slot, self.isolation), queued_s=queued_s)
        finally:
            self._free.put_nowait(slot)

    # ------------------------------------------------------------ one execution
    async def _run(self, job: Job, slot: _Slot, label: Isolation) -> Execution:
        async def once() -> dict:
            try:
                answer = await self._ask(job, slot)
            except (OSError, EOFError, ValueError, SandboxError) as error:
                raise SandboxError(await self._lost(slot, error)) from error
            if "setup_failed" in answer:
                await self._lost(slot, None)
            return answer

        return await client.execute(job, label, once)

    async def _ask(self, job: Job, slot: _Slot) -> dict:
        running = await self._container(slot, container.made_for(job.limits))
        look = await asyncio.to_thread(staging.signature, job.inputs)
        if look != slot.staged:
            slot.staged = None
            await asyncio.to_thread(staging.stage, job.inputs, running.inputs)
            slot.staged = look
        request = client.request_of(job, slot.number, isolation.CONTAINER, container.INPUTS)
        return await client.ask(running.socket, request, job.into, job.limits.wall_s + client.GRACE_S)

    async def _container(self, slot: _Slot, limits: Limits) -> Container:
        """The slot's container, if it lives and was made for these limits, else a new one."""
        if slot.container is not None:
            if slot.container.limits == limits and not slot.container.ended.is_set():
                return slot.container
            self.restarts += slot.container.ended.is_set()
            await self._discard(slot)
        engine, folder = self._engine, self._scratch
        if engine is None or folder is None:
            raise SandboxError("the sandbox was closed meanwhile")
        # If this is cancelled, the container that the thread still makes finds no owner and leaves by itself.
        made = await asyncio.to_thread(container.start, engine, self._pinned, folder, slot.number, limits)
        slot.container = made
        self._facts, slot.lifeline = await client.lifeline(made.socket, _START_S, lambda: not made.ended.is_set())
        if (found := self._facts["protocol"]) != server.PROTOCOL:
            raise SandboxError(f"docker: the server speaks protocol {found}, this program {server.PROTOCOL}")
        await asyncio.to_thread(container.limit_memory, engine, made)
        return made

    async def _lost(self, slot: _Slot, error: Exception | None) -> str:
        """Give up the slot's container; what happened, in one line."""
        lost = slot.container
        if lost is None:
            return str(error)
        fate = "has ended" if await asyncio.to_thread(lost.ended.wait, _ENDING_S) else "was given up"
        await self._discard(slot)
        self.restarts += 1
        what = "the server hung up" if isinstance(error, EOFError) else str(error)
        told = f"docker: {what} ({type(error).__name__}); container {lost.name} {fate}"
        return f"{told}; its last words: {container.last_words(lost)}"

    async def _discard(self, slot: _Slot) -> None:
        if slot.lifeline is not None:
            slot.lifeline.close()
        old, slot.container, slot.lifeline, slot.staged = slot.container, None, None, None
        if old is not None and self._engine is not None:
            await asyncio.to_thread(images.remove, self._engine, old.name)

    # ------------------------------------------------------------ the probe
    async def _probe(self, labels: dict[str, str]) -> Isolation:
        """Attack a container; what held. Raises SandboxError if something that must hold does not."""
        limits = replace(Limits(), wall_s=30.0)
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            into, public = Path(folder, "into"), Path(folder, "public")
            into.mkdir()
            public.mkdir()
            hidden = [folder, "/var/run/docker.sock", "/etc/shadow", f"{container.OWNER}/socket"]
            script = _PROBE.format(
                hidden=hidden, server=2, disk_bytes=limits.disk_mb << 20, writable=container.WRITABLE
            )
            job = Job(script, public, into, collect=(), limits=limits)
            run = await self._run(job, self._slots[0], NOT_STARTED)
        if run.status is not ExecStatus.OK:
            raise SandboxError(f"docker: no script runs in a container: {run.reason}")
        if broken := [name for name, done in json.loads(run.stdout).items() if done]:
            raise SandboxError(f"docker: a probe broke through its container: {', '.join(broken)}")
        note = f"image {self._model.image} (Python {labels.get('mlexpert.sandbox.python', 'unknown')}); "
        note += f"runtime {self._model.runtime}" if self._model.runtime else "scripts share the host's kernel"
        note += f"; GPUs {self._model.gpus}, whose memory and time nothing limits" if self._model.gpus else ""
        return Isolation("docker", True, True, True, True, True, True, note)


def _close(engine: DockerClient, folder: Path | None) -> None:
    try:
        if folder is not None:
            for name in images.owned(engine):
                if name.startswith(f"{folder.name}-"):
                    images.remove(engine, name)
    finally:
        engine.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
