"""A run of several processes, one for each host of a machine: how they find each other.

Every process starts the same command, with the address of the first and its own number, from flags or the environment:

    --coordinator=10.0.0.1:1234 --processes=4 --process=2
    MLEXPERT_COORDINATOR, MLEXPERT_PROCESSES, MLEXPERT_PROCESS

`--processes=auto` leaves all three to JAX, which knows Slurm, Open MPI, Kubernetes and TPU pods. Then `jax.devices()`
are the devices of all processes, meshes are made of them, and each process puts and reads its own parts
(train/spread.py).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class HostsError(ValueError):
    """The processes were not told enough to find each other; the message says what is missing."""


@dataclass(frozen=True)
class Hosts:
    """`processes` 0 means that JAX finds out."""

    coordinator: str = ""
    processes: int = 1
    process: int = 0


def read(coordinator: str, processes: str, process: str, environment: Mapping[str, str] = os.environ) -> Hosts:
    """From flags, "" meaning unset, and where unset from the environment. Raises HostsError."""
    coordinator = coordinator or environment.get("MLEXPERT_COORDINATOR", "")
    processes = processes or environment.get("MLEXPERT_PROCESSES", "") or "1"
    process = process or environment.get("MLEXPERT_PROCESS", "") or "0"
    if processes == "auto":
        return Hosts(processes=0)
    if not (processes.isdigit() and process.isdigit() and int(process) < int(processes)):
        raise HostsError(f"process {process!r} of {processes!r}: numbers, the process from 0 to processes - 1")
    if int(processes) > 1 and not re.fullmatch(r"[^\s:]+:\d+|\[[0-9a-fA-F:]+\]:\d+", coordinator):
        raise HostsError(
            f"{processes} processes need the address of process 0, host:port, as --coordinator; got {coordinator!r}"
        )
    return Hosts(coordinator, int(processes), int(process))


def several() -> bool:
    """Whether this process was started as one of several."""
    # Without JAX imported nothing was started.
    return "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized()


def start(hosts: Hosts, timeout_s: int = 300) -> None:
    """Waits until all processes are there. Must run before anything else uses JAX. Raises HostsError if some do not
    come in time."""
    if hosts.processes == 1:
        return
    import jax  # here: a command that only prints must not wait for it

    found: dict[str, Any] = (
        {}
        if hosts.processes == 0
        else dict(coordinator_address=hosts.coordinator, num_processes=hosts.processes, process_id=hosts.process)
    )
    try:
        jax.distributed.initialize(**found, initialization_timeout=timeout_s)
    except (RuntimeError, ValueError) as error:
        raise HostsError(f"the processes of this run did not meet within {timeout_s} s: {error}") from error
