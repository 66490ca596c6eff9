"""One request to a server over its socket, and what its answer means as an `Execution`.

    ready   wait until the server listens, then hold its lifeline: closing it ends the server and all it started
    ask     one request, one answer; leaving early closes the connection, which kills the execution
    execute ask, once more if the sandbox failed, and read the answer

The server of a container is trusted with nothing but the script: it names no path of the host, and every length that it
announces is bounded here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from errno import EAGAIN, EDQUOT, EFBIG, ENOSPC
from pathlib import Path

from mlexpert.sandbox import wire, workspace
from mlexpert.sandbox.api import Job, SandboxError
from mlexpert.types import ExecStatus, Execution, Isolation

GRACE_S = 30.0  # beyond the wall limit: set-up, killing, collecting
_ANSWER_BYTES = 256 << 20  # more than any two captured streams, escaped
_MESSAGE_BYTES = 1 << 20
_PAUSE_S = 0.02


# ---------------------------------------------------------------- jobs
def check(job: Job) -> None:
    """Raises ValueError, saying what to change, for a job that no sandbox could run."""
    for folder in (job.inputs, job.into):
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder: a job needs existing folders for inputs and collected files")
    if not os.access(job.into, os.W_OK | os.X_OK):
        raise ValueError(f"{job.into} cannot be written to: collect into a folder that you may write to")
    if bad := [name for name in job.collect if "/" in name or "\0" in name or name in ("", ".", "..")]:
        raise ValueError(f"collect takes plain file names, not {bad}")
    if (job.inputs / "script.py").exists():
        raise ValueError(f"{job.inputs} holds a file script.py, which is the script's own name: give it another")
    if links := sorted(entry.name for entry in os.scandir(job.inputs) if entry.is_symlink()):
        raise ValueError(
            f"{job.inputs} holds the links {links}, which may lead to private files: put the files themselves there"
        )


def request_of(job: Job, slot: int, kind: str, inputs: str, visible: Sequence[str] = ()) -> dict:
    """`inputs` is the public folder as the server sees it; `visible` what else a script may read."""
    return {
        "op": "execute",
        "script": job.script,
        "inputs": inputs,
        "collect": list(job.collect),
        "limits": asdict(job.limits),
        "seed": job.seed,
        "slot": slot,
        "kind": kind,
        "visible": list(visible),
    }


# ---------------------------------------------------------------- the socket
async def lifeline(
    socket_path: str, patience_s: float, alive: Callable[[], bool] = lambda: True
) -> tuple[dict, asyncio.StreamWriter]:
    """Facts about the server, and what keeps it alive until it is closed. Raises SandboxError if it does not listen."""
    try:
        async with asyncio.timeout(patience_s):
            while alive():
                with contextlib.suppress(FileNotFoundError, ConnectionError):
                    reader, writer = await wire.connect(socket_path)
                    writer.write(wire.pack({"op": "lifeline"}))
                    return await wire.read(reader, _MESSAGE_BYTES), writer
                await asyncio.sleep(_PAUSE_S)
    except (TimeoutError, EOFError) as error:
        raise SandboxError(f"the sandbox server did not answer within {patience_s:g} s") from error
    raise SandboxError("the sandbox server ended before it listened")


async def ask(socket_path: str, request: dict, into: Path, patience_s: float) -> dict:
    """The server's answer, its files copied to `into`. Raises OSError, EOFError or ValueError if none comes."""
    try:
        async with asyncio.timeout(patience_s):
            reader, writer = await wire.connect(socket_path)
            try:
                writer.write(wire.pack(request))
                await writer.drain()
                answer = await wire.read(reader, _ANSWER_BYTES)
                announced = answer.get("files", [])
                answer["files"] = [await _save(reader, name, size, request, into) for name, size in announced]
                return answer
            finally:
                writer.close()  # if an answer is still due, the supervisor takes this as: kill it
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {patience_s:g} s") from error


async def _save(reader: asyncio.StreamReader, name: str, size: int, request: dict, into: Path) -> str:
    if name not in request["collect"] or not 0 <= size <= workspace.COLLECT_MB << 20:
        raise ConnectionError(f"the server offers {name!r} of {size} bytes, which nobody asked for")
    target = os.open(into / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    try:
        with open(target, "wb") as file:
            while size:
                data = await reader.read(min(size, 1 << 20))
                if not data:
                    raise ConnectionError("the server left in the middle of a file")
                file.write(data)
                size -= len(data)
    except BaseException as error:
        (into / name).unlink(missing_ok=True)  # never half a file
        if isinstance(error, OSError) and error.errno:
            raise OSError(error.errno, f"{error.strerror}, while copying {name} to {into}") from error
        raise
    return name


# ---------------------------------------------------------------- answers become executions
async def execute(job: Job, label: Isolation, once: Callable[[], Awaitable[dict]]) -> Execution:
    """What `once` answers as an execution; SETUP_FAILED with its reason after the sandbox has failed twice."""
    reason = ""
    for _ in range(2):
        try:
            answer = await once()
            if "setup_failed" not in answer:
                return execution(answer, job, label)
            reason = answer["setup_failed"]
        except (OSError, EOFError, ValueError, SandboxError) as error:
            reason = f"{type(error).__name__}: {error}"
    return setup_failed(reason, label)


def setup_failed(reason: str, label: Isolation) -> Execution:
    return Execution(ExecStatus.SETUP_FAILED, None, None, "", "", "", "", False, 0.0, 0.0, 0.0, label, reason=reason)


def execution(answer: dict, job: Job, label: Isolation) -> Execution:
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
        reason=_reason(answer, status, job),
        oom_kills=answer["oom_kills"],
        stdout_bytes=answer["stdout_bytes"],
        stderr_bytes=answer["stderr_bytes"],
    )


_STOPPED = {
    "wall": ExecStatus.TIMEOUT,
    "cpu": ExecStatus.TIMEOUT,
    "memory": ExecStatus.OOM,
    "disk": ExecStatus.DISK,
    "pids": ExecStatus.PIDS,
}


def _status(answer: dict) -> ExecStatus:
    report, code = answer["report"], answer["code"]
    if answer["stopped"]:
        return _STOPPED[answer["stopped"]]
    if code == 0:
        return ExecStatus.OK
    if code == -signal.SIGXCPU:
        return ExecStatus.TIMEOUT
    if report.get("memory") or (code == -signal.SIGKILL and answer["oom_kills"]):
        return ExecStatus.OOM
    if code < 0:
        return ExecStatus.KILLED
    if report.get("errno") in (ENOSPC, EFBIG, EDQUOT):
        return ExecStatus.DISK
    if report.get("errno") == EAGAIN or report.get("message") == "can't start new thread":
        return ExecStatus.PIDS
    return ExecStatus.ERROR


def _reason(answer: dict, status: ExecStatus, job: Job) -> str:
    """One line: the limit and its value, the signal, or the exception; and how many processes died for memory."""
    kills, limit = answer["oom_kills"], f"memory limit of {job.limits.memory_mb} MB"
    if status is ExecStatus.OOM:
        return limit + (", all processes together" if kills else "")
    ended = "a process of the script was" if kills == 1 else f"{kills} processes of the script were"
    return "; ".join(
        part for part in (_cause(answer, status, job), f"{limit}: {ended} killed" if kills else "") if part
    )


def _cause(answer: dict, status: ExecStatus, job: Job) -> str:
    limits, report = job.limits, answer["report"]
    match status:
        case ExecStatus.TIMEOUT if answer["stopped"] == "wall":
            return f"wall limit of {limits.wall_s:g} s"
        case ExecStatus.TIMEOUT:
            return f"CPU limit of {limits.cpu_s:g} s, all processes together"
        case ExecStatus.PIDS:
            return f"limit of {limits.pids} processes and threads"
        case ExecStatus.DISK:
            return f"disk limit of {limits.disk_mb} MB"
        case ExecStatus.KILLED:
            return _signal_text(-answer["code"])
        case ExecStatus.ERROR if report:
            return _printable(f"{report['exception']}: {report['message']}".splitlines()[0])
        case ExecStatus.ERROR:
            return f"exit code {answer['code']}"
    return ""


def _printable(line: str) -> str:
    return "".join(character if character.isprintable() else " " for character in line)


def _signal_text(number: int) -> str:
    hint = " (memory mapped from a file system that is full: /dev/shm, /tmp or the workspace)"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "a real-time signal"
    return f"signal {number}, {name}" + (hint if number == signal.SIGBUS else "")
