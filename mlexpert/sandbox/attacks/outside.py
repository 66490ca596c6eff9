"""What the owner sees from outside: secrets and doors that it plants, and whether anything of an execution remains.

Nothing here asks the sandbox: it reads /proc, the mount table and the file system as the owner's user sees them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlexpert.sandbox import cgroup, owner, processes, scratch

_PLANTED = "mlexpert-attacked"
INPUTS = {"train.csv": "id,target\n1,0\n2,1\n", "folder/deep.txt": "deep"}


@dataclass(frozen=True)
class Surroundings:
    """A folder that no script may see, a secret in many places, doors at which nobody may knock."""

    folder: Path
    secret: str
    bystander: subprocess.Popen
    tcp: socket.socket
    udp: socket.socket
    abstract: socket.socket
    named: socket.socket

    @property
    def inputs(self) -> Path:
        return self.folder / "public"

    def fill_in(self, script: str) -> str:
        """The places that an attacker who knows this machine would name."""
        for word, value in (
            ("@FOLDER@", self.folder),
            ("@PID@", self.bystander.pid),
            ("@PORT@", self.tcp.getsockname()[1]),
            ("@UDP@", self.udp.getsockname()[1]),
            ("@ABSTRACT@", self.abstract.getsockname()[1:].decode()),
        ):
            script = script.replace(word, str(value))
        return script


@contextlib.contextmanager
def planted() -> Iterator[Surroundings]:
    """Enter this before a sandbox starts: a part of the secret lies in the environment that it might inherit."""
    _sweep()
    secret, name = f"planted-secret-{secrets.token_hex(8)}", f"{_PLANTED}-{owner.mark()}-"
    folder = Path(tempfile.mkdtemp(prefix=name))
    loose = [Path(place, f"{name}{secrets.token_hex(4)}.txt") for place in _open_to_all()]
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(lambda: [path.unlink(missing_ok=True) for path in loose])
        folder.chmod(0o755)
        _write(folder, secret, loose)
        os.environ["MLEXPERT_PLANTED"] = secret
        stack.callback(os.environ.pop, "MLEXPERT_PLANTED", None)
        bystander = stack.enter_context(_bystander(folder, secret))
        doors = [stack.enter_context(door) for door in _doors(folder)]
        yield Surroundings(folder, secret, bystander, *doors)


def _sweep() -> None:
    """Remove what owners that were killed have planted, as far as our rights go."""
    for place in _open_to_all():
        for path in Path(place).glob(f"{_PLANTED}-*"):
            if owner.dead(owner.named(_PLANTED, path.name)):
                with contextlib.suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _open_to_all() -> list[str]:
    return [place for place in (tempfile.gettempdir(), "/dev/shm") if os.access(place, os.W_OK)]


def _write(folder: Path, secret: str, loose: list[Path]) -> None:
    for path in (folder / "answers.csv", *loose):
        path.write_text(f"id,target\n3,{secret}\n")
        path.chmod(0o644)
    for name, text in INPUTS.items():
        path = folder / "public" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@contextlib.contextmanager
def _bystander(folder: Path, secret: str) -> Iterator[subprocess.Popen]:
    """A process of the same user with the secret in its arguments, environment and memory; it must live on."""
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", secret]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"SECRET": secret}, cwd=folder
    )
    assert process.stdin and process.stdout
    process.stdout.readline()
    try:
        yield process
    finally:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()


def _doors(folder: Path) -> list[socket.socket]:
    made = []
    for family, kind, address in (
        (socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),
        (socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0)),
        (socket.AF_UNIX, socket.SOCK_STREAM, f"\0mlexpert-{secrets.token_hex(8)}"),
        (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "socket")),
    ):
        door = socket.socket(family, kind)
        door.bind(address)
        door.setblocking(False)
        if kind == socket.SOCK_STREAM:
            door.listen()
        made.append(door)
    (folder / "socket").chmod(0o777)
    return made


# ---------------------------------------------------------------- looking
def disturbed(around: Surroundings) -> str:
    """What of the surroundings is not as it was planted; "" if all is. Visitors are sent away."""
    if around.bystander.poll() is not None:
        return f"a process beside the sandbox was ended ({around.bystander.returncode})"
    for name, door in (("tcp", around.tcp), ("abstract", around.abstract), ("named", around.named)):
        if came := list(_visitors(door)):
            return f"somebody came to the owner's {name} socket: {came[0]}"
    with contextlib.suppress(BlockingIOError):
        return f"the owner received {around.udp.recv(100)!r}"
    found = {str(p.relative_to(around.inputs)): p.read_text() for p in around.inputs.rglob("*") if p.is_file()}
    return "" if found == INPUTS else f"the public files are now {found}"


def _visitors(door: socket.socket) -> Iterator[str]:
    with contextlib.suppress(BlockingIOError):
        while True:
            visitor, address = door.accept()
            with visitor:
                if visitor.family == socket.AF_UNIX:
                    pid, uid, _ = struct.unpack("3i", visitor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                    address = f"process {pid} of user {uid}"
            yield str(address)


@dataclass(frozen=True)
class Trace:
    """What executions may leave behind. Two of them are compared, so only what is more counts."""

    processes: Counter[str]  # names, below the server
    mounts: Counter[str]
    folders: Counter[str]
    groups: Counter[str]
    files: Counter[str]  # open in this process

    def beyond(self, before: Trace) -> str:
        """What is here and was not `before`; "" if nothing."""
        for name, now in vars(self).items():
            if added := now - getattr(before, name):
                return f"{name} left behind: {', '.join(sorted(added)[:5])}"
        return ""


def trace(server_pid: int | None) -> Trace:
    below = processes.below(server_pid) if server_pid else []
    return Trace(
        processes=Counter(process.name for process in below if process.living),
        mounts=Counter(line.split()[4] for line in _lines("/proc/self/mountinfo") if scratch.PREFIX in line),
        folders=Counter(_scratch_entries()),
        groups=Counter(_orphaned_groups()),
        files=Counter(_open_files()),
    )


def _open_files() -> Iterator[str]:
    """What they lead to, without the numbers that differ from time to time."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor
            yield os.readlink(f"/proc/self/fd/{fd}").split(":[")[0]


def _orphaned_groups() -> Iterator[str]:
    """Control groups of supervisors that have ended."""
    for folder, groups, _ in os.walk("/sys/fs/cgroup"):
        for name in groups:
            if owner.dead(cgroup.owner_of(name)):
                yield f"{folder}/{name}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text(errors="replace").splitlines()


def _scratch_entries() -> Iterator[str]:
    """All that lies in this process's scratch folders."""
    for folder in scratch.mine():
        yield from map(str, folder.rglob("*"))
