"""The container engine before anything runs on it: can it be reached, has it the image, what did dead owners leave?

Everything that can be wrong with an installation is found here, in seconds, and told in one line with what to do.
Containers say by a label whose they are, so that those of a dead owner can be told from those of a living one.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlexpert.sandbox import owner
from mlexpert.sandbox.api import SandboxError
from mlexpert.sandbox.server import PROTOCOL

if TYPE_CHECKING:  # an optional package: a machine without it still has the other kinds of sandbox
    from docker import DockerClient
    from docker.models.images import Image

OWNER_LABEL, PROTOCOL_LABEL = "mlexpert.owner", "mlexpert.sandbox.protocol"
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_TALK_S = 60  # for one answer of the engine; a busy one is slow
_CONNECTIONS = 128  # kept open; every container needs one as long as it lives
_PING_S = 10.0
_ATTEMPTS = 3
_PACK = "python third_party/sandbox_image/pack.py --tag"


def connect() -> DockerClient:
    """A client of the engine that DOCKER_HOST names. Raises SandboxError if there is none that could be used."""
    try:
        from docker import DockerClient
    except ImportError as error:
        raise SandboxError(f"docker: a Python package is missing ({error}): pip install 'docker>=7.1,<8'") from None
    host = os.environ.get("DOCKER_HOST") or _DEFAULT_HOST
    _knock(host)
    with told(f"the engine at {host} does not work"):
        return DockerClient(base_url=host, version="auto", timeout=_TALK_S, max_pool_size=_CONNECTIONS)


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Whatever goes wrong between here and the engine becomes a SandboxError that begins with `what`."""
    import requests
    from docker.errors import DockerException

    try:
        yield
    except (DockerException, requests.RequestException) as error:
        raise SandboxError(f"docker: {what}: {one_line(error)}") from error


def _knock(host: str) -> None:
    """Whether anybody listens, with the reason if not: the client's own message would hide it among tracebacks."""
    if not host.startswith("unix://"):
        raise SandboxError(
            f"docker: DOCKER_HOST is {host}, which may be another machine, and a sandbox shares folders with its "
            "containers: use an engine on this machine through its unix socket (unix:///path)"
        )
    path = host.removeprefix("unix://")
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.settimeout(_PING_S)
        try:
            knocking.connect(path)
        except FileNotFoundError:
            remedy = "install and start Docker, or set DOCKER_HOST to the socket of a running engine"
            raise SandboxError(f"docker: there is no engine socket at {path}: {remedy}") from None
        except PermissionError:
            remedy = "join the group that owns it (`sudo usermod -aG docker $USER`, then log in again), or run as root"
            raise SandboxError(f"docker: this user may not use the engine socket {path}: {remedy}") from None
        except OSError as error:
            raise SandboxError(f"docker: no engine answers at {path} ({error}): is the daemon running?") from None


def check_image(engine: DockerClient, image: str) -> Image:
    """Raises SandboxError if it is missing, or no image of a sandbox that we can talk to."""
    from docker.errors import ImageNotFound

    with told(f"the engine cannot look for an image named {image!r}"):
        try:
            found_image = engine.images.get(image)
        except ImageNotFound:
            raise SandboxError(f"docker: the engine has no image {image}: make it with `{_PACK} {image}`") from None
    if (found := found_image.labels.get(PROTOCOL_LABEL)) is None:
        raise SandboxError(
            f"docker: {image} is no sandbox image (it has no label {PROTOCOL_LABEL}): make one with `{_PACK} NAME`"
        )
    if found != str(PROTOCOL):
        raise SandboxError(
            f"docker: {image} is for protocol {found} of the sandbox, this program speaks {PROTOCOL}: "
            f"make it again with `{_PACK} {image}`"
        )
    return found_image


def check_runtime(engine: DockerClient, runtime: str) -> None:
    """Raises SandboxError for a runtime that the engine does not have; "" is the engine's own choice."""
    with told("the engine does not tell its runtimes"):
        known = engine.info().get("Runtimes") or {}
    if runtime and runtime not in known:
        raise SandboxError(
            f"docker: the engine knows no runtime {runtime!r}, only {', '.join(sorted(known))}: "
            "add it to the engine's settings (dockerd --add-runtime), or choose one of these"
        )


# ---------------------------------------------------------------- owners
def sweep(engine: DockerClient) -> list[str]:
    """Remove the containers of dead owners; returns their names. An engine may serve more than one machine."""
    swept = []
    for name, mark in owned(engine).items():
        if owner.dead(mark, local=False):
            remove(engine, name)
            swept.append(name)
    return swept


def owned(engine: DockerClient) -> dict[str, str]:
    """All containers of sandboxes: name -> mark of the owner."""
    with told("the engine does not list its containers"):
        found = engine.api.containers(all=True, filters={"label": OWNER_LABEL})
    return {one["Names"][0].lstrip("/"): one["Labels"][OWNER_LABEL] for one in found}


def remove(engine: DockerClient, name: str) -> None:
    """Kill and remove a container, unless it is gone already. Raises SandboxError if the engine cannot."""
    import requests
    from docker.errors import APIError

    for attempt in range(1, _ATTEMPTS + 1):
        with told(f"container {name} cannot be removed"):
            try:
                engine.api.remove_container(name, force=True, v=True)
                return
            except APIError as error:
                if error.status_code in (404, 409):  # it is gone, or removes itself at this moment
                    return
                if attempt == _ATTEMPTS:
                    raise
            except requests.RequestException:  # a busy engine gives up waiting for a kill that then works after all
                if attempt == _ATTEMPTS:
                    raise


def one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:300]
