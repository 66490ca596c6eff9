"""Devices that a plan may be made for: what they can hold and do, and how to compile for them without having one.

    h200x32, h200x8       NVIDIA H200, eight to a node; compiled by JAX's CUDA plugin, which needs no CUDA
    v5p:4x4x4, v5e:4x8    TPU slices by topology; compiled by libtpu
    v6e:4x8
    cpux8                 virtual devices of this machine

Without plugin or libtpu a plan is compiled for virtual CPU devices: the same program and nearly the same arrays, but
other kernels, so its memory is an estimate. Memory is what programs can use, peaks are dense bfloat16 (data sheets).
"""

from __future__ import annotations

import importlib.util
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GIB = 2**30
H200 = Path(__file__).with_name("h200.txtpb")  # what XLA must know of a GPU that is not here


class TargetError(ValueError):
    """No such device; the message lists those there are."""


@dataclass(frozen=True)
class Chip:
    memory_bytes: int
    peak_flops: float
    platform: str  # "cuda", "tpu" or "cpu"
    attention: str  # backend of attention over rows
    grouped: str  # backend of the grouped matmul
    node: int  # devices with fast links between them


CHIPS = {
    "h200": Chip(139 * GIB, 989e12, "cuda", "triton", "triton", 8),
    "v5e": Chip(int(15.75 * GIB), 197e12, "tpu", "splash", "ragged_dot", 256),
    "v5p": Chip(95 * GIB, 459e12, "tpu", "splash", "ragged_dot", 64),
    "v6e": Chip(int(31.25 * GIB), 918e12, "tpu", "splash", "ragged_dot", 256),
    "cpu": Chip(16 * GIB, 1e11, "cpu", "chunked", "blocked", 8),
}


@dataclass(frozen=True)
class Target:
    name: str
    chip: Chip
    devices: int

    @property
    def compiler(self) -> str:
        """What would compile for it: its own platform if that is installed, else "cpu"."""
        modules = {"tpu": "libtpu", "cuda": "jax_cuda13_plugin"}
        module = modules.get(self.chip.platform)
        return self.chip.platform if module and importlib.util.find_spec(module) else "cpu"


def parse(text: str) -> Target:
    """Raises TargetError for a text that names no devices."""
    match = re.fullmatch(r"([a-z0-9]+?)(?:x(\d+)|:(\d+(?:x\d+)+))", text.strip().lower())
    if not match or match[1] not in CHIPS or (match[3] is not None) != (CHIPS[match[1]].platform == "tpu"):
        raise TargetError(f"target {text!r}: one of h200x32, v5p:4x4x4, v5e:4x8, v6e:4x8, cpux8, with any sizes")
    devices = int(match[2]) if match[2] else math.prod(map(int, match[3].split("x")))
    if devices < 1:
        raise TargetError(f"target {text!r} has no devices")
    return Target(text.strip().lower(), CHIPS[match[1]], devices)


def environment(target: Target, compiler: str) -> dict[str, str]:
    """What must be set before JAX starts, in the process that compiles."""
    # Nothing here may look for a real accelerator, and flags meant for this process are not meant for that one.
    quiet = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "XLA_FLAGS": ""}
    if compiler == "cpu":
        # Arrays are laid out before machine code is made, so how good that code is does not change the answer.
        fast = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        return quiet | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={target.devices} {fast}"}
    if compiler == "tpu":
        kind = {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": "v5litepod-8"}
        # No chip is opened, so several plans may be made at once.
        return quiet | kind | {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    return quiet


def devices(target: Target, compiler: str) -> list[Any]:
    """Devices to make a mesh of, in a process started with `environment`."""
    import jax
    from jax.experimental import topologies

    if compiler == "cpu":
        return jax.devices()[: target.devices]
    if compiler == "tpu":
        return list(topologies.get_topology_desc(target.name, platform="tpu").devices)
    node = target.chip.node if target.devices % target.chip.node == 0 else target.devices
    slices = f"1x{target.devices // node}x{node}"
    described = topologies.get_topology_desc("h200", platform="cuda", target_config=H200.read_text(), topology=slices)
    return list(described.devices)
