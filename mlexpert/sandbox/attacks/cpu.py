"""Attacks on the processor: more seconds than allowed, in one process or over many, and more threads than cores."""

from __future__ import annotations

from mlexpert.sandbox.attacks import attack
from mlexpert.sandbox.attacks.attack import CPU, OK, TIMEOUT, Attack
from mlexpert.types import Execution

_SECOND = {"cpu_s": 1.0, "wall_s": 30.0}
_CHILDREN = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        end = time.process_time() + 0.9  # each below the limit of one process
        while time.process_time() < end: pass
        time.sleep(60)
        os._exit(0)
time.sleep(28)
print("HOLE four children took 0.9 s each")
"""
_RELAY = """
import os, time
if os.fork() == 0:
    os.setsid()
    for _ in range(40):
        end = time.process_time() + 0.2
        while time.process_time() < end: pass
        if os.fork(): os._exit(0)  # the next one begins with no seconds to its name
    os._exit(0)
time.sleep(28)
print("HOLE a chain of processes took 8 s")
"""
_FORESTS = """
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
X = np.random.rand(400, 8)
y = (X[:, 0] > 0.5).astype(int)
print(RandomForestClassifier(20, n_jobs=-1).fit(X, y).score(X, y) > 0.8)
print(HistGradientBoostingClassifier(max_iter=10).fit(X, y).score(X, y) > 0.8)
"""


def _stopped_by_the_processor(run: Execution, *_: Execution) -> str:
    if run.wall_s >= _SECOND["wall_s"] - 3:
        return f"only the wall limit stopped it, after {run.cpu_s:.1f} s of processor time"
    return "" if "cpu" in run.reason.lower() else f"the reason does not speak of CPU time: {run.reason!r}"


ATTACKS = (
    Attack(
        "spins",
        "1 E43",
        CPU,
        "burns processor time in one process",
        "while True: pass",
        (TIMEOUT,),
        _stopped_by_the_processor,
        _SECOND,
    ),
    Attack(
        "spins on",
        "2",
        CPU,
        "the same, deaf to the signal that tells a process so",
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        (TIMEOUT,),
        _stopped_by_the_processor,
        _SECOND,
    ),
    Attack(
        "spinning children",
        "8",
        CPU,
        "four children, each below the limit",
        _CHILDREN,
        (TIMEOUT,),
        _stopped_by_the_processor,
        _SECOND,
    ),
    Attack(
        "relay of spinning orphans",
        "43",
        CPU,
        "each process burns a little, hands over and ends",
        _RELAY,
        (TIMEOUT,),
        _stopped_by_the_processor,
        _SECOND,
    ),
    Attack(
        "all processors at once",
        "33",
        CPU,
        "n_jobs=-1 and OpenMP on top of each other",
        _FORESTS,
        (OK,),
        attack.prints("True\nTrue\n"),
    ),
)
