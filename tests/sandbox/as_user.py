"""Run a command as another user who can reach this interpreter: `python as_user.py [options] UID COMMAND...` (as root).

An interpreter below a folder that only root may search (/root, mode 0700) is no use to another uid. In a mount
namespace of its own the first such folder is covered by a memory-backed skeleton that holds, at their old paths, just
the trees the command needs: the prefixes of Python, sys.path and the current folder. Then the uid changes, without
groups or capabilities, HOME and TMPDIR are a fresh folder of that uid, and the command runs. Exit code: the command's,
128 + n after signal n; 3 if this is not run by root.

With --no-user-namespaces every attempt to make one answers EPERM, as on machines that forbid them to plain users.
With uid 0 the command stays root with the capabilities that root has in an ordinary container.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import signal
import stat
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from mlexpert.sandbox import seccomp

NEWNS, NEWUSER = 0x20000, 0x10000000
BIND, REC, PRIVATE = 4096, 16384, 1 << 18
PDEATHSIG, CAPBSET_DROP = 1, 24
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod, ...
CONTAINER_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
LIBC = ctypes.CDLL(None, use_errno=True)


def call(function: str, *arguments: object) -> None:
    raw = [a.encode() if isinstance(a, str) else a for a in arguments]
    if getattr(LIBC, function)(*raw) < 0:
        raise OSError(ctypes.get_errno(), f"{function}{arguments}: {os.strerror(ctypes.get_errno())}")


# ---------------------------------------------------------------- what the command must reach
def needed() -> list[str]:
    """Prefixes of Python, sys.path and the current folder, with what their links point to; none inside another."""
    prefixes = [sys.prefix, sys.base_prefix, *(p for p in sys.path if os.path.isdir(p)), os.getcwd()]
    paths = {os.path.abspath(p) for p in prefixes} | {os.path.realpath(p) for p in [*prefixes, sys.executable]}
    return [path for path in sorted(paths) if not any(path.startswith(other + "/") for other in paths)]


def closed_ancestor(path: str) -> str | None:
    """The first folder on the way to `path` that others may not search."""
    ancestors = [str(p) for p in reversed(Path(path).parents)]
    return next((p for p in ancestors if not os.stat(p).st_mode & stat.S_IXOTH), None)


def open_the_way(paths: list[str]) -> None:
    """Cover every closed ancestor by a skeleton that shows only the needed paths below it."""
    call("unshare", NEWNS)
    call("mount", None, "/", None, ctypes.c_ulong(REC | PRIVATE), None)
    hidden: dict[str, list[str]] = {}
    for path in paths:
        if ancestor := closed_ancestor(path):
            hidden.setdefault(ancestor, []).append(path)
    for ancestor, below in hidden.items():
        originals = {path: os.open(path, os.O_PATH) for path in below}
        call("mount", "skeleton", ancestor, "tmpfs", ctypes.c_ulong(0), "mode=755,size=1m")
        for path, fd in originals.items():
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                os.makedirs(path)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                Path(path).touch()
            call("mount", f"/proc/self/fd/{fd}", path, None, ctypes.c_ulong(BIND | REC), None)
            os.close(fd)


# ---------------------------------------------------------------- becoming that user
def forbid_user_namespaces() -> None:
    """A filter that the command inherits; root needs no `no_new_privs` for it, so the command starts without."""
    column, architecture = seccomp._MACHINES[os.uname().machine]
    refuse = seccomp._op(seccomp._LOAD, seccomp._ARGUMENTS) + seccomp._op(seccomp._ANY_BIT, NEWUSER, 0, 1)
    refuse += seccomp._op(seccomp._RETURN, seccomp._EPERM)
    numbers = [(272, 97)[column], (56, 220)[column]]  # unshare, clone
    code = seccomp._op(seccomp._LOAD, seccomp._ARCH) + seccomp._op(seccomp._EQUAL, architecture, 1, 0)
    code += seccomp._op(seccomp._RETURN, seccomp._KILL) + seccomp._op(seccomp._LOAD, seccomp._NUMBER)
    code += b"".join(seccomp._when(number, refuse) for number in numbers)
    code += seccomp._op(seccomp._EQUAL, 435, 0, 1) + seccomp._op(seccomp._RETURN, seccomp._ENOSYS)  # clone3
    code += seccomp._op(seccomp._RETURN, seccomp._ALLOW)
    call("prctl", 22, 2, ctypes.byref(seccomp._Program(len(code) // 8, code)), 0, 0)


def become(uid: int) -> None:
    if uid == 0:
        for capability in range(64):
            if capability not in CONTAINER_CAPABILITIES and LIBC.prctl(CAPBSET_DROP, capability, 0, 0, 0) != 0:
                break  # past the last one; the rest is lost with exec
        return
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def run(uid: int, command: list[str], user_namespaces: bool, home: str) -> int:
    place = os.getcwd()
    child = os.fork()
    if child == 0:
        try:
            open_the_way(needed())
            if not user_namespaces:
                forbid_user_namespaces()
            become(uid)
            call("prctl", PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            os.chdir(place)  # by its path: the old one may lie under the skeleton
            environment = {**os.environ, "HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"}
            os.execvpe(command[0], command, environment)
        except OSError as error:
            print(f"as_user: {error}", file=sys.stderr)
        finally:
            os._exit(127)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--no-user-namespaces", action="store_true")
    parser.add_argument("uid", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("a command is needed")
    if os.geteuid() != 0:
        print("as_user: only root can become another user; nothing was run", file=sys.stderr)
        return 3
    home = tempfile.mkdtemp(prefix=f"as-{options.uid}-")
    os.chown(home, options.uid, options.uid)
    os.chmod(home, 0o711)  # as /tmp, it may be crossed by users that the command makes
    try:
        return run(options.uid, options.command, not options.no_user_namespaces, home)
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(home)


if __name__ == "__main__":
    sys.exit(main())
