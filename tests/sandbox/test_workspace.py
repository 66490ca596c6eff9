"""Folders of scripts: what may be collected from them, and that they can be emptied whatever a script built."""

import os
import stat
import types

import pytest

from mlexpert.sandbox import disk, isolation, workspace

ME = os.geteuid()


def deep_tree(folder, depth):
    """Deeper than any path may be long; made and left by way of descriptors."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("inner-folder", dir_fd=fd)
        inner = os.open("inner-folder", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def test_a_folder_is_emptied_whatever_was_built_in_it(tmp_path):
    deep_tree(tmp_path, 3000)
    (tmp_path / "closed/inner").mkdir(parents=True)
    (tmp_path / "closed/inner/file").touch()
    (tmp_path / "closed/inner").chmod(0)
    (tmp_path / "closed").chmod(0)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc")
    with open(os.path.join(os.fsencode(tmp_path), b"\xff\xfe" + b"x" * 250), "w"):
        pass
    tmp_path.chmod(0)
    workspace.empty(str(tmp_path), ME)
    assert os.listdir(tmp_path) == [] and os.path.isdir("/etc")


@pytest.mark.skipif(ME != 0, reason="only root has files of others to keep")
def test_what_belongs_to_others_stays(tmp_path):
    (tmp_path / "mine").touch()
    (tmp_path / "other").touch()
    os.chown(tmp_path / "mine", 50_000, 50_000)
    tmp_path.chmod(0o1777)
    workspace.empty(str(tmp_path), 0)
    assert os.listdir(tmp_path) == ["mine"]


def test_only_plain_data_is_collected(tmp_path):
    (tmp_path / "good.csv").write_text("1\n")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    (tmp_path / "twice").write_text("x")
    os.link(tmp_path / "twice", tmp_path / "again")
    (tmp_path / "link").symlink_to(tmp_path / "good.csv")
    os.mkfifo(tmp_path / "pipe")
    names = ["good.csv", "sparse", "twice", "link", "pipe", "missing"]
    found, refused = workspace.collect(str(tmp_path), names, 1, ME)
    assert [(name, os.read(fd, 9), size) for name, fd, size in found] == [("good.csv", b"1\n", 2)]
    assert {name: why.split()[0] for name, why in refused.items()} == {
        "sparse": "larger",
        "twice": "has",
        "link": "cannot",
        "pipe": "not",
    }
    os.close(found[0][1])


def test_blocks_past_the_end_count_as_size():
    info = types.SimpleNamespace(st_mode=stat.S_IFREG, st_nlink=1, st_size=1, st_blocks=6144)
    assert workspace._fault(info, 1) == "larger than 1 MB" and workspace._fault(info, 3) == ""


@pytest.fixture
def inputs(tmp_path):
    folder = tmp_path / "public"
    (folder / "images").mkdir(parents=True)
    for name in ("open.csv", "closed.csv", "images/a.png"):
        (folder / name).write_text("x")
        (folder / name).chmod(0o644)
    (folder / "closed.csv").chmod(0o600)
    return folder


def test_files_that_others_may_read_are_shown_and_the_rest_is_copied(inputs):
    layers = isolation.Layers("bind", namespaces=True, own_uid=True)
    found = {entry.name: entry.shown for entry in workspace.inputs(str(inputs), layers, 50_000)}
    assert found == {"open.csv": True, "closed.csv": False, "images": True}
    (inputs / "images/a.png").chmod(0o600)
    found = {entry.name: entry.shown for entry in workspace.inputs(str(inputs), layers, 50_000)}
    assert found == {"open.csv": True, "closed.csv": False, "images": False}


def test_copies_are_the_scripts_own_and_whole(inputs, tmp_path):
    layers = isolation.Layers("copy")
    (tmp_path / "work").mkdir()
    given = workspace.inputs(str(inputs), layers, ME)
    assert not any(entry.shown for entry in given)
    workspace.fill(str(tmp_path / "work"), given, b"pass", layers, ME)
    assert sorted(os.listdir(tmp_path / "work")) == ["closed.csv", "images", "open.csv", "script.py"]
    assert (tmp_path / "work/images/a.png").read_text() == "x"
    assert stat.S_IMODE((tmp_path / "work/open.csv").stat().st_mode) == 0o400


def test_a_link_in_the_public_folder_is_refused(inputs):
    (inputs / "answers.csv").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match=r"answers.csv is a link"):
        workspace.inputs(str(inputs), isolation.Layers("copy"), ME)


# ---------------------------------------------------------------- counting disk use
def over(folder, megabytes):
    return disk.over([str(folder)], [os.getpid()], ME, megabytes << 20)


def test_disk_use_counts_blocks_once_and_deleted_files_too(tmp_path):
    assert not over(tmp_path, 1)
    (tmp_path / "a").write_bytes(bytes(1536 << 10))
    for i in range(20):
        os.link(tmp_path / "a", tmp_path / f"link{i}")
    assert over(tmp_path, 1) and not over(tmp_path, 2)
    with open(tmp_path / "gone", "wb", buffering=0) as file:
        os.unlink(tmp_path / "gone")
        file.write(bytes(1 << 20))
        assert over(tmp_path, 2) and not over(tmp_path, 3)
    assert not over(tmp_path, 2)


def test_many_files_and_endless_paths_are_too_much(tmp_path):
    (tmp_path / "many").mkdir()
    for i in range(disk.INODES + 1):
        (tmp_path / "many" / str(i)).touch()
    assert over(tmp_path / "many", 1000)
    (tmp_path / "deep").mkdir()
    deep_tree(tmp_path / "deep", 400)
    assert over(tmp_path / "deep", 1000)
    workspace.empty(str(tmp_path), ME)
