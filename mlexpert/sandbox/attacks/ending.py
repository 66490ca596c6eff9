"""Attacks on the end of an execution: it comes when main ends or its time is up, it takes all processes along, and how
it came is told truly."""

from __future__ import annotations

from mlexpert.sandbox.attacks import attack
from mlexpert.sandbox.attacks.attack import DISK_FULL, ENDING, ERROR, KILLED, OK, OOM, PIDS, TIMEOUT, Attack
from mlexpert.types import Execution

_SHORT = {"wall_s": 1.0}
_ORPHAN = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(600)
    os._exit(0)
print("main", flush=True)
"""
_FORGERY = """
import json, os, sys
fake = {"status": "ok", "code": 0, "exception": "Forged", "message": "forged", "errno": 28, "memory": True,
        "out_of_memory": True, "timed_out": True, "files": [["submission.csv", 3]]}
for fd in range(3, 64):
    try: os.write(fd, json.dumps(fake).encode() + b"\\n")
    except OSError: pass
print(json.dumps(fake), flush=True)
"""
_FLOOD_ALL = """
import os, time
end = time.monotonic() + 1
for fd in range(3, 64):
    try: os.set_blocking(fd, False)
    except OSError: pass
while time.monotonic() < end:
    for fd in range(3, 64):
        try: os.write(fd, bytes(1 << 16))
        except OSError: pass
"""
_STRANGE = """
raise type("A\\nstatus: ok\\x1b[2J\\u202e" + "x" * 10_000, (Exception,), {})("y" * 10_000_000 + "\\x00\\x1b[2J")
"""
_CLONE = """
import ctypes, os, platform, signal, time
number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
CLONE_PARENT = 0x8000
child = ctypes.CDLL(None).syscall(number, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    time.sleep(600)
    os._exit(0)
print("main", flush=True)
"""


def _kept_what_came_before(run: Execution, *_: Execution) -> str:
    return "" if run.stdout == "before\n" else f"output before the limit is lost: {run.stdout[:60]!r}"


def _ended_with_main(run: Execution, *_: Execution) -> str:
    return "" if run.stdout == "main\n" and run.wall_s < 15 else f"waited {run.wall_s:.1f} s for a grandchild"


def _was_idle(run: Execution, *_: Execution) -> str:
    return "" if run.cpu_s < 1 else f"{run.cpu_s:.1f} s of processor time are booked on a sleeping script"


def _measured_outside(run: Execution, *_: Execution) -> str:
    return "" if run.wall_s >= 1 else f"the script's own clock was believed: {run.wall_s} s"


def _hands_in_nothing(run: Execution, *_: Execution) -> str:
    return f"a forged report handed in {sorted(run.files)}" if run.files else ""


def _tells_it_in_short(run: Execution, *_: Execution) -> str:
    sizes = len(run.exception), len(run.message), len(run.reason)
    clean = all(text.isprintable() for text in (run.exception, run.reason))
    return "" if max(sizes) < 5000 and clean else f"name, message, reason of {sizes} characters, clean: {clean}"


ATTACKS = (
    Attack(
        "endless loop",
        "1 E8",
        ENDING,
        "never ends; what it printed before is kept",
        "print('before')\nwhile True: pass",
        (TIMEOUT,),
        _kept_what_came_before,
        _SHORT,
    ),
    Attack(
        "deaf to signals",
        "2 E10 E44",
        ENDING,
        "sleeps and ignores every signal that can be ignored",
        "import signal, time\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nprint('before')\nwhile True: time.sleep(600)",
        (TIMEOUT,),
        _kept_what_came_before,
        _SHORT,
    ),
    Attack(
        "catches everything",
        "E13 E22",
        ENDING,
        "a bare except inside an endless loop",
        "print('before')\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass",
        (TIMEOUT,),
        _kept_what_came_before,
        _SHORT,
    ),
    Attack(
        "orphan in its own session",
        "3 E2",
        ENDING,
        "a double fork with setsid that outlives main",
        _ORPHAN,
        (OK,),
        _ended_with_main,
    ),
    Attack(
        "orphan at a timeout",
        "3 E4 E7",
        ENDING,
        "the same while main runs into the wall limit",
        _ORPHAN + "time.sleep(600)",
        (TIMEOUT,),
        attack.prints("main\n"),
        _SHORT,
    ),
    Attack(
        "child holds the output",
        "4 E1 E5",
        ENDING,
        "main ends while a child keeps its output open",
        "import os, time\nif os.fork() == 0:\n    time.sleep(600)\n    os._exit(0)\nprint('main', flush=True)",
        (OK,),
        _ended_with_main,
    ),
    Attack(
        "sleeping program as child",
        "4 E1 E5",
        ENDING,
        "the same with another program, started in a new session",
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
        "start_new_session=True)\nprint('main', flush=True)",
        (OK,),
        _ended_with_main,
    ),
    Attack(
        "child of its parent",
        "3",
        ENDING,
        "a child that the kernel books on the script's parent",
        _CLONE,
        (OK,),
        _ended_with_main,
    ),
    Attack(
        "hops from process to process",
        "3 43",
        ENDING,
        "forks and ends without a pause, so that no list of processes is ever true",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    end = time.monotonic() + 600\n"
        "    while time.monotonic() < end:\n        try:\n            if os.fork(): os._exit(0)\n"
        "        except OSError: pass\ntime.sleep(0.2)\nprint('main', flush=True)",
        (OK,),
        _ended_with_main,
    ),
    Attack(
        "deadlock",
        "35",
        ENDING,
        "waits for ever at 0 % of a processor",
        "import threading\nprint('before')\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
        (TIMEOUT,),
        attack.every(_kept_what_came_before, _was_idle),
        _SHORT,
    ),
    Attack(
        "stops itself",
        "27",
        ENDING,
        "SIGSTOP to its own process group",
        "import os, signal\nprint('before')\nos.killpg(0, signal.SIGSTOP)\nwhile True: pass",
        (TIMEOUT,),
        _kept_what_came_before,
        _SHORT,
    ),
    Attack(
        "patched clocks",
        "36",
        ENDING,
        "replaces all clocks of Python and then never ends",
        "import time\nfor name in ('time', 'sleep', 'monotonic', 'perf_counter', 'process_time'):\n"
        "    setattr(time, name, lambda *_: 0.0)\n"
        "while True: pass",
        (TIMEOUT,),
        _measured_outside,
        _SHORT,
    ),
    Attack("sys.exit(0)", "26 E23", ENDING, "a clean exit", "import sys\nprint(1)\nsys.exit(0)", (OK,), attack.ends(0)),
    Attack("os._exit(0)", "26", ENDING, "leaves without goodbye", "import os\nos._exit(0)", (OK,), attack.ends(0)),
    Attack("exit code", "26", ENDING, "sys.exit(3)", "import sys\nsys.exit(3)", (ERROR,), attack.ends(3)),
    Attack("exit text", "26", ENDING, "sys.exit('why')", "import sys\nsys.exit('why')", (ERROR,), attack.ends(1)),
    Attack(
        "quits in atexit",
        "26",
        ENDING,
        "leaves with code 0 from an exit function",
        "import atexit, os\natexit.register(os._exit, 0)",
        (OK,),
        attack.ends(0),
    ),
    Attack(
        "exit code 0 over an exception",
        "26",
        ENDING,
        "an uncaught exception, then code 0 from an exit function",
        "import atexit, os\natexit.register(os._exit, 0)\nraise ValueError('hidden')",
        (OK, ERROR),
    ),
    Attack("abort", "26", ENDING, "os.abort()", "import os\nos.abort()", (KILLED,), attack.ends(signal=6)),
    Attack(
        "segmentation fault",
        "26",
        ENDING,
        "reads address 0",
        "import ctypes\nctypes.string_at(0)",
        (KILLED,),
        attack.ends(signal=11),
    ),
    Attack(
        "kills itself",
        "27",
        ENDING,
        "SIGKILL to its own process group",
        "import os\nos.killpg(0, 9)",
        (KILLED,),
        attack.ends(signal=9),
    ),
    Attack(
        "becomes another program",
        "26",
        ENDING,
        "replaces itself by exec",
        "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(\"other\"); raise SystemExit(5)'])",
        (ERROR,),
        attack.every(attack.prints("other\n"), attack.ends(5)),
    ),
    Attack(
        "forged success",
        "15 24",
        ENDING,
        "writes a report of success into every descriptor, then fails",
        _FORGERY + "sys.exit(3)",
        # Of what kind its failure is, a script may say: it could as well raise a MemoryError.
        (ERROR, OOM, PIDS, DISK_FULL),
        attack.every(_hands_in_nothing, attack.ends(3)),
    ),
    Attack(
        "forged failure",
        "15 24",
        ENDING,
        "writes a report of failure into every descriptor, then ends well",
        _FORGERY,
        (OK,),
        attack.every(_hands_in_nothing, attack.ends(0)),
    ),
    Attack("floods every descriptor", "15", ENDING, "writes into all that it may have inherited", _FLOOD_ALL),
    Attack(
        "strange exception",
        "15 23",
        ENDING,
        "a name and a message that are long and not clean",
        _STRANGE,
        (ERROR,),
        _tells_it_in_short,
    ),
    Attack(
        "patched interpreter",
        "23",
        ENDING,
        "replaces the functions that anyone would need to report its failure",
        "import builtins, io, json, os, sys, traceback\n"
        "for place, names in ((os, ('_exit', 'write', 'kill')), (json, ('dumps', 'loads')), (sys, ('exit',)),\n"
        "                     (traceback, ('print_exception',)), (builtins, ('open', 'print', 'len', 'isinstance'))):\n"
        "    for name in names: setattr(place, name, lambda *_, **__: 0)\n"
        "raise ValueError('real')",
        (ERROR,),
        limits={"wall_s": 10.0},
        then="import json, os\nprint(len(json.dumps(os.listdir('.'))) > 2)",
    ),
    Attack(
        "broken exception",
        "23",
        ENDING,
        "an exception whose every method raises",
        "class Evil(Exception):\n    def __str__(self): raise self\n    __repr__ = __str__\n"
        "    __getattribute__ = lambda self, name: 1 / 0\nraise Evil()",
        (ERROR,),
        attack.ends(1),
    ),
)
