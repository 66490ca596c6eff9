"""The warm server: imports the scientific stack once, then forks one supervisor per execution.

It never computes anything: a thread pool that has run in the parent hangs in its forked children. It holds no data of
any task: a supervisor is forked the moment a connection arrives, and the supervisor reads the request. The one
connection that the server itself reads is the first, its owner's lifeline. When that closes, however the owner ended,
the server kills what it started, removes its scratch folder and exits.

Started from a command line in which nothing but `mlexpert/sandbox` has to be visible (below `source`):

    python -s -P -c BOOT <socket path> <scratch folder> <source> <JSON list of further package folders> [<first uid>]

with ENVIRONMENT as the environment. Neither this module nor what it imports knows the rest of the project.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
import traceback
from pathlib import Path

from mlexpert.sandbox import cgroup, isolation, pages, processes, runner, supervise, wire, workspace

PROTOCOL = 1
BOOT = """
import json, sys
socket_path, scratch, source, packages, *first_uid = sys.argv[1:]
library = [*sys.path, *(p for p in json.loads(packages) if p not in sys.path)]
sys.path[:] = [*library, source]
from mlexpert.sandbox.server import main
main(socket_path, scratch, library, *map(int, first_uid))
"""
ENVIRONMENT = {
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
    # There is no network: installers and downloads fail at once instead of trying for a minute.
    "PIP_NO_INDEX": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "UV_OFFLINE": "1",
    "CONDA_OFFLINE": "true",
    "MAMBA_OFFLINE": "true",
    "HF_HUB_OFFLINE": "1",
}
PRELOAD = (
    *("ast", "csv", "decimal", "multiprocessing.pool", "multiprocessing.synchronize", "concurrent.futures.thread"),
    *("numpy", "numpy.random", "numpy.linalg", "numpy.fft", "numpy.ma", "numpy.polynomial"),
    *("scipy.linalg", "scipy.optimize", "scipy.sparse.linalg", "scipy.spatial", "scipy.special", "scipy.stats"),
    *("scipy.interpolate", "scipy.ndimage", "scipy.signal"),
    *("pandas", "pandas.io.parsers", "pandas.io.formats.csvs", "pandas.io.formats.format", "pandas.io.formats.string"),
    *("sklearn.calibration", "sklearn.cluster", "sklearn.compose", "sklearn.datasets", "sklearn.decomposition"),
    *("sklearn.discriminant_analysis", "sklearn.dummy", "sklearn.ensemble", "sklearn.feature_extraction.text"),
    *("sklearn.feature_selection", "sklearn.gaussian_process", "sklearn.impute", "sklearn.isotonic"),
    *("sklearn.kernel_ridge", "sklearn.linear_model", "sklearn.metrics", "sklearn.mixture", "sklearn.model_selection"),
    *("sklearn.multiclass", "sklearn.multioutput", "sklearn.naive_bayes", "sklearn.neighbors"),
    *("sklearn.neural_network", "sklearn.pipeline", "sklearn.preprocessing", "sklearn.svm", "sklearn.tree"),
)
# What some versions of the libraries above import only when a data frame arrives, and what may be missing or broken.
PRELOAD_IF_INSTALLED = (
    *("narwhals.stable.v2", "narwhals.stable.v2._namespace", "narwhals._pandas_like.dataframe"),
    *("narwhals._pandas_like.group_by", "narwhals._pandas_like.selectors", "narwhals._pandas_like.series_cat"),
    *("narwhals._interchange.dataframe", "narwhals._pandas_like.namespace", "narwhals._duration"),
    *("lightgbm", "xgboost"),
)
_PACKAGES = ("numpy", "pandas", "scipy", "scikit-learn", "lightgbm", "xgboost", "torch", "jax", "tensorflow")
_ORPHAN_S = 60.0  # without an owner from the start
_LEAVE_S = 15.0
_FIRST_FRAME_BYTES = 4096  # an owner has nothing to say: no request is ever read here


def main(socket_path: str, scratch: str, library: list[str], first_uid: int | None = None) -> None:
    """Serve until the owner leaves. Raises ImportError if a library is missing, TimeoutError if no owner comes.

    `first_uid` was claimed by an owner outside of the container in which the server runs.
    """
    for name in PRELOAD:
        importlib.import_module(name)
    for name in PRELOAD_IF_INSTALLED:
        with contextlib.suppress(ImportError, OSError):
            importlib.import_module(name)
    with isolation.acting_as(os.stat(os.path.dirname(socket_path)).st_uid):  # root of a container may not be the owner
        listener = wire.listen(socket_path)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        known, no_group = _known(scratch, library, first_uid)
        owner = _owner(listener, no_group)
        isolation.adopt_orphans()  # what a supervisor that is killed leaves behind comes to this process
        gc.collect()
        gc.freeze()  # a collection in a child would touch, and so copy, every page of the parent
        pages.collapse()
        _serve(listener, owner, known)
    finally:
        _leave(socket_path, scratch)


def _known(scratch: str, library: list[str], first_uid: int | None) -> tuple[supervise.Server, str]:
    os.makedirs(scratch, mode=0o711, exist_ok=True)
    os.makedirs(f"{scratch}/runs", exist_ok=True)
    os.chmod(f"{scratch}/runs", 0o1777)  # every script's user makes its own folder in it
    hierarchy, no_group = cgroup.find()
    if hierarchy is not None:
        with contextlib.suppress(OSError):  # what cannot be removed hinders nobody
            cgroup.sweep(hierarchy)
    if first_uid is None:
        first_uid = isolation.claim_uids() if os.geteuid() == 0 else os.geteuid()
    known = supervise.Server(
        pid=os.getpid(),
        scratch=scratch,
        library=library,
        hierarchy=hierarchy,
        around=cgroup.own(),
        first_uid=first_uid,
        runner=Path(runner.__file__).read_text(),
    )
    return known, no_group


# ---------------------------------------------------------------- the owner
def _owner(listener: socket.socket, no_group: str) -> socket.socket:
    """The first connection, after it has asked to be the lifeline and was told the facts."""
    until = time.monotonic() + _ORPHAN_S
    while select.select([listener], [], [], max(0.0, until - time.monotonic()))[0]:
        connection, _ = listener.accept()
        connection.settimeout(_ORPHAN_S)
        with contextlib.suppress(OSError, ValueError):
            if wire.receive(connection, _FIRST_FRAME_BYTES).get("op") == "lifeline":
                wire.send(connection, _facts(no_group))
                return connection
        connection.close()
    raise TimeoutError(f"nobody asked for a lifeline within {_ORPHAN_S:g} s")


def _facts(no_group: str) -> dict:
    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "protocol": PROTOCOL,
        "python": platform.python_version(),
        "packages": packages,
        "pid": os.getpid(),
        "no_cgroup": no_group,  # why memory is not held by a cgroup; empty if it is
    }


def _uid_of(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return struct.unpack("3i", credentials)[1]


# ---------------------------------------------------------------- serving
def _serve(listener: socket.socket, owner: socket.socket, known: supervise.Server) -> None:
    """Fork per connection until the owner's closes. Nobody but the owner's user is served: scripts are other users."""
    owner_uid, (bell, rope) = _uid_of(owner), _bell()
    ours = (listener, owner, bell, rope)
    supervisors: set[int] = set()
    poll = select.poll()
    for one in (listener, owner, bell):
        poll.register(one, select.POLLIN)
    while owner.fileno() not in (ready := [fd for fd, _ in poll.poll()]):
        if bell.fileno() in ready:
            bell.recv(4096)
            _bury(supervisors, known)
        if listener.fileno() not in ready:
            continue
        connection, _ = listener.accept()
        if _uid_of(connection) == owner_uid:
            supervisors |= _fork(connection, ours, known)
        connection.close()


def _bell() -> tuple[socket.socket, socket.socket]:
    """The first becomes readable whenever a child has ended."""
    bell, rope = socket.socketpair()
    rope.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing rings
    signal.set_wakeup_fd(rope.fileno(), warn_on_full_buffer=False)
    return bell, rope


def _fork(connection: socket.socket, others: tuple[socket.socket, ...], known: supervise.Server) -> set[int]:
    """The pid of the new supervisor; none if no process can be born."""
    try:
        child = os.fork()
    except OSError:
        traceback.print_exc(file=sys.stderr)  # the caller sees its connection closed and tries again
        return set()
    if child == 0:
        signal.set_wakeup_fd(-1)
        for inherited in others:
            inherited.close()
        supervise.serve(connection, known)
    return {child}


def _bury(supervisors: set[int], known: supervise.Server) -> None:
    """Reap who has ended. A supervisor that was killed could not end its execution, so that is done here."""
    killed = False
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            killed |= ended[0] in supervisors and os.WIFSIGNALED(ended[1])
            supervisors.discard(ended[0])
    if not killed:
        return
    try:
        processes.kill_strays(supervisors)
        if known.hierarchy is not None:
            cgroup.sweep(known.hierarchy)
    except (OSError, TimeoutError):
        traceback.print_exc(file=sys.stderr)  # other executions go on


def _leave(socket_path: str, scratch: str) -> None:
    """Nothing outlives the server: supervisors are asked to end their executions, then all below it is killed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asked = [process.pid for process in processes.below(os.getpid()) if process.parent == os.getpid()]
    for pid in asked:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + _LEAVE_S
    while any(map(processes.lives, asked)) and time.monotonic() < until:
        time.sleep(0.01)
    try:
        processes.kill_below()
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket_path)
        workspace.remove(scratch)
