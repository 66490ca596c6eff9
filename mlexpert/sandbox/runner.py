"""The last step in the script's process: become `python script.py`, then report an uncaught exception as data.

That process is a fork of the warm server, or, for libraries whose threads and devices do not survive a fork, a fresh
interpreter that got this very file by `-c`; scripts see no difference. The report goes through its own pipe, so nothing
that a script prints can pass for it. Only the kernel's exit status decides whether a script failed; the report names
the exception.
"""

from __future__ import annotations

import ast
import atexit
import importlib
import io
import json
import linecache
import logging
import multiprocessing.util
import os
import random
import sys
import tempfile
import threading
import traceback
import types

MESSAGE_LIMIT = 2000  # characters of an exception's message that are reported
COLD = "# sandbox: cold"  # as the first line of a script
COLD_MODULES = frozenset(("torch", "jax", "jaxlib", "flax", "tensorflow", "keras", "lightning", "pytorch_lightning"))


def wants_cold(source: bytes) -> bool:
    """Whether a script asks for a fresh interpreter, or imports what needs one."""
    if source.split(b"\n", 1)[0].strip() == COLD.encode():
        return True
    if not any(name.encode() in source for name in COLD_MODULES):
        return False  # most scripts: not worth parsing
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # running it will tell
    nodes = list(ast.walk(tree))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    return any(name.split(".")[0] in COLD_MODULES for name in names)


def main(source: bytes, path: str, library: list[str], seed: int, report_fd: int) -> int:
    """Run the source as `__main__` from `path`; return the exit code that CPython would give."""
    module = _become_main(source, path, library, seed)
    code = 0
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as exit_:
        code = _exit_code(exit_.code)
    except BaseException as error:
        code = 1
        _report(error, report_fd)
        _print_traceback(error, path)
    return code if _finish(module) else 120


def _become_main(source: bytes, path: str, library: list[str], seed: int) -> types.ModuleType:
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8")
    sys.stdout = _text(1)
    sys.stderr = _text(2)
    sys.argv = [path]
    sys.path[:] = [os.path.dirname(path), *library]
    for name in [name for name in sys.modules if name.split(".")[0] == "mlexpert"]:
        del sys.modules[name]
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = module
    # No mtime: a traceback still shows its lines after the script has deleted or rewritten its own file.
    lines = source.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[path] = (len(source), None, lines, path)
    # Every fork inherits the same generator state; drawing it from the job makes an execution repeatable instead.
    tempfile.tempdir = None
    random.seed(seed)
    importlib.import_module("numpy").random.seed(seed % 2**32)
    atexit._clear()
    atexit.register(logging.shutdown)
    atexit.register(vars(multiprocessing.util)["_exit_function"])  # joins worker processes
    return module


def _text(fd: int) -> io.TextIOWrapper:
    """Line-buffered, so that lines printed before a kill are not lost; never fails on a character."""
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _report(error: BaseException, report_fd: int) -> None:
    try:
        message = str(error)
    except Exception:  # a script's own __str__ may raise anything
        message = "(its message cannot be printed)"
    record = {
        "exception": type(error).__name__[:200],
        "message": message[:MESSAGE_LIMIT],
        "errno": error.errno if isinstance(error, OSError) else None,
        "memory": isinstance(error, MemoryError),
    }
    os.write(report_fd, json.dumps(record).encode())


def _print_traceback(error: BaseException, path: str) -> None:
    tail = error.__traceback__
    while tail is not None and tail.tb_frame.f_code.co_filename != path:
        tail = tail.tb_next
    try:
        traceback.print_exception(type(error), error, tail, file=_text(2))
    except Exception as failure:  # a hostile exception class may break its own printing
        os.write(2, f"(traceback cannot be printed: {type(failure).__name__})\n".encode())


def _finish(module: types.ModuleType) -> bool:
    """What the interpreter does at its end: join threads, run exit functions, let go of globals, flush.

    False if the flush failed. Letting go of the globals closes files that the script left open, so nothing is lost.
    """
    vars(threading)["_shutdown"]()  # no public name wakes the idle workers of an executor and joins them
    atexit._run_exitfuncs()
    module.__dict__.clear()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except (OSError, ValueError, AttributeError):
        return False
    return True


if __name__ == "__main__":  # a cold start
    path, packages, seed, report = sys.argv[1:]
    with open(path, "rb") as script:
        text = script.read()
    os._exit(main(text, path, json.loads(packages), int(seed), int(report)))
