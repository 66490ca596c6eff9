"""What a container sees of a public folder: the same names and bytes, readable by anybody, and nothing behind links."""

import os
from pathlib import Path

from mlexpert.sandbox.staging import signature, stage


def make(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_same_files_and_none_of_the_job_before(tmp_path):
    staged = tmp_path / "staged"
    staged.mkdir()
    for name, files in (("a", {"x.csv": "1", "deep/er/y.txt": "2"}), ("b", {"z.csv": "3", "deep": "a file now"})):
        stage(make(tmp_path / name, files), staged)
        assert tree(staged) == files


def test_a_private_file_becomes_a_readable_copy_and_stays_private(tmp_path):
    inputs, staged = make(tmp_path / "in", {"secret.csv": "1", "folder/open.csv": "2"}), tmp_path / "staged"
    (inputs / "secret.csv").chmod(0o600)
    (inputs / "folder").chmod(0o700)
    staged.mkdir()
    stage(inputs, staged)
    assert tree(staged) == {"secret.csv": "1", "folder/open.csv": "2"}
    assert (inputs / "secret.csv").stat().st_mode & 0o777 == 0o600
    assert all(path.stat().st_mode & 0o004 for path in staged.rglob("*"))
    assert not any(path.stat().st_mode & 0o022 for path in staged.rglob("*"))


def test_a_link_stays_a_link(tmp_path):
    outside = make(tmp_path / "private", {"answers.csv": "42"})
    inputs, staged = make(tmp_path / "in", {"folder/x.csv": "1"}), tmp_path / "staged"
    (inputs / "folder/answers.csv").symlink_to(outside / "answers.csv")
    (inputs / "folder/all").symlink_to(outside)
    staged.mkdir()
    stage(inputs, staged)
    links = {name: os.readlink(staged / "folder" / name) for name in ("answers.csv", "all")}
    assert links == {"answers.csv": str(outside / "answers.csv"), "all": str(outside)}


def test_every_change_changes_the_signature(tmp_path):
    inputs = make(tmp_path / "in", {"x.csv": "1", "folder/y.csv": "2"})
    seen = [signature(inputs)]
    assert signature(inputs) == seen[0]
    os.utime(inputs / "x.csv", ns=(1, 1))
    seen.append(signature(inputs))
    (inputs / "folder/y.csv").write_text("longer")
    seen.append(signature(inputs))
    (inputs / "folder/y.csv").rename(inputs / "folder/z.csv")
    seen.append(signature(inputs))
    (inputs / "folder/z.csv").unlink()
    seen.append(signature(inputs))
    assert len(set(seen)) == len(seen)
