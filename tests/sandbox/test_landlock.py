"""What a process can still reach after `restrict`, tried in a live process; and the rights of each kernel version."""

import pytest
from fresh import printed

from mlexpert.sandbox import landlock

live = pytest.mark.skipif(landlock.abi() == 0, reason="no Landlock in this kernel")

CONFINED = """
import ctypes, errno, os, socket, stat, sys
from mlexpert.sandbox import landlock
folder, parent = sys.argv[1], os.getppid()
os.chdir(folder)
libraries = [p for p in ("/usr", "/bin", "/lib", "/lib64") if os.path.exists(p)]
def attempt(act, *arguments):
    try: return act(*arguments) or "ok"
    except OSError as error: return errno.errorcode[error.errno]
def write(path): open(path, "w").write("x")
def read(path): open(path, "rb").read(1)
def restrict():
    libc = ctypes.CDLL(None)
    libc.capset(ctypes.byref((ctypes.c_uint32 * 2)(0x20080522, 0)), ctypes.byref((ctypes.c_uint32 * 6)()))
    libc.prctl(38, 1, 0, 0, 0)  # no_new_privs, and before it no capabilities, as scripts
    landlock.restrict([*libraries, "shown"], ["open"])
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("shown", "open", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("content")
    (tmp_path / "open" / "out").symlink_to("../hidden/file")
    (tmp_path / "shown" / "in").symlink_to("../open/file")
    return tmp_path


@live
def test_files_are_readable_writable_or_out_of_reach(folder):
    source = (
        CONFINED
        + """
restrict()
print(*(attempt(read, f"{place}/file") for place in ("shown", "open", "hidden")), attempt(read, "/etc/passwd"))
print(*(attempt(write, f"{place}/file") for place in ("shown", "open", "hidden")))
print(*(attempt(write, f"{place}/new") for place in ("shown", "open", "hidden")))
print(*(attempt(os.listdir, place) != "EACCES" for place in ("shown", "open", "hidden", "/")))
print(attempt(read, "open/out"), attempt(read, "shown/in"), attempt(os.truncate, "hidden/file", 0))
"""
    )
    lines = printed(source, folder).splitlines()
    assert lines[:4] == ["ok ok EACCES EACCES", "EACCES ok EACCES", "EACCES ok EACCES", "True True False False"]
    assert lines[4] == f"EACCES ok {'EACCES' if landlock.abi() >= landlock.FILES_SINCE else 'ok'}"


@live
def test_files_cannot_be_carried_over_the_border(folder):
    source = (
        CONFINED
        + """
restrict()
print(attempt(os.link, "hidden/file", "open/link"), attempt(os.rename, "shown/file", "open/mine"))
print(attempt(os.mkfifo, "open/fifo"), attempt(os.mknod, "open/null", stat.S_IFCHR | 0o666, os.makedev(1, 3)))
print(attempt(os.mkdir, "open/d"), attempt(os.rename, "open/file", "open/d/file"), attempt(os.unlink, "open/d/file"))
"""
    )
    border, kinds, inside = printed(source, folder).splitlines()
    assert set(border.split()) <= {"EACCES", "EXDEV"} and inside == "ok ok ok"
    assert kinds in ("ok EACCES", "ok EPERM")  # as a plain user no device can be made anyway


@live
def test_programs_run_and_devices_work(folder):
    source = (
        CONFINED
        + """
import subprocess, tempfile
restrict()
for device in ("/dev/null", "/dev/zero", "/dev/urandom"): read(device)
write("/dev/null")
print(len(os.urandom(4)), attempt(read, "/proc/self/status"), attempt(read, "/proc/cpuinfo"), os.cpu_count() > 0)
print(subprocess.run(["/bin/sh", "-c", "echo run > /dev/null && echo sub"], capture_output=True, text=True).stdout)
"""
    )
    assert printed(source, folder) == "4 ok ok True\nsub\n\n"


@live
def test_other_processes_are_out_of_reach(folder):
    source = (
        CONFINED
        + """
restrict()
secrets, links = ("environ", "maps", "mem", "smaps_rollup"), ("cwd", "root", "exe", "fd/0")
print(*{attempt(read, f"/proc/{pid}/{name}") for pid in (parent, 1) for name in secrets} - {"EPERM", "EACCES"})
print(*{attempt(os.readlink, f"/proc/{pid}/{name}") for pid in (parent, 1) for name in links} - {"EPERM", "EACCES"})
print(attempt(write, f"/proc/{parent}/oom_score_adj"), attempt(read, f"/proc/{parent}/fd/0"), flush=True)
if os.fork() == 0:
    print(attempt(read, f"/proc/{os.getpid()}/statm"), attempt(read, "/proc/self/maps"), flush=True)
    os._exit(0)
os.wait()
print(attempt(os.kill, parent, 0), attempt(os.kill, os.getpid(), 0))
"""
    )
    secrets, links, files, own, signals = printed(source, folder).splitlines()
    assert (secrets, links, files, own) == ("", "", "EACCES EACCES", "ok ok")
    assert signals == ("EPERM ok" if landlock.abi() >= landlock.SIGNALS_SINCE else "ok ok")


@pytest.mark.skipif(landlock.abi() < 6, reason="Landlock before version 6 governs no abstract sockets")
def test_sockets_without_a_file_are_out_of_reach(folder):
    source = (
        CONFINED
        + """
server, tcp = socket.socket(socket.AF_UNIX), socket.socket()
server.bind("\\0" + folder[-90:]); server.listen()
tcp.bind(("127.0.0.1", 0)); tcp.listen()
if os.fork() == 0:
    restrict()
    print(attempt(socket.socket(socket.AF_UNIX).connect, server.getsockname()))
    print(attempt(socket.socket().connect, tcp.getsockname()), attempt(socket.socket().bind, ("127.0.0.1", 0)))
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""
    )
    assert printed(source, folder) == "EPERM\nEACCES EACCES\n"


@pytest.mark.parametrize("version", range(1, landlock.abi() + 1))
def test_the_rules_for_older_kernels_hold_too(folder, version):
    source = (
        CONFINED
        + f"""
landlock.abi = lambda: {version}
restrict()
print(*(attempt(read, place + "/file") for place in ("shown", "open", "hidden")), attempt(write, "hidden/new"))
print(attempt(write, "open/new"), attempt(os.mkdir, "open/d"), attempt(os.truncate, "hidden/file", 0))
print(attempt(os.kill, parent, 0), attempt(socket.socket().bind, ("127.0.0.1", 0)), attempt(write, "/dev/null"))
"""
    )
    emptied = "EACCES" if version >= landlock.FILES_SINCE else "ok"
    signalled = "EPERM" if version >= landlock.SIGNALS_SINCE else "ok"
    bound = "EACCES" if version >= 4 else "ok"
    expected = f"ok ok EACCES EACCES\nok ok {emptied}\n{signalled} {bound} ok\n"
    assert printed(source, folder) == expected


@live
def test_it_holds_for_what_is_started_and_cannot_be_lifted(folder):
    source = (
        CONFINED
        + """
import subprocess
restrict()
landlock.restrict(["/usr", "shown"], ["open"])
print(subprocess.run(["/bin/sh", "-c", "cat hidden/file; cat open/file"], capture_output=True, text=True).stdout)
print(attempt(landlock.restrict, [folder], []), attempt(read, "hidden/file"))
"""
    )
    assert printed(source, folder) == "content\nok EACCES\n"


@live
def test_a_missing_folder_is_an_error(folder):
    assert "FileNotFoundError" in printed(
        CONFINED + "try: landlock.restrict(['nowhere'], [])\nexcept OSError as error: print(repr(error))", folder
    )


@pytest.mark.parametrize(("version", "rights"), [(1, 13), (2, 14), (3, 15), (4, 15), (5, 16), (7, 16), (99, 16)])
def test_no_right_is_named_that_a_kernel_does_not_know(version, rights):
    assert landlock._handled(version) == (1 << rights) - 1


def test_a_kernel_without_it_is_version_0(monkeypatch):
    monkeypatch.setattr(landlock, "_syscall", lambda *_: -1)
    assert landlock.abi() == 0
    with pytest.raises(OSError, match="no Landlock"):
        landlock.restrict([], [])
