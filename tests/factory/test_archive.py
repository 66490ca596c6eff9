"""Archives of strangers: whole ones come out the same whatever packed them, others are refused and leave nothing."""

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile

import pytest

from mlexpert.factory import archive
from mlexpert.factory.archive_members import Limits
from mlexpert.factory.records import Quarantine

FILES = {"train.csv": b"id,x,y\n1,2,3\n", "test.csv": b"id,x\n2,3\n", "images/a.png": b"\x89PNG" + bytes(300)}
SMALL = Limits(allowance=200_000, ratio=20)


def zipped(path, files=FILES, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def tarred(path, mode, files=FILES):
    with tarfile.open(path, mode) as file:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 86_400
            file.addfile(member, io.BytesIO(content))
    return path


def found(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(path, folder, limits=None):
    """The reason, once it is seen that nothing is left."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(Quarantine) as caught:
        archive.unpack(path, folder, limits)
    assert sorted(folder.parent.rglob("*")) == before
    assert caught.value.stage == "fetch" and path.name in caught.value.reason
    return caught.value.reason


@pytest.mark.parametrize("name, mode", [("a.tar", "w"), ("a.tar.gz", "w:gz"), ("a.tgz", "w:gz"),
                                        ("a.tar.bz2", "w:bz2"), ("a.tar.xz", "w:xz"), ("a.zip", ""),
                                        ("no-suffix", ""), ("lies.zip", "w:gz")])  # fmt: skip
def test_what_went_in_comes_out(tmp_path, name, mode):
    path = tarred(tmp_path / name, mode) if mode else zipped(tmp_path / name)
    done = archive.unpack(path, tmp_path / "out")
    assert found(tmp_path / "out") == FILES
    assert (done.files, done.bytes) == (3, sum(map(len, FILES.values())))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_every_method_that_zipfile_knows(tmp_path, method):
    archive.unpack(zipped(tmp_path / "a.zip", compression=method), tmp_path / "out")
    assert found(tmp_path / "out") == FILES


@pytest.mark.parametrize("pack, suffix", [(gzip.compress, "gz"), (bz2.compress, "bz2"), (lzma.compress, "xz")])
def test_a_single_table(tmp_path, pack, suffix):
    (tmp_path / f"train.csv.{suffix}").write_bytes(pack(FILES["train.csv"]))
    archive.unpack(tmp_path / f"train.csv.{suffix}", tmp_path / "out")
    assert found(tmp_path / "out") == {"train.csv": FILES["train.csv"]}


def test_times_and_permissions_are_not_taken_over(tmp_path):
    member = zipfile.ZipInfo("run.sh", (1999, 1, 1, 0, 0, 0))
    member.external_attr = (stat.S_IFREG | 0o4777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr(member, "x")
    archive.unpack(tmp_path / "a.zip", tmp_path / "out")
    facts = (tmp_path / "out" / "run.sh").stat()
    assert facts.st_mtime > 1_000_000_000 and not facts.st_mode & 0o7111


# ---------------------------------------------------------------- archives inside
def test_archives_inside_are_opened_where_they_lie(tmp_path):
    inner = zipped(tmp_path / "inner.zip", {"train.csv": b"a\n1\n"}).read_bytes()
    images = zipped(tmp_path / "i.zip", {"1.png": b"1", "2.png": b"2"}).read_bytes()
    same = zipped(tmp_path / "s.zip", {"test/1.png": b"1", "test/2.png": b"2"}).read_bytes()
    table = gzip.compress(b"b\n1\n")
    files = {
        "train.csv.zip": inner,
        "images.zip": images,
        "test.zip": same,
        "deep/x.csv.gz": table,
        "scan.nii.gz": table,
    }
    done = archive.unpack(zipped(tmp_path / "a.zip", files), tmp_path / "out")
    assert found(tmp_path / "out") == {
        "train.csv": b"a\n1\n", "images/1.png": b"1", "images/2.png": b"2", "test/1.png": b"1", "test/2.png": b"2",
        "deep/x.csv": b"b\n1\n", "scan.nii.gz": table,
    }  # fmt: skip
    assert sorted(done.opened) == ["deep/x.csv.gz", "images.zip", "test.zip", "train.csv.zip"]


def test_the_same_archive_twice_is_unpacked_twice(tmp_path):
    inner = zipped(tmp_path / "inner.zip", {"train.csv": b"a\n1\n"}).read_bytes()
    outer = zipped(tmp_path / "a.zip", {"train.csv.zip": inner})
    first, second = (archive.unpack(outer, tmp_path / name) for name in ("one", "two"))
    assert found(first.folder) == found(second.folder) == {"train.csv": b"a\n1\n"}
    assert (first.opened, first.files) == (second.opened, second.files)


def test_a_twin_with_the_same_content_is_left_out_and_another_is_refused(tmp_path):
    inner = zipped(tmp_path / "inner.zip", {"train.csv": b"a\n1\n"}).read_bytes()
    done = archive.unpack(
        zipped(tmp_path / "a.zip", {"train.csv.zip": inner, "train.csv": b"a\n1\n"}), tmp_path / "out"
    )
    assert found(done.folder) == {"train.csv": b"a\n1\n"} and "same content" in done.skipped[0]
    reason = refused(zipped(tmp_path / "b.zip", {"train.csv.zip": inner, "train.csv": b"other"}), tmp_path / "no")
    assert "train.csv.zip in it and train.csv beside it differ" in reason


def test_too_deep(tmp_path):
    content = zipped(tmp_path / "0.zip").read_bytes()
    for depth in range(1, 6):
        content = zipped(tmp_path / "n.zip", {f"level{depth}.zip": content}).read_bytes()
    assert "archives lie more than 3 deep" in refused(tmp_path / "n.zip", tmp_path / "out")


def test_7z_inside_is_refused_unless_its_content_is_there_too(tmp_path):
    seven = b"7z\xbc\xaf\x27\x1c" + bytes(50)
    reason = refused(zipped(tmp_path / "a.zip", {"train.7z": seven, "test.csv": b"x"}), tmp_path / "out")
    assert "train.7z in it is a 7z archive" in reason
    done = archive.unpack(zipped(tmp_path / "b.zip", {"train.csv.7z": seven, "train.csv": b"x"}), tmp_path / "both")
    assert found(done.folder) == {"train.csv": b"x"} and "train.csv.7z" in done.skipped[0]


# ---------------------------------------------------------------- refused
@pytest.mark.parametrize("name", ["../evil.csv", "/etc/evil.csv", "a/../../evil.csv", "C:\\evil.csv", "..\\evil.csv"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_that_climb_out(tmp_path, kind, name):
    files = {"train.csv": b"x", name: b"evil"}
    path = zipped(tmp_path / "a.zip", files) if kind == "zip" else tarred(tmp_path / "a.tar.gz", "w:gz", files)
    (tmp_path / "sub").mkdir()
    assert "outside of the folder" in refused(path, tmp_path / "sub" / "out")
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar(tmp_path, kind):
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, "/etc/passwd"
        file.addfile(member)
    assert "'link' is a link or a device" in refused(tmp_path / "a.tar", tmp_path / "out")


def test_links_in_a_zip(tmp_path):
    member = zipfile.ZipInfo("link")
    member.create_system, member.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr(member, "/etc")
        file.writestr("link/passwd", "evil")
    assert "'link' is a link or a device" in refused(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("a.csv", "a.csv"), ("a", "a/b.csv"), ("a.csv", "./a.csv"), ("a\\b.csv", "a/b.csv")])
def test_names_that_occur_twice(tmp_path, names):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for name in names:
            file.writestr(name, "x")
    assert "is in it twice" in refused(tmp_path / "a.zip", tmp_path / "out")


def test_bombs(tmp_path):
    flat = zipped(tmp_path / "flat.zip", {"zeros.csv": bytes(3_000_000)})
    assert "a zip bomb" in refused(flat, tmp_path / "out", SMALL)
    layer = zipped(tmp_path / "l.zip", {f"{n}.csv": bytes(400_000) for n in range(4)}).read_bytes()
    nested = zipped(tmp_path / "nested.zip", {f"{n}.zip": layer for n in range(8)})
    assert "a zip bomb" in refused(nested, tmp_path / "out", Limits(allowance=10_000_000, ratio=20))
    tar = tarred(tmp_path / "t.tar.gz", "w:gz", {"zeros.csv": bytes(3_000_000)})
    assert "a zip bomb" in refused(tar, tmp_path / "out", SMALL)
    (tmp_path / "z.csv.gz").write_bytes(gzip.compress(bytes(3_000_000)))
    assert "a zip bomb" in refused(tmp_path / "z.csv.gz", tmp_path / "out", SMALL)


def test_a_size_that_lies_is_not_believed(tmp_path):
    """The directory says ten bytes, a million come out."""
    path = zipped(tmp_path / "a.zip", {"zeros.csv": bytes(1_000_000)})
    content = path.read_bytes().replace((1_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(content)
    assert "damaged" in refused(path, tmp_path / "out", SMALL)


def test_totals(tmp_path):
    path = zipped(tmp_path / "a.zip", {"a.bin": os.urandom(5000), "b.bin": os.urandom(5000)})
    assert "more than 9,000 bytes come out" in refused(path, tmp_path / "out", Limits(total=9_000))
    assert "more than 1 files come out" in refused(path, tmp_path / "out", Limits(files=1))
    assert "the disk has no room" in refused(path, tmp_path / "out", Limits(reserve=1 << 60))
    assert archive.unpack(path, tmp_path / "out", Limits(total=10_000, files=2)).bytes == 10_000


@pytest.mark.parametrize("mode", ["zip", "w", "w:gz", "w:bz2", "w:xz"])
def test_half_a_download(tmp_path, mode):
    """Cut anywhere, an archive is refused: never fewer files without a word."""
    files = FILES | {"noise.bin": os.urandom(3000)}
    whole = zipped(tmp_path / "w", files) if mode == "zip" else tarred(tmp_path / "w", mode, files)
    content = whole.read_bytes()
    end = len(content) - (1024 * 9 if mode == "w" else 1)  # a plain tar is padded with zeros that nobody misses
    for cut in {600, 1536, len(content) // 2, end}:
        (tmp_path / "cut").write_bytes(content[:cut])
        reason = refused(tmp_path / "cut", tmp_path / "out")
        assert "half a download" in reason, cut


def test_damage_inside(tmp_path):
    content = bytearray(zipped(tmp_path / "a.zip", {"n.bin": os.urandom(2000)}, zipfile.ZIP_STORED).read_bytes())
    content[500] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(content)
    assert "damaged" in refused(tmp_path / "a.zip", tmp_path / "out")


def test_passwords_and_methods(tmp_path):
    path = zipped(tmp_path / "a.zip")
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    for place in (6, directory + 8):
        content[place] |= 1
    (tmp_path / "locked.zip").write_bytes(content)
    assert "locked with a password" in refused(tmp_path / "locked.zip", tmp_path / "out")
    content = bytearray(path.read_bytes())
    for place in (8, directory + 10):
        content[place] = 9
    (tmp_path / "other.zip").write_bytes(content)
    assert "packed with Deflate64" in refused(tmp_path / "other.zip", tmp_path / "out")


@pytest.mark.parametrize(
    "name, content, reason",
    [
        ("a.7z", b"7z\xbc\xaf\x27\x1c" + bytes(99), "a 7z archive, which is not opened here"),
        ("a.rar", b"Rar!\x1a\x07\x01\x00" + bytes(99), "a rar archive"),
        ("a.zst", b"\x28\xb5\x2f\xfd" + bytes(99), "a zstd archive"),
        ("a.zip", b"", "an empty file"),
        ("a.zip", b"<!DOCTYPE html><html>Sign in</html>", "a web page, not an archive"),
        ("a.zip", b"id,x\n1,2\n", "neither a zip nor a tar archive"),
        ("a.zip.crdownload", b"PK\x03\x04", "an unfinished download"),
    ],
)
def test_other_kinds_are_named(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    assert reason in refused(tmp_path / name, tmp_path / "out")


def test_nothing_and_no_place(tmp_path):
    assert "no such file" in refused(tmp_path / "none.zip", tmp_path / "out")
    assert "holds no file" in refused(zipped(tmp_path / "e.zip", {"__MACOSX/a": b"x"}), tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    assert "is not empty" in refused(zipped(tmp_path / "a.zip"), tmp_path / "full")


def test_headers_and_padding_of_a_tar_are_not_believed(tmp_path):
    """A header that claims a gigabyte, and a gigabyte of nothing after the end."""
    claims = tarfile.TarInfo("long")
    claims.type, claims.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(claims.tobuf(tarfile.GNU_FORMAT))
        for _ in range(40):
            file.write(bytes(1 << 20))
    assert "a header of" in refused(tmp_path / "a.tar.gz", tmp_path / "out")
    whole = tarred(tmp_path / "b.tar", "w").read_bytes()
    with gzip.open(tmp_path / "b.tar.gz", "wb", compresslevel=1) as file:
        file.write(whole)
        for _ in range(101):
            file.write(bytes(1 << 20))
    assert "nothing but padding" in refused(tmp_path / "b.tar.gz", tmp_path / "out")


# ---------------------------------------------------------------- as an origin
def leads(*paths):
    return archive.origin(paths, None).discover()


def fetched(path, folder):
    made = archive.origin([path], None)
    (lead,) = made.discover()
    return made.fetch(lead, folder)


def test_one_task_for_each_archive(tmp_path):
    zips = tmp_path / "zips"
    zips.mkdir()
    zipped(zips / "house prices (1).zip", FILES | {"docs/README.md": b"inside"})
    zipped(zips / "bikes.zip")
    (zips / "bikes.md").write_text("# Bikes")
    found = leads(zips)
    assert [lead.id for lead in found] == ["bikes", "house-prices-1"]
    assert not found[0].provenance.redistributable and found[0].provenance.source_dataset == "bikes"
    assert fetched(zips / "bikes.zip", tmp_path / "work").text == "# Bikes"
    raw = fetched(zips / "house prices (1).zip", tmp_path / "work")
    assert raw.text == "inside" and found_names(raw.folder) >= {"train.csv", "test.csv"}
    before = leads(zips)[0].digest()
    zipped(zips / "bikes.zip", {"train.csv": b"other"})
    assert leads(zips)[0].digest() != before


def found_names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_folder_that_was_unpacked_is_one_task(tmp_path):
    table = zipped(tmp_path / "t.zip", {"train.csv": b"a\n1\n"}).read_bytes()
    for name, files in {
        "one": {"train.csv.zip": table, "test.zip": table},
        "two": {"data.csv": b"a\n", "more.zip": table},
    }.items():
        (tmp_path / name).mkdir()
        for file, content in files.items():
            (tmp_path / name / file).write_bytes(content)
        assert [lead.id for lead in leads(tmp_path / name)] == [name]
    assert found_names(fetched(tmp_path / "two", tmp_path / "work").folder) == {"data.csv", "train.csv"}
    assert (tmp_path / "two" / "more.zip").is_file()
    (tmp_path / "two" / "link").symlink_to(tmp_path)
    with pytest.raises(Quarantine, match="'link' in it is a link"):
        fetched(tmp_path / "two", tmp_path / "work")


def test_two_of_one_name_and_none(tmp_path):
    zipped(tmp_path / "a.zip")
    tarred(tmp_path / "a.tar.gz", "w:gz")
    with pytest.raises(Quarantine, match="two archives would be the task 'a'"):
        leads(tmp_path / "a.zip", tmp_path / "a.tar.gz")
    with pytest.raises(Quarantine, match="no such file"):
        fetched(tmp_path / "none.zip", tmp_path / "work")
