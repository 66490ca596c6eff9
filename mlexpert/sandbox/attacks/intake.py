"""Attacks on what is handed in: only a regular file of the workspace, of sane size, comes out, whole or not at all."""

from __future__ import annotations

import os
import stat

from mlexpert.sandbox.attacks import attack
from mlexpert.sandbox.attacks.attack import DISK_FULL, ERROR, INTAKE, OK, Attack
from mlexpert.types import Execution

_NAME = "submission.csv"
_GOOD = b"id,target\n3,1\n"
_WHY = ("not collected",)
_SURVIVOR = f"""
import os, time
open("{_NAME}", "wb").write({_GOOD!r})
if os.fork() == 0:
    os.setsid()
    while True:
        for source in ("/etc/passwd", "/proc/self/environ", "@FOLDER@/answers.csv"):
            try:
                os.symlink(source, "link")
                os.rename("link", "{_NAME}")
                open("file", "wb").write({_GOOD!r})
                os.rename("file", "{_NAME}")
            except OSError: pass
time.sleep(0.2)
"""
_SPARSE = f"""
import os
fd = os.open("{_NAME}", os.O_CREAT | os.O_WRONLY)
for size in (1 << 40, 1 << 34, 1 << 30, 15 << 20):
    try: os.ftruncate(fd, size); break
    except OSError: continue
print(os.fstat(fd).st_size)
"""
_DEVICE = f"""
import os, stat
try: os.mknod("{_NAME}", stat.S_IFCHR | 0o666, os.makedev(1, 5))
except OSError: os.symlink("/dev/zero", "{_NAME}")
"""


def _bounded(run: Execution, *_: Execution) -> str:
    size = run.files[_NAME].stat().st_size if _NAME in run.files else 0
    return "" if size <= 16 << 20 else f"{size} bytes came out of a disk of 16 MB"


def _good_or_nothing(run: Execution, *_: Execution) -> str:
    content = run.files[_NAME].read_bytes() if _NAME in run.files else _GOOD
    return "" if content in (_GOOD, b"") else f"collected {content[:60]!r}"


def _plain_rights(run: Execution, *_: Execution) -> str:
    if _NAME not in run.files:
        return "was not collected"
    info = run.files[_NAME].lstat()
    special = stat.S_IMODE(info.st_mode) & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX | 0o111 | 0o022)
    return f"came out with mode {info.st_mode:o}" if special or info.st_uid != os.geteuid() else ""


def _only_what_was_declared(run: Execution, *_: Execution) -> str:
    return "" if set(run.files) <= {_NAME} else f"collected {sorted(run.files)}"


def _script(name: str, tries: str, script: str, *words: str) -> Attack:
    """An attack after which nothing may be collected."""
    return Attack(name, "17 18", INTAKE, tries, script, (OK,), attack.refuses(_NAME, *(words or _WHY)))


ATTACKS = (
    _script("link to a system file", "a symbolic link", f"import os\nos.symlink('/etc/passwd', '{_NAME}')"),
    _script(
        "link to the answers",
        "a link to the owner's folder",
        f"import os\nos.symlink('@FOLDER@/answers.csv', '{_NAME}')",
    ),
    _script(
        "link to its own output", "a link to /proc/self/fd/1", f"import os\nos.symlink('/proc/self/fd/1', '{_NAME}')"
    ),
    _script("link to an input", "a link to a public file", f"import os\nos.symlink('train.csv', '{_NAME}')"),
    _script("link in a circle", "a link to itself", f"import os\nos.symlink('{_NAME}', '{_NAME}')"),
    _script("pipe", "a named pipe, which would block its reader", f"import os\nos.mkfifo('{_NAME}')"),
    _script("folder", "a folder", f"import os\nos.mkdir('{_NAME}')"),
    _script("device", "a device, or a link to one", _DEVICE),
    _script("socket", "a socket", f"import socket\nsocket.socket(socket.AF_UNIX).bind('{_NAME}')"),
    _script(
        "second name",
        "a hard link",
        f"import os\nopen('other', 'wb').write({_GOOD!r})\nos.link('other', '{_NAME}')",
    ),
    Attack(
        "sparse file",
        "14",
        INTAKE,
        "a terabyte that takes no blocks",
        _SPARSE,
        (OK, ERROR, DISK_FULL),
        _bounded,
    ),
    Attack(
        "rewriting survivor",
        "18",
        INTAKE,
        "a grandchild swaps the file for links while it is collected",
        _SURVIVOR,
        (OK,),
        _good_or_nothing,
    ),
    Attack(
        "special rights",
        "18",
        INTAKE,
        "set-user-id and executable for all",
        f"import os\nopen('{_NAME}', 'wb').write({_GOOD!r})\nos.chmod('{_NAME}', 0o6777)",
        (OK,),
        attack.every(_plain_rights, attack.collects(_NAME, _GOOD)),
    ),
    Attack(
        "left open",
        "44",
        INTAKE,
        "never closes or flushes its file",
        f"out = open('{_NAME}', 'w')\nout.write({_GOOD.decode()!r})",
        (OK,),
        attack.collects(_NAME, _GOOD),
    ),
    Attack(
        "its own score",
        "24",
        INTAKE,
        "writes results and rewards beside its submission",
        f"import json\nfor name in ('reward.json', 'score.txt', 'metrics.jsonl', 'results.json', '{_NAME}'):\n"
        "    open(name, 'w').write(json.dumps({'reward': 1.0, 'score': 1.0, 'medal': 'gold'}))\n"
        "print('reward: 1.0')",
        (OK,),
        _only_what_was_declared,
    ),
    Attack(
        "no submission",
        "44",
        INTAKE,
        "ends well and hands in nothing, under the right name",
        "open('Submission.csv', 'w').write('id')\nopen('submission.csv.txt', 'w').write('id')",
        (OK,),
        attack.refuses(_NAME, ""),
    ),
    Attack(
        "submission and failure",
        "44",
        INTAKE,
        "writes its file, then fails",
        f"open('{_NAME}', 'wb').write({_GOOD!r})\nraise KeyError('late')",
        (ERROR,),
        attack.fails_with("KeyError"),
    ),
)
