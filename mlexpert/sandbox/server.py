"""The warm server: imports the scientific stack once, then forks one supervisor per execution.

It never computes anything: a thread pool that has run in the parent hangs in its forked children. It holds no data of
any task: the request goes straight to the supervisor, over a socket that the caller passes in.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import traceback

from mlexpert.sandbox import supervise

PRELOAD = (
    *("csv", "decimal", "multiprocessing.pool", "multiprocessing.synchronize", "concurrent.futures.thread"),
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
# What some versions of the libraries above import only when a data frame arrives.
PRELOAD_IF_INSTALLED = (
    *("narwhals.stable.v2", "narwhals.stable.v2._namespace", "narwhals._pandas_like.dataframe"),
    *("narwhals._pandas_like.group_by", "narwhals._pandas_like.selectors", "narwhals._pandas_like.series_cat"),
    *("narwhals._interchange.dataframe", "narwhals._pandas_like.namespace", "narwhals._duration"),
)


def main(control_fd: int, scratch: str, library: list[str]) -> None:
    """Serve until the caller closes the control socket. Raises ImportError if a library is missing."""
    for name in PRELOAD:
        importlib.import_module(name)
    for name in PRELOAD_IF_INSTALLED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    control = socket.socket(fileno=control_fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    server_pid = os.getpid()
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every page of the parent
    control.sendall(b"ready")
    while True:
        _, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not fds:
            return
        connection = socket.socket(fileno=fds[0])
        try:
            child = os.fork()
        except OSError:
            traceback.print_exc(file=sys.stderr)  # the caller sees its connection closed and tries again
            child = -1
        if child == 0:
            control.close()
            supervise.serve(connection, scratch, library, server_pid)
        connection.close()
