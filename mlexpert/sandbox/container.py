"""One container with a warm server in it, made for one set of limits: its options, its start, its last words, its end.

The container is confined from outside by the engine (no network, read-only root, few capabilities, own call filter,
memory, processes, size of every writable file system); inside, the server gives each script a user of its own. Nothing
of the host is visible in it but three folders: the source of the server (read-only), the staged public files
(read-only), and the folder of the socket, which only root inside may enter. It ends when its owner does, because the
server leaves with its lifeline, and removes itself.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import os
import secrets
import shutil
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlexpert.sandbox import images, isolation, namespaces, owner, seccomp, server
from mlexpert.sandbox.api import SandboxError
from mlexpert.types import Limits

if TYPE_CHECKING:
    from docker import DockerClient

SOURCE, INPUTS, OWNER, SCRATCH = "/opt/mlexpert", "/inputs", "/run/owner", "/run/server"
WRITABLE = ("/workspace", "/tmp", "/dev/shm")
_SPARE_MB = 32  # of memory, for the processes that watch a script
_SERVER_MB = 1024  # while it starts; then what it really takes is measured
_SPARE_PIDS = 32  # the server, those that watch, those that kill
_OPEN_FILES = 4096
_MEGABYTE = 1 << 20
_NO_MEMORY = "run it on a machine, or as a user, that has control groups with the memory controller"


@dataclass(frozen=True)
class Model:
    """What all containers of one sandbox are made after."""

    image: str
    runtime: str = ""  # one of the engine's; "" is its own choice
    cpus: float = 1.0
    gpus: str = ""  # "all", or indices or UUIDs separated by commas


@dataclass(frozen=True)
class Container:
    name: str
    limits: Limits  # as `made_for` gives them
    folder: Path  # on the host; holds the folders that it sees
    pid: int = 0  # of its first process, as the host numbers it
    words: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=20))
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def socket(self) -> str:
        return f"{self.folder}/owner/socket"

    @property
    def inputs(self) -> Path:
        return self.folder / "inputs"


def made_for(limits: Limits) -> Limits:
    """The limits that a container is made for; the server holds the others, anew for every script."""
    return replace(limits, wall_s=0.0, cpu_s=0.0, output_kb=0)


def copy_source(folder: Path) -> None:
    """The server's source where every user may read it: rights in a checkout differ, and it may change during a run."""
    here = Path(__file__).parent
    folder.mkdir(mode=0o755)
    for path in here.glob("*.py"):
        shutil.copyfile(path, folder / path.name)
        os.chmod(folder / path.name, 0o644)


# ---------------------------------------------------------------- starting
def start(engine: DockerClient, model: Model, scratch: Path, slot: int, limits: Limits) -> Container:
    """A started container, whose server may still be importing. Raises SandboxError, and then leaves none."""
    made = Container(f"{scratch.name}-{slot}-{secrets.token_hex(4)}", limits, _folder(scratch, slot))
    try:
        with images.told("a container cannot be started"):
            options = _options(made, scratch / "source", model)
            container = engine.containers.create(model.image, _command(), **options)
            stream = container.attach(stream=True, logs=True)
            threading.Thread(target=_listen, args=(stream, made), daemon=True, name=made.name).start()
            container.start()
        with images.told("a container ended at once"):
            container.reload()
        return replace(made, pid=container.attrs["State"]["Pid"])
    except SandboxError as error:
        images.remove(engine, made.name)
        raise SandboxError(f"{error}; its last words: {last_words(made)}") from error


def _folder(scratch: Path, slot: int) -> Path:
    """What a container sees of the host, empty."""
    folder = scratch / f"slot{slot}"
    shutil.rmtree(folder, ignore_errors=True)
    for part, mode in ((folder, 0o700), (folder / "owner", 0o700), (folder / "inputs", 0o755)):
        part.mkdir()
        part.chmod(mode)
    return folder


def _command() -> list[str]:
    return ["python3", "-s", "-P", "-c", server.BOOT, f"{OWNER}/socket", SCRATCH, SOURCE, "[]", str(_first_uid())]


@functools.cache
def _first_uid() -> int:
    """Claimed out here, once for all containers of this process: a uid inside is the same user as on the host."""
    return isolation.claim_uids()


def _options(container: Container, source: Path, model: Model) -> dict[str, Any]:
    from docker.types import DeviceRequest, LogConfig, Ulimit

    limits, memory = container.limits, f"{_SERVER_MB + memory_mb(container.limits)}m"
    open_files = max(_OPEN_FILES, limits.open_files)
    files = f"size={limits.disk_mb}m,mode=1777,nr_inodes={namespaces.INODES},nosuid,nodev,exec"
    return {
        "name": container.name,
        "labels": {images.OWNER_LABEL: owner.mark()},
        "user": "0:0",
        "environment": server.ENVIRONMENT,
        "working_dir": "/",
        "hostname": "sandbox",
        "runtime": model.runtime or None,
        "init": True,
        "auto_remove": True,
        "network_mode": "none",
        "ipc_mode": "private",
        "read_only": True,
        "tmpfs": dict.fromkeys(WRITABLE, files) | {"/run": "size=1m,mode=755,nosuid,nodev"},
        "volumes": {
            str(source): {"bind": f"{SOURCE}/mlexpert/sandbox", "mode": "ro"},
            str(container.inputs): {"bind": INPUTS, "mode": "ro"},
            f"{container.folder}/owner": {"bind": OWNER, "mode": "rw"},
        },
        "cap_drop": ["ALL"],
        "cap_add": ["SETUID", "SETGID", "KILL"],  # to become a script's user, and to end its processes
        "security_opt": ["no-new-privileges", f"seccomp={json.dumps(seccomp.docker_profile())}"],
        "mem_limit": memory,
        "memswap_limit": memory,  # memory and swap together: none of it may be swap
        "pids_limit": limits.pids + _SPARE_PIDS,
        "nano_cpus": int(model.cpus * 1e9),
        "device_requests": [DeviceRequest(**request) for request in _devices(model.gpus)],
        # Core files of at most 1 byte: 0 would still feed a crash handler of the host.
        "ulimits": [Ulimit(name="core", soft=1, hard=1), Ulimit(name="nofile", soft=open_files, hard=open_files)],
        "log_config": LogConfig(type="json-file", config={"max-size": "1m", "max-file": "1"}),
    }


def _devices(gpus: str) -> list[dict[str, Any]]:
    """What the engine is asked for; it brings devices and driver libraries along (NVIDIA Container Toolkit)."""
    chosen = {"count": -1} if gpus == "all" else {"device_ids": gpus.split(",")}
    return [{"driver": "nvidia", "capabilities": [["gpu", "compute", "utility"]], **chosen}] if gpus else []


def memory_mb(limits: Limits) -> int:
    """Above what the server takes. Files alone can never fill it, else those that watch would have no room to act."""
    return max(limits.memory_mb, len(WRITABLE) * limits.disk_mb + _SPARE_MB) + _SPARE_MB


def _listen(stream: Any, container: Container) -> None:
    """Until it ends: keep the last that the server said. The engine's records go away together with the container."""
    with contextlib.suppress(Exception):  # the connection may break in many ways, all of which mean the same
        for data in stream:
            container.words.append(data[-1000:].decode("utf-8", "replace"))
    container.ended.set()


def limit_memory(engine: DockerClient, container: Container) -> None:
    """Hold a ready container to what its server takes now, plus the script's limit. Raises SandboxError."""
    with images.told("the memory of a container cannot be limited"):
        used = engine.api.stats(container.name, stream=False, one_shot=True)["memory_stats"].get("stats", {})
        kept = used.get("anon", used.get("rss"))  # control groups of version 2, of version 1
        if kept is None:
            raise SandboxError(f"docker: the engine does not count the memory of containers: {_NO_MEMORY}")
        limit = kept + memory_mb(container.limits) * _MEGABYTE
        engine.api.update_container(container.name, mem_limit=limit, memswap_limit=limit)


def last_words(container: Container) -> str:
    """What the server said last, in one line."""
    return " ".join("".join(container.words).split())[-300:] or "it said nothing"
