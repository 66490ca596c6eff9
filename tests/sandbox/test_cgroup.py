"""Groups of this machine where it lets us make some, and version 2 over folders that imitate it.

The imitation is written from the kernel's documentation (admin-guide/cgroup-v2): which files a new group has, where
controllers may be handed out, what the counters look like. It proves that the right files are read and written, not
that a kernel obeys; the live tests prove that, on whichever version the machine has.
"""

import os
import shutil
from pathlib import Path

import pytest
from fresh import printed

from mlexpert.sandbox import cgroup, owner

HIERARCHY, REASON = cgroup.find()
live = pytest.mark.skipif(HIERARCHY is None, reason=f"no groups can be made here: {REASON}")

MEMBER = """
import os, resource, signal, sys, time
from mlexpert.sandbox import cgroup, processes
hierarchy, reason = cgroup.find()
group = cgroup.make(hierarchy, cgroup.own_name("test"), memory_bytes=40 << 20, pids=10)
def member(body):
    child = os.fork()
    if child == 0:
        cgroup.enter(group)
        body()
        os._exit(0)
    return child
def code(child): return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def ours():
    """All groups of our names beside or below this process's."""
    return {name for place in HIERARCHY.places for name in os.listdir(place) if cgroup.owner_of(name)}


# ---------------------------------------------------------------- live
@live
def test_finding_a_place_leaves_nothing():
    name = cgroup.own_name("trial")
    assert cgroup.find() == (HIERARCHY, "") and name not in ours()


@live
def test_a_process_enters_a_group_whole_and_so_do_its_children():
    source = (
        MEMBER
        + """
def both():
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(group.name not in open("/proc/self/cgroup").read())
    born_there = code(grandchild) == 0
    mine = sum(group.name in line for line in open("/proc/self/cgroup"))
    members = open(group.folders[0] + "/cgroup.procs").read().split()
    os._exit(not born_there or mine != len(group.folders) or str(os.getpid()) not in members)
print(code(member(both)))
cgroup.remove(group)
"""
    )
    assert printed(source) == "0\n"


@live
def test_memory_is_limited_for_the_whole_group_and_kills_are_counted():
    source = (
        MEMBER
        + """
before = cgroup.oom_kills(group)
def parent():
    children = [os.fork() for _ in range(1)]
    if children[0] == 0:
        kept = b"x" * (100 << 20); os._exit(0)
    os._exit(0 if os.waitstatus_to_exitcode(os.wait()[1]) == -9 else 1)
print(before, code(member(parent)), cgroup.oom_kills(group) >= 1, 20 << 20 < cgroup.peak_bytes(group) <= 40 << 20)
print(code(member(lambda: bytes(b"x" * (10 << 20)))))
cgroup.remove(group)
print(any(os.path.exists(folder) for folder in group.folders))
"""
    )
    assert printed(source) == "0 0 True True\n0\nFalse\n"


@live
def test_processor_time_is_that_of_all_that_ever_ran_in_it():
    source = (
        MEMBER
        + """
def burn():
    until = time.process_time() + 0.2
    while time.process_time() < until: pass
for _ in range(2): print(code(member(burn)))
print(cgroup.cpu_s(group) >= 0.3)
cgroup.remove(group)
"""
    )
    assert printed(source) == "0\n0\nTrue\n"


@pytest.mark.skipif(HIERARCHY is None or "pids" not in HIERARCHY.folders, reason=REASON or "no pids controller")
def test_a_fork_bomb_is_limited_counted_and_killed():
    source = (
        MEMBER
        + """
ready, tell = os.pipe()
def bomb():
    while True:
        try:
            if os.fork() == 0: os.setsid()
        except OSError: os.write(tell, b"x")
child = member(bomb)
os.read(ready, 1)
print(2 <= len(cgroup._members(group)) <= 10, cgroup.refused_forks(group) > 0)
try: cgroup.remove(group, 0.01)
except OSError as error: print("busy", all(os.path.exists(folder) for folder in group.folders))
cgroup.kill(group)
print(cgroup._members(group), code(child))
cgroup.remove(group)
print(any(os.path.exists(folder) for folder in group.folders))
"""
    )
    assert printed(source) == "True True\nbusy True\n[] -9\nFalse\n"


@live
def test_what_dead_owners_left_is_swept_and_the_living_keep_theirs():
    orphan = MEMBER + "member(lambda: (os.setsid(), os.closerange(0, 9), time.sleep(600)))\nprint(group.name)"
    left = printed(orphan).strip()
    mine = cgroup.make(HIERARCHY, cgroup.own_name("mine"), 1 << 20, 4)
    elsewhere = cgroup.make(HIERARCHY, f"mlexpert-{owner.mark()[:8]}-1-{2**22 + 1}-5-other-namespace", 1 << 20, 4)
    try:
        cgroup.sweep(HIERARCHY)  # or any sandbox that starts at this moment
        assert left not in ours() and mine.name in ours()
        assert all(os.path.exists(folder) for folder in elsewhere.folders)
    finally:
        cgroup.remove(mine)
        cgroup.remove(elsewhere)
    cgroup.remove(mine)  # a second time does no harm


@live
def test_what_was_left_in_a_group_beside_is_swept_too():
    source = (
        MEMBER
        + """
def owner():
    place, _ = cgroup.find()
    cgroup.make(place, cgroup.own_name("left"), 1 << 20, 4)
def sweeper():
    place, _ = cgroup.find()
    cgroup.sweep(place)
other = cgroup.make(hierarchy, cgroup.own_name("other"), memory_bytes=40 << 20, pids=10)
ended = code(member(owner))
group, first = other, group
print(ended, code(member(sweeper)))
cgroup.remove(first)  # would be refused if something were left in it
cgroup.remove(other)
"""
    )
    assert printed(source) == "0 0\n"


@live
def test_a_group_that_cannot_be_made_leaves_nothing():
    name = cgroup.own_name("bad")
    with pytest.raises(OSError):
        cgroup.make(HIERARCHY, name, memory_bytes=-5, pids=4)
    assert name not in ours()


@live
def test_it_works_from_inside_of_a_group():
    source = (
        MEMBER
        + """
def nested():
    inner, reason = cgroup.find()
    print(reason or inner.version == hierarchy.version, flush=True)
print(code(member(nested)))
cgroup.remove(group)
"""
    )
    assert printed(source) == "True\n0\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try it as another user")
def test_a_plain_user_gets_a_reason():
    source = "import os; from mlexpert.sandbox import cgroup; os.setuid(65534); print(cgroup.find())"
    found, _, reason = printed(source).strip("()\n").partition(", ")
    assert found == "None" and "cgroup version" in reason


# ---------------------------------------------------------------- version 2, imitated
FILES = {
    "memory": {
        "memory.max": "max",
        "memory.swap.max": "max",
        "memory.peak": "0",
        "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
    },
    "pids": {"pids.max": "max", "pids.events": "max 0\n"},
    "cpu": {},
}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A tree of groups in `tree` and a /proc that says it is mounted; groups get their files as a kernel gives them."""
    tree, proc = tmp_path / "tree", tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    make, remove = os.mkdir, os.rmdir

    def gone(folder, **options):
        if not options and Path(folder).is_relative_to(tree):
            shutil.rmtree(folder)
        else:
            remove(folder, **options)

    def born(folder, *mode):
        make(folder, *mode)
        if Path(folder).is_relative_to(tree):
            fill(Path(folder))

    def fill(folder):
        handed = (folder.parent / "cgroup.subtree_control").read_text().split() if folder != tree else list(FILES)
        for controller in handed:
            for name, content in FILES[controller].items():
                if folder != tree:
                    (folder / name).write_text(content)
        (folder / "cgroup.controllers").write_text(" ".join(handed))
        (folder / "cgroup.subtree_control").write_text("")
        (folder / "cgroup.procs").write_text("")
        (folder / "cpu.stat").write_text("usage_usec 0\nuser_usec 0\nsystem_usec 0\n")

    monkeypatch.setattr(os, "mkdir", born)
    monkeypatch.setattr(os, "rmdir", gone)
    monkeypatch.setattr(cgroup, "_entered_by_child", lambda group: True)
    os.mkdir(tree)
    mount = f"30 24 0:27 / {tree} rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    (proc / "self/mountinfo").write_text("22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" + mount)
    return Kernel(tree, proc)


class Kernel:
    def __init__(self, tree, proc):
        self.tree, self.proc = tree, proc

    def place(self, path, handed=()):
        """This process is in `path`; the named groups on the way hand out memory and pids."""
        (self.proc / "self/cgroup").write_text(f"0::{path}\n")
        folder = self.tree
        for name in ["", *path.strip("/").split("/")]:
            folder = folder / name
            if not folder.exists():
                os.mkdir(folder)
            if str(folder).removeprefix(str(self.tree)) in handed:
                (folder / "cgroup.subtree_control").write_text("cpu memory pids")

    def find(self):
        return cgroup.find(str(self.proc))


def test_beside_our_own_group_where_the_parent_hands_out_controllers(kernel):
    kernel.place("/user.slice/app.slice/run.scope", handed=("", "/user.slice", "/user.slice/app.slice"))
    hierarchy, reason = kernel.find()
    place = str(kernel.tree / "user.slice/app.slice")
    assert reason == "" and hierarchy.version == 2 and hierarchy.places == [place]
    assert [name for name in os.listdir(place) if "mlexpert" in name] == []


def test_below_our_own_group_where_it_hands_out_controllers_itself(kernel):
    kernel.place("/", handed=("",))
    hierarchy, _ = kernel.find()
    assert hierarchy.places == [str(kernel.tree)]


def test_nowhere_else_because_limits_further_up_must_hold(kernel):
    kernel.place("/a/b/c", handed=("", "/a"))
    assert kernel.find()[0] is None
    switches = [path.read_text() for path in kernel.tree.rglob("cgroup.subtree_control")]
    assert switches.count("cpu memory pids") == 2  # nothing was switched on
    kernel.place("/a/b", handed=("", "/a"))
    assert kernel.find()[0].places == [str(kernel.tree / "a")]


def test_the_reason_says_what_to_do(kernel):
    kernel.place("/a/b", handed=("",))
    (kernel.tree / "a/b/cgroup.controllers").write_text("memory pids")
    hierarchy, reason = kernel.find()
    assert hierarchy is None and "systemd-run" in reason and str(kernel.tree / "a/b") in reason


def test_limits_and_counters_are_in_the_files_of_version_2(kernel):
    kernel.place("/a", handed=("",))
    group = cgroup.make(kernel.find()[0], "mlexpert-x", 300 << 20, 33)
    folder = kernel.tree / "mlexpert-x"
    assert (folder / "memory.max").read_text() == str(300 << 20) and (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "pids.max").read_text() == "33"
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n")
    (folder / "pids.events").write_text("max 7\n")
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n")
    (folder / "memory.peak").write_text("4096\n")
    assert (cgroup.oom_kills(group), cgroup.refused_forks(group)) == (2, 7)
    assert (cgroup.cpu_s(group), cgroup.peak_bytes(group)) == (2.5, 4096)
    (folder / "memory.peak").unlink()  # before Linux 5.19
    assert cgroup.peak_bytes(group) is None
    cgroup.enter(group)
    assert (folder / "cgroup.procs").read_text() == "0"
    cgroup.remove(group)
    assert not folder.exists()


def test_a_whole_group_dies_by_one_file(kernel):
    kernel.place("/a", handed=("",))
    group = cgroup.make(kernel.find()[0], "mlexpert-x", 1 << 20, 3)
    folder = kernel.tree / "mlexpert-x"
    (folder / "cgroup.kill").write_text("")
    (folder / "cgroup.procs").write_text(f"{2**22 + 7}\n")
    with pytest.raises(TimeoutError, match=str(2**22 + 7)):
        cgroup.kill(group, 0.01)
    assert (folder / "cgroup.kill").read_text() == "1" and (folder / "pids.max").read_text() == "0"


# ---------------------------------------------------------------- where our own group is
@pytest.mark.parametrize(
    ("group", "root", "point", "folder"),
    [
        ("/", "/", "/sys/fs/cgroup", "/sys/fs/cgroup"),
        ("/a/b", "/", "/sys/fs/cgroup", "/sys/fs/cgroup/a/b"),
        ("/docker/1", "/docker/1", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory"),
        ("/docker/1/x", "/docker/1", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/x"),
        ("/docker/12", "/docker/1", "/sys/fs/cgroup/memory", None),
        ("/../outside", "/", "/sys/fs/cgroup", None),
        (None, "/", "/sys/fs/cgroup", None),
    ],
)
def test_the_folder_of_a_group_under_a_mount(group, root, point, folder):
    assert cgroup._folder(group, root, point) == folder


def test_version_1_has_a_tree_per_controller(tmp_path):
    (tmp_path / "self").mkdir()
    lines = ["4:memory:/job", "3:cpu,cpuacct:/job/a", "2:pids:/", "1:name=systemd:/s", "0::/"]
    (tmp_path / "self/cgroup").write_text("\n".join(lines))
    mounts = [
        r"41 31 0:30 / /sys/fs/cgroup/memory\040one rw - cgroup cgroup rw,memory",
        "42 31 0:31 / /c/cpu,cpuacct rw shared:3 - cgroup cgroup rw,cpu,cpuacct",
        "43 31 0:32 /elsewhere /c/pids rw - cgroup cgroup rw,pids",
        "44 31 0:33 / /c/systemd rw - cgroup cgroup rw,xattr,name=systemd",
    ]
    (tmp_path / "self/mountinfo").write_text("\n".join(mounts))
    (hierarchy,), reason = cgroup._version_1(str(tmp_path))
    assert reason == "" and hierarchy.version == 1
    assert hierarchy.folders == {"memory": "/sys/fs/cgroup/memory one/job", "cpuacct": "/c/cpu,cpuacct/job/a"}
