"""A mark names one process for ever, and only what is known to be dead counts as dead."""

import os
import re
import subprocess

from mlexpert.sandbox import cgroup, owner, scratch


def ended():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def changed(**fields):
    names = ("boot", "namespace", "pid", "start")
    return "-".join({**dict(zip(names, owner.mark().split("-"), strict=True)), **fields}.values())


def test_a_mark_is_the_same_as_long_as_its_process_lives_and_that_of_no_other():
    assert owner.mark() == owner.mark() and re.fullmatch(owner.MARK, owner.mark())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, owner.mark().encode())
        os._exit(0)
    os.waitpid(child, 0)
    other = os.read(read, 1000).decode()
    os.close(read)
    os.close(write)
    assert other != owner.mark() and owner.dead(other)


def test_who_is_dead():
    assert not owner.dead(owner.mark())
    assert owner.dead(changed(pid=str(ended()))) and owner.dead(changed(start="1"))


def test_who_cannot_be_seen_is_not_judged():
    nobody = str(ended())
    assert not owner.dead(changed(namespace="1", pid=nobody))
    assert owner.dead(changed(boot="00000000"))
    assert not owner.dead(changed(boot="00000000"), local=False)
    for text in ("", "x", f"{owner.mark()}-1", owner.mark().replace("-", ":"), changed(pid="one")):
        assert not owner.dead(text)


def test_folders_and_groups_carry_it():
    folder = scratch.make()
    try:
        assert folder in scratch.mine() and owner.mark() in folder.name
    finally:
        folder.rmdir()
    assert cgroup.owner_of(cgroup.own_name("run")) == owner.mark()
    assert cgroup.owner_of("mlexpert-something-else") == cgroup.owner_of("user.slice") == ""
