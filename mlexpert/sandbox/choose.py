"""Which sandbox a run gets: the one it names, or the strongest that really works here, and never one below its floor.

    docker > namespaces (as root) | user (anyone) > landlock > plain

A kind works if it can be opened and its probe holds. A run whose floor nothing reaches does not start.
"""

from __future__ import annotations

from mlexpert.sandbox.api import Sandbox, SandboxError
from mlexpert.sandbox.containers import DockerSandbox
from mlexpert.sandbox.embedded import EmbeddedSandbox
from mlexpert.sandbox.kinds import AUTO, STRENGTH

_REMEDY = (
    "Install a container engine and make the image (third_party/sandbox_image), allow user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0), or accept less "
    "with --config.sandbox.floor"
)


async def started(
    slots: int,
    kind: str = AUTO,
    floor: str = "landlock",
    image: str = "mlexpert-sandbox:latest",
    runtime: str = "",
    gpus: str = "",
) -> Sandbox:
    """A sandbox that is ready; the caller closes it. Only containers get GPUs, so `auto` with GPUs means docker.

    Raises ValueError for an unknown kind, and SandboxError if the kind cannot be had, or nothing at or above the floor.
    """
    kind = "docker" if gpus and kind == AUTO else kind
    _check(kind, floor, gpus)
    refusals: list[str] = []
    for candidate in (DockerSandbox(slots, image, runtime), EmbeddedSandbox(slots)) if kind == AUTO else ():
        try:
            await candidate.start()
        except SandboxError as error:
            refusals.append(str(error))
            continue
        if STRENGTH[candidate.isolation.kind] >= STRENGTH[floor]:
            return candidate
        refusals.append(f"{candidate.isolation.kind} is below the floor ({candidate.isolation.note})")
        await candidate.close()
    if kind == AUTO:
        raise SandboxError(f"no sandbox at or above the floor {floor!r}: {'; '.join(refusals)}. {_REMEDY}")
    sandbox = of_kind(kind, slots, image, runtime, gpus)
    await sandbox.start()
    return sandbox


def of_kind(kind: str, slots: int, image: str, runtime: str, gpus: str = "") -> DockerSandbox | EmbeddedSandbox:
    """Not started yet. Raises ValueError for an unknown kind."""
    return DockerSandbox(slots, image, runtime, gpus=gpus) if kind == "docker" else EmbeddedSandbox(slots, kind)


def _check(kind: str, floor: str, gpus: str) -> None:
    for name, value in (("kind", kind), ("floor", floor)):
        if value not in STRENGTH and (name, value) != ("kind", AUTO):
            raise ValueError(f"sandbox {name} {value!r}: one of {', '.join(STRENGTH)}")
    if kind != AUTO and STRENGTH[kind] < STRENGTH[floor]:
        raise ValueError(f"sandbox kind {kind!r} is below the floor {floor!r}: lower the floor if that is meant")
    if gpus and kind != "docker":
        raise ValueError(f"sandbox kind {kind!r} with gpus={gpus!r}: only containers get GPUs (kind docker or auto)")
