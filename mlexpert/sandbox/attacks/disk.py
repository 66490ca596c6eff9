"""Attacks on the disk: one file, many, invisible ones, and names and rights that make cleaning up hard."""

from __future__ import annotations

from mlexpert.sandbox.attacks import attack
from mlexpert.sandbox.attacks.attack import DISK, DISK_FULL, ENDING, OK, Attack

_OPEN = {"plain": "only its workspace is looked at: no folder of the machine is hidden"}
# The limits are 16 MB and 4096 files. Where they are only looked at now and then, a script is stopped a moment after it
# has passed them: so each goes on for seconds, and stops by itself at about 1 GB or 200,000 files.
_UNLINKED = """
import os
kept = []
for n in range(64):
    kept.append(open(f"f{n}", "wb", buffering=0))
    os.unlink(f"f{n}")
    for _ in range(16): kept[-1].write(bytes(1 << 20))
print("HOLE 1 GB in files without a name")
"""
_EVERYWHERE = """
import os
written, full, refused = 0, None, None
for folder in ("/dev/shm", "/tmp", "/var/tmp", "/run", "/", "."):
    for n in range(100):
        try:
            with open(f"{folder}/fill{os.getpid()}-{n}", "wb", buffering=0) as file:
                for _ in range(4): written += file.write(bytes(1 << 20))
        except PermissionError as error: refused = error; break
        except OSError as error: full = error; break
if written > 600 << 20: print("HOLE wrote", written >> 20, "MB")
if full: raise full
"""
_INODES = """
import os
for n in range(200_000): os.close(os.open(f"f{n}", os.O_CREAT | os.O_WRONLY))
print("HOLE 200,000 files")
"""
_INODES_EVERYWHERE = """
import os
full = OSError("no folder may be written to")
for folder in ("/tmp", "/dev/shm"):
    try:
        for n in range(200_000): os.close(os.open(f"{folder}/f{n}", os.O_CREAT | os.O_WRONLY))
    except OSError as error: full = error
    else: print("HOLE 200,000 files in", folder)
if not isinstance(full, PermissionError): raise full
"""
_DEEP = """
import os
for _ in range(3000):
    try: os.mkdir("d"); os.chdir("d")
    except OSError: break
print("done")
"""
_NAMES = """
import os
for name in (b"n" * 255, b"\\xff\\xfe\\x80", b"new\\nline", b"-rf", b" ", b"*", b"\\x1b[2J", b"\\xe2\\x80\\xae"):
    os.mkdir(name)
    os.close(os.open(name + b"/" + name, os.O_CREAT | os.O_WRONLY))
print("done")
"""
_RIGHTS = """
import os
for path in ("a", "a/b", "a/b/c"):
    os.mkdir(path)
open("a/b/c/file", "w").write("x")
open("submission.csv", "w").write("id,target\\n")
os.symlink("/", "a/link")
for path in ("submission.csv", "a/b/c/file", "a/b/c", "a/b", "a", "."):
    try: os.chmod(path, 0)
    except PermissionError: pass
print("done")
"""
_DESTROY = """
import os, shutil
for name in os.listdir("."):
    try: os.chmod(name, 0o777); os.unlink(name)
    except OSError: pass
here = os.getcwd()
os.chdir("/")
shutil.rmtree(here, ignore_errors=True)
try: os.rename(here, here + ".gone")
except OSError: pass
print("done")
"""
_SWAP = """
import os
here = os.getcwd()
os.chdir("/")
try:
    os.rename(here, here + ".gone")
    os.symlink("@FOLDER@/public", here)
except OSError: pass
print("done")
"""

ATTACKS = (
    Attack(
        "one huge file",
        "11",
        DISK,
        "writes 40 MB into one file",
        "with open('big', 'wb', buffering=0) as file:\n    for _ in range(40): file.write(bytes(1 << 20))\n"
        "print('HOLE 40 MB')",
        (DISK_FULL,),
    ),
    Attack(
        "many files",
        "12",
        DISK,
        "writes 1000 files of 1 MB",
        "for n in range(1000): open(f'f{n}', 'wb').write(bytes(1 << 20))\nprint('HOLE 1 GB')",
        (DISK_FULL,),
    ),
    Attack("files without a name", "12", DISK, "deletes each file and goes on writing to it", _UNLINKED, (DISK_FULL,)),
    Attack(
        "every folder",
        "9 11",
        DISK,
        "fills all folders that it may write to",
        _EVERYWHERE,
        (DISK_FULL,),
        unpromised=_OPEN,
    ),
    Attack(
        "reserves space",
        "11 14",
        DISK,
        "fallocate of 1 GB",
        "import os\nos.posix_fallocate(os.open('big', os.O_CREAT | os.O_WRONLY), 0, 1 << 30)\nprint('HOLE 1 GB')",
        (DISK_FULL,),
    ),
    Attack("a million files", "13", DISK, "empty files until there are no inodes", _INODES, (DISK_FULL,)),
    Attack(
        "a million files elsewhere",
        "13",
        DISK,
        "the same in /tmp and /dev/shm",
        _INODES_EVERYWHERE,
        (OK, DISK_FULL),
        unpromised=_OPEN,
    ),
    Attack("deep folders", "13", ENDING, "3000 folders inside each other", _DEEP, (OK, DISK_FULL)),
    Attack(
        "strange names",
        "13",
        ENDING,
        "255 bytes, no UTF-8, new lines, option-like",
        _NAMES,
        (OK,),
        attack.prints("done\n"),
    ),
    Attack("takes rights away", "31", ENDING, "chmod 000 on everything", _RIGHTS, (OK,), attack.prints("done\n")),
    Attack(
        "swaps its workspace",
        "31 17",
        ENDING,
        "puts a link to other files in its folder's place, for whoever cleans up",
        _SWAP,
        (OK,),
        attack.prints("done\n"),
    ),
    Attack("destroys its workspace", "31 E20", ENDING, "deletes its folder", _DESTROY, (OK,), attack.prints("done\n")),
)
