"""`WarmSandbox`: runs scripts on a server that has already imported the scientific stack, isolated as well as possible.

`start` tries the kinds of isolation in turn by running one script that attacks it, and keeps the first whose answers
are right; what is really enforced is in `isolation` and in every `Execution`. An execution that the sandbox itself
fails is tried once more, on a fresh server if the old one died, and then comes back as SETUP_FAILED.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from errno import EAGAIN, EDQUOT, EFBIG, ENOSPC
from pathlib import Path

import mlexpert
from mlexpert.sandbox import isolation, seccomp
from mlexpert.sandbox.api import Job
from mlexpert.types import ExecStatus, Execution, Isolation, Limits

_START_S = 120.0  # importing the libraries from a cold disk
_GRACE_S = 30.0  # beyond the wall limit: set-up, killing, collecting
_BOOT = """
import json, sys
packages, source = json.loads(sys.argv[3])
library = [*sys.path, *(p for p in packages if p not in sys.path)]
sys.path[:] = [*library, source]
from mlexpert.sandbox.server import main
main(int(sys.argv[1]), sys.argv[2], library)
"""
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    # One thread, and one that sleeps while it waits: spinning threads of concurrent scripts turn 0.1 s into a minute.
    "OMP_WAIT_POLICY": "passive",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "LOKY_MAX_CPU_COUNT": "1",
    "MPLCONFIGDIR": "/tmp",
}
_PROBE = """
import os, socket, sys
hidden = sys.argv[0] == "/workspace/script.py" and not any(os.path.exists(p) for p in {hidden!r})
try:
    socket.create_connection(("192.0.2.1", 9), timeout=0.2)
    offline = False
except TimeoutError:
    offline = False
except OSError:
    offline = True
print(hidden, offline, os.getpid() < 10)
"""


class SandboxError(RuntimeError):
    """The sandbox cannot run at all on this machine; the text says why."""


class WarmSandbox:
    """`slots` executions at a time; more wait their turn. Start with `async with`, or `start` and `close`."""

    def __init__(self, slots: int = 2, kinds: tuple[str, ...] | None = None) -> None:
        if slots < 1:
            raise ValueError(f"a sandbox needs at least 1 slot, not {slots}")
        best = isolation.NAMESPACES if os.geteuid() == 0 else isolation.USER
        self._kinds = kinds or (best, isolation.PLAIN)
        self._slots: asyncio.Queue[int] = asyncio.Queue()
        for slot in range(slots):
            self._slots.put_nowait(slot)
        self._server: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self._scratch = ""
        self._starting = asyncio.Lock()
        self._visible = isolation.visible_paths()
        self.isolation = Isolation("none", False, False, False, False, False, False, "not started")
        self.restarts = -1  # servers started after the first

    async def __aenter__(self) -> WarmSandbox:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the server and find the best isolation that really holds. Raises SandboxError if none runs a script."""
        self._scratch = tempfile.mkdtemp(prefix="mlexpert-sandbox-")
        refusals: list[str] = []
        for kind in self._kinds:
            found, reason = await self._probe(kind, refusals)
            if found is not None:
                self.isolation = found
                return
            refusals.append(f"{kind}: {reason}")
        await self.close()
        raise SandboxError("no kind of isolation can run a script here; " + "; ".join(refusals))

    async def close(self) -> None:
        self._stop_server()
        if self._scratch:
            shutil.rmtree(self._scratch)
            self._scratch = ""

    async def execute(self, job: Job) -> Execution:
        """Run one script. Raises ValueError on a job that no sandbox could run; never for what the script does."""
        if not self._scratch:
            raise SandboxError("the sandbox is not started, or is closed")
        self._check(job)
        slot = await self._slots.get()
        try:
            return await self._attempts(job, slot, self.isolation.kind)
        finally:
            self._slots.put_nowait(slot)

    def _check(self, job: Job) -> None:
        for folder in (job.inputs, job.into):
            if not folder.is_dir():
                raise ValueError(
                    f"{folder} is not a folder: a job needs existing folders for inputs and collected files"
                )
        if bad := [name for name in job.collect if "/" in name or name in ("", ".", "..")]:
            raise ValueError(f"collect takes plain file names, not {bad}")
        inside = [p for p in self._visible if job.inputs.resolve().is_relative_to(p)]
        if inside and self.isolation.files:
            raise ValueError(f"{job.inputs} lies in {inside[0]}, which scripts may read: move the tasks elsewhere")

    async def _attempts(self, job: Job, slot: int, kind: str) -> Execution:
        reason = ""
        for _ in range(2):
            try:
                answer = await self._ask(job, slot, kind)
                if "setup_failed" not in answer:
                    return _execution(answer, job, self.isolation)
                reason = answer["setup_failed"]
            except (OSError, EOFError, TimeoutError, SandboxError) as error:
                reason = f"{type(error).__name__}: {error}"
        return _setup_failed(reason, self.isolation)

    async def _ask(self, job: Job, slot: int, kind: str) -> dict:
        await self._ensure_server()
        assert self._control is not None
        here, there = socket.socketpair()
        with there:
            socket.send_fds(self._control, [b"x"], [there.fileno()])
        reader, writer = await asyncio.open_connection(sock=here)
        try:
            request = {
                "script": job.script,
                "inputs": str(job.inputs.resolve()),
                "into": str(job.into.resolve()),
                "collect": list(job.collect),
                "limits": asdict(job.limits),
                "seed": job.seed,
                "slot": slot,
                "kind": kind,
                "visible": self._visible,
            }
            body = json.dumps(request).encode()
            writer.write(struct.pack("!Q", len(body)) + body)
            await writer.drain()
            return await asyncio.wait_for(_receive(reader), job.limits.wall_s + _GRACE_S)
        finally:
            writer.close()  # if an answer is still due, the supervisor takes this as: kill it

    # ------------------------------------------------------------ the server
    async def _ensure_server(self) -> None:
        async with self._starting:
            if self._server is None or self._server.poll() is not None:
                self._stop_server()
                await self._start_server()

    async def _start_server(self) -> None:
        ours, theirs = socket.socketpair()
        packages = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
        source = str(Path(mlexpert.__file__).resolve().parents[1])
        with theirs, open(f"{self._scratch}/server.log", "ab") as log:
            command = [sys.executable, "-s", "-P", "-c", _BOOT, str(theirs.fileno()), self._scratch]
            self._server = subprocess.Popen(
                [*command, json.dumps([packages, source])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_ENVIRONMENT,
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.restarts += 1
        self._control = ours
        ours.setblocking(False)
        ready = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(ours, 16), _START_S)
        if ready != b"ready":
            log_tail = Path(self._scratch, "server.log").read_text(errors="replace")[-500:]
            raise SandboxError(f"the sandbox server does not start: {log_tail}")

    def _stop_server(self) -> None:
        if self._control is not None:
            self._control.close()  # the server leaves; its supervisors die with it, and their scripts with them
            self._control = None
        if self._server is not None:
            try:
                self._server.wait(2.0)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None

    async def _probe(self, kind: str, refusals: list[str]) -> tuple[Isolation | None, str]:
        """Run the attack of `_PROBE` under `kind`; return what held, or why this kind is unusable."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            script = _PROBE.format(hidden=[folder, str(Path(mlexpert.__file__).resolve()), "/proc/1/root/etc/shadow"])
            job = Job(script, Path(folder), Path(folder), collect=(), limits=replace(Limits(), wall_s=30.0))
            run = await self._attempts(job, 0, kind)
        if run.status is not ExecStatus.OK:
            return None, (run.stderr.strip().splitlines() or [run.status])[-1]
        hidden, offline, own_pids = (word == "True" for word in run.stdout.split())
        if kind != isolation.PLAIN:
            if not (hidden and offline and own_pids):
                return None, f"a probe saw through it (files hidden {hidden}, offline {offline}, pids {own_pids})"
            note = "" if seccomp.available() else "no system-call filter on this machine type"
            return Isolation(kind, True, True, True, True, True, True, note), ""
        note = "; ".join(["NOT a security boundary: scripts run as this user and can read its files", *refusals])
        return Isolation(kind, False, offline, False, True, True, False, note), ""


async def _receive(reader: asyncio.StreamReader) -> dict:
    (length,) = struct.unpack("!Q", await reader.readexactly(8))
    return json.loads(await reader.readexactly(length))


# ---------------------------------------------------------------- answers become executions
def _status(answer: dict) -> ExecStatus:
    report, code = answer["report"], answer["code"]
    if answer["timed_out"] or code == -signal.SIGXCPU:
        return ExecStatus.TIMEOUT
    if answer["out_of_memory"]:
        return ExecStatus.OOM
    if code == 0:
        return ExecStatus.OK
    if code < 0:
        return ExecStatus.KILLED
    if report.get("memory"):
        return ExecStatus.OOM
    if report.get("errno") in (ENOSPC, EFBIG, EDQUOT):
        return ExecStatus.DISK
    if report.get("errno") == EAGAIN or report.get("message") == "can't start new thread":
        return ExecStatus.PIDS
    return ExecStatus.ERROR


def _execution(answer: dict, job: Job, label: Isolation) -> Execution:
    code, status = answer["code"], _status(answer)
    failed = status is not ExecStatus.OK
    refused = "".join(f"\n[sandbox] {name} was not collected: {why}" for name, why in answer["refused"].items())
    return Execution(
        status=status,
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        exception=answer["report"].get("exception", "") if failed else "",
        message=answer["report"].get("message", "") if failed else "",
        stdout=answer["stdout"],
        stderr=answer["stderr"] + refused,
        truncated=answer["truncated"],
        wall_s=answer["wall_s"],
        cpu_s=answer["cpu_s"],
        peak_mb=answer["peak_mb"],
        isolation=label,
        files={name: job.into / name for name in answer["files"]},
    )


def _setup_failed(reason: str, label: Isolation) -> Execution:
    return Execution(ExecStatus.SETUP_FAILED, None, None, "", "", "", reason, False, 0.0, 0.0, 0.0, label)
