"""Scripts that are odd rather than hostile: each gets exactly what `python script.py` would give it."""

from __future__ import annotations

from mlexpert.sandbox.attacks import attack
from mlexpert.sandbox.attacks.attack import ERROR, KILLED, OK, OOM, SEMANTICS, Attack
from mlexpert.types import Execution

_UNSHARED = {"no shared memory": "locks and memory between processes need /dev/shm"}
_GUARD = """
import os, sys
def main(): print("guarded", sys.argv == [__file__], os.path.samefile(os.path.dirname(__file__) or ".", "."))
if __name__ == "__main__":
    main()
"""
_TERMINAL = """
try: open("/dev/tty").read(1)
except OSError: print("none")
"""
_SPAWN = """
import multiprocessing
def square(x): return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool: print(pool.map(square, [1, 2, 3]))
"""
_FORKED = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
def square(x): return x * x
if __name__ == "__main__":
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool: print(list(pool.map(square, [1, 2, 3])))
"""
_JOBLIB = """
from joblib import Parallel, delayed
print(Parallel(n_jobs=2)(delayed(pow)(x, 2) for x in (1, 2, 3)))
"""
_STREAMS = """
import sys
sys.stdout.buffer.write(b"bytes\\n")
print(sys.stdout.isatty(), sys.stdout.fileno(), sys.stdout.encoding, sys.stdin.read() == "")
sys.stdout.reconfigure(line_buffering=True)
"""
_LOST_SCRIPT = """
import os
os.unlink(__file__)
os.mkdir("elsewhere")
os.chdir("elsewhere")
raise RuntimeError("after all that")
"""
_SHARED_MEMORY = """
from multiprocessing import shared_memory
block = shared_memory.SharedMemory(create=True, size=8 << 20)
block.buf[:] = b"x" * (8 << 20)
print(len(block.buf))
block.close()
block.unlink()
"""
_CHANCE = """
import random
import numpy as np
from sklearn.linear_model import SGDClassifier
X = np.random.rand(50, 3)
y = (X[:, 0] > 0.5).astype(int)
print(random.random(), hash("a"), list({"a", "b", "c"}), np.random.rand(), SGDClassifier().fit(X, y).coef_.sum())
"""
_TORCH = """
# The slowest libraries to import, whichever of them is there.
import importlib.util
found = [name for name in ("torch", "jax", "tensorflow") if importlib.util.find_spec(name)]
print("found", len(found) >= 0)
"""
_COLD = """# sandbox: cold
import sys
import numpy
print(__name__, sys.argv == [__file__], numpy.array([1, 2]).sum())
raise KeyError("cold")
"""


def _repeatable(first: Execution, second: Execution) -> str:
    return "" if first.stdout == second.stdout else f"the same seed gave {first.stdout!r} and {second.stdout!r}"


def _shows_its_line(run: Execution, *_: Execution) -> str:
    if run.exception != "RuntimeError" or "after all that" not in run.stderr:
        return f"the traceback is lost: {run.stderr[-100:]!r}"
    return "" if "line 6" in run.stderr else "the traceback names no line of the script"


def _no_frames_of_ours(run: Execution, *_: Execution) -> str:
    alien = [line for line in run.stderr.splitlines() if 'File "' in line and "script.py" not in line]
    return f"frames that are not the script's: {alien}" if alien else ""


def _cold_is_the_same(run: Execution, *_: Execution) -> str:
    if run.stdout != "__main__ True 3\n":
        return f"printed {run.stdout!r}: {run.stderr[-100:]!r}"
    return attack.fails_with("KeyError")(run) or _no_frames_of_ours(run)


def _workers(name: str, numbers: str, tries: str, script: str) -> Attack:
    fault = attack.prints("[1, 4, 9]\n")
    return Attack(name, numbers, SEMANTICS, tries, script, (OK,), fault, unpromised=_UNSHARED)


def _odd(name: str, tries: str, script: str, *exceptions: str) -> Attack:
    """A text that is hardly a script: an error of its own, told by name."""

    def fault(run: Execution, *_: Execution) -> str:
        return (
            "" if run.exception in exceptions else f"reported as {run.exception or 'no exception'}: {run.message[:60]}"
        )

    return Attack(name, "44", SEMANTICS, tries, script, (ERROR,), fault)


ATTACKS = (
    Attack("reads the keyboard", "16 E37", SEMANTICS, "input()", "input('?')", (ERROR,), attack.fails_with("EOFError")),
    Attack("terminal", "16 E37", SEMANTICS, "opens the operator's terminal", _TERMINAL, (OK,), attack.prints("none\n")),
    Attack(
        "main guard", "E14", SEMANTICS, "work under a main guard", _GUARD, (OK,), attack.prints("guarded True True\n")
    ),
    _workers("spawned workers", "E16", "a pool of fresh interpreters", _SPAWN),
    _workers("forked workers", "E16", "a pool of forks", _FORKED),
    _workers("joblib workers", "33", "joblib with two jobs", _JOBLIB),
    Attack(
        "real streams",
        "E17",
        SEMANTICS,
        "buffer, fileno and isatty of standard output",
        _STREAMS,
        (OK,),
        attack.prints("bytes\nFalse 1 utf-8 True\n"),
    ),
    Attack(
        "loses itself",
        "E20",
        SEMANTICS,
        "changes folder and deletes its own file, then fails",
        _LOST_SCRIPT,
        (ERROR,),
        attack.every(_shows_its_line, _no_frames_of_ours),
    ),
    Attack(
        "shared memory",
        "E38",
        SEMANTICS,
        "8 MB between processes",
        _SHARED_MEMORY,
        (OK,),
        attack.prints(f"{8 << 20}\n"),
        unpromised=_UNSHARED,
    ),
    Attack("chance", "37", SEMANTICS, "random numbers of every sort, twice", _CHANCE, (OK,), _repeatable, then=_CHANCE),
    Attack(
        "missing package",
        "34",
        SEMANTICS,
        "imports what is not installed",
        "import surely_not_installed",
        (ERROR,),
        attack.fails_with("ModuleNotFoundError"),
    ),
    Attack(
        "heavy libraries",
        "34",
        SEMANTICS,
        "looks for torch, jax and tensorflow",
        _TORCH,
        (OK,),
        attack.prints("found True\n"),
    ),
    Attack("cold", "34", SEMANTICS, "asks for a fresh interpreter", _COLD, (ERROR,), _cold_is_the_same),
    Attack(
        "names the cause",
        "E26",
        SEMANTICS,
        "fails with a message",
        "{}['depth']",
        (ERROR,),
        attack.fails_with("KeyError"),
    ),
    Attack("empty", "44", SEMANTICS, "no code at all", "", (OK,), attack.prints("")),
    Attack(
        "ten megabytes",
        "44",
        SEMANTICS,
        "a script of 10 MB",
        "# " + "x" * 10_000_000 + "\nprint('end')",
        (OK,),
        attack.prints("end\n"),
    ),
    Attack(
        "deeply nested",
        "44",
        SEMANTICS,
        "100,000 brackets and signs",
        "x = " + "-" * 100_000 + "1",
        (ERROR, OOM, KILLED),
    ),
    _odd("syntax error", "a bracket that is not closed", "x = (", "SyntaxError"),
    _odd("NUL bytes", "a NUL in the source", "print(1)\0", "SyntaxError", "ValueError"),
    _odd(
        "surrogates",
        "half a character in the source",
        "s = '\ud800'",
        "SyntaxError",
        "UnicodeDecodeError",
        "UnicodeEncodeError",
    ),
    _odd("unknown encoding", "a coding line of nonsense", "# coding: nonsense\nprint(1)", "SyntaxError"),
    _odd("endless recursion", "calls itself", "def f(): f()\nf()", "RecursionError"),
)
