"""Each leak that competitions have had is planted in a fair task and found; the fair tasks themselves stay clean."""

import gzip
import io
import json
import os
import shutil
import tarfile
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from mlexpert.factory import leaks
from mlexpert.factory.leaks import archives, association
from mlexpert.tasks.task import Split
from tests.factory.leaky import N_TEST, N_TRAIN, answers_of, fair, kinds

SPOILED = "spoiled"


@pytest.mark.parametrize("numeric", [False, True])
def test_a_fair_task_has_no_findings(tmp_path, numeric):
    assert leaks.findings(fair(tmp_path, numeric=numeric)) == []


# ---------------------------------------------------------------- single columns
def test_d4_a_column_that_determines_the_label(tmp_path):
    def plant(train, test):
        for table in (train, test):
            wrong = np.random.default_rng(0).random(len(table)) < 0.003
            table["crate"] = np.where((table["target"] == SPOILED) ^ wrong, "B", "A")

    found = leaks.findings(fair(tmp_path, plant))
    assert [(one.kind, one.severity, one.column) for one in found] == [("single_column", "refuse", "crate")]
    assert found[0].value > 0.96 and "AUC" in found[0].text and "drop it" in found[0].text


def test_d4_a_field_that_is_filled_for_one_label_only(tmp_path):
    def plant(train, test):
        for table in (train, test):
            names = [f"giver {at}" for at in np.random.default_rng(len(table)).integers(10**6, size=len(table))]
            table["giver"] = np.where(table["target"] == SPOILED, names, "")

    assert "presence" in kinds(fair(tmp_path, plant))


def test_a_strong_but_honest_column_is_left_alone(tmp_path):
    def plant(train, test):
        for table in (train, test):
            value = np.where(table["target"] == SPOILED, 1.0, -1.0)
            table["strong"] = (
                (value + np.random.default_rng(len(table)).normal(scale=0.8, size=len(table))).round(4).astype(str)
            )

    assert leaks.findings(fair(tmp_path, plant)) == []  # AUC about 0.96


@pytest.mark.parametrize(("scale", "told"), [(0.02, "refuse"), (0.13, "warn"), (0.6, "")])
def test_a_number_that_is_nearly_the_target(tmp_path, scale, told):
    def plant(train, test):
        for table in (train, test):
            noise = np.random.default_rng(len(table)).normal(scale=scale, size=len(table))
            table["twin"] = (np.exp(table["target"].astype(float) + noise)).round(6).astype(str)

    found = [one for one in leaks.findings(fair(tmp_path, plant, numeric=True)) if one.kind == "single_column"]
    assert [(one.severity, one.column) for one in found] == ([(told, "twin")] if told else [])


def test_several_classes_are_told_by_their_entropy(tmp_path):
    def plant(train, test):
        for table in (train, test):
            table["target"] = np.random.default_rng(len(table)).choice(["oak", "elm", "ash", "fir", "yew"], len(table))
            table["leaf"] = table["target"].map({"oak": "1.5", "elm": "2.5", "ash": "3.5", "fir": "4.5", "yew": "5.5"})

    task = fair(tmp_path, plant, labels=("oak", "elm", "ash", "fir", "yew"), sample="oak")
    (one,) = [one for one in leaks.findings(task) if one.severity == "refuse"]
    assert (one.kind, one.column) == ("single_column", "leaf") and "entropy" in one.text


def test_a_text_that_spells_its_label(tmp_path):
    def plant(train, test):
        for table in (train, test):
            table["memo"] = [f"{memo} [{label}]" for memo, label in zip(table["memo"], table["target"], strict=True)]

    assert kinds(fair(tmp_path, plant)) == {"single_column"}


def test_a_row_number_under_another_name(tmp_path):
    """The source was sorted by class: no column is strong, but the number of the row in the source tells."""

    def plant(train, test):
        both = pd.concat([train, test])
        order = (both["target"] == SPOILED).to_numpy() + np.random.default_rng(0).normal(scale=0.6, size=len(both))
        numbers = order.argsort().argsort().astype(str)
        train["line"], test["line"] = numbers[:N_TRAIN], numbers[N_TRAIN:]

    (one,) = leaks.findings(fair(tmp_path, plant))
    assert (one.kind, one.severity, one.column) == ("single_column", "refuse", "line") and "counts rows" in one.text


# ---------------------------------------------------------------- ids and order
def test_ids_that_tell_the_target(tmp_path):
    def plant(train, test):
        for start, table in ((0, train), (1000, test)):
            table.sort_values("target", inplace=True, ignore_index=True)
            table["id"] = [f"r{start + at:04d}" for at in range(len(table))]
            shuffled = table.sample(frac=1, random_state=0).to_numpy()
            table.iloc[:] = shuffled

    found = [one for one in leaks.findings(fair(tmp_path, plant)) if one.severity == "refuse"]
    assert [one.kind for one in found] == ["id_order"] and "number in the id" in found[0].text


def test_words_in_ids_that_tell_the_target(tmp_path):
    def plant(train, test):
        for start, table in ((0, train), (1000, test)):
            table["id"] = [f"{label[:2]}-{start + at}" for at, label in enumerate(table["target"])]

    found = [one for one in leaks.findings(fair(tmp_path, plant)) if one.severity == "refuse"]
    assert [one.kind for one in found] == ["id_order"] and "words of the id" in found[0].text


@pytest.mark.parametrize("numeric", [False, True])
def test_test_rows_in_the_order_of_their_answers(tmp_path, numeric):
    def plant(train, test):
        test.sort_values("target", inplace=True, key=lambda cells: cells.astype(float) if numeric else cells)

    found = [one for one in leaks.findings(fair(tmp_path, plant, numeric)) if one.severity == "refuse"]
    assert [one.kind for one in found] == ["id_order"] and "order of the test rows" in found[0].text


def test_order_that_means_time_is_a_note_only(tmp_path):
    def plant(train, test):
        test.sort_values("target", inplace=True)

    found = leaks.findings(fair(tmp_path, plant, split=Split("temporal", 3, 0.33, by="day")))
    assert {(one.kind, one.severity) for one in found} == {("id_order", "note")}


# ---------------------------------------------------------------- duplicates
def test_rows_on_both_sides_of_the_split(tmp_path):
    def plant(train, test):
        columns = [name for name in test.columns if name != "id"]
        test.loc[:49, columns] = train.loc[:49, columns]

    (one,) = leaks.findings(fair(tmp_path, plant))
    assert (one.kind, one.severity, one.value) == ("duplicate_rows", "refuse", 50 / N_TEST)


def test_equal_rows_of_a_coarse_table_are_chance(tmp_path):
    def plant(train, test):
        for table in (train, test):
            table.drop(columns=["age", "noise", "memo", "gap"], inplace=True)

    assert leaks.findings(fair(tmp_path, plant)) == []  # four towns: every test row stands in train


def test_equal_rows_with_other_answers_answer_nothing(tmp_path):
    def plant(train, test):
        columns = ["age", "town", "noise", "memo", "gap"]
        test.loc[:49, columns] = train.loc[:49, columns]
        test.loc[:49, "target"] = np.where(train.loc[:49, "target"] == SPOILED, "fresh", SPOILED)

    assert leaks.findings(fair(tmp_path, plant)) == []


# ---------------------------------------------------------------- files
def with_files(task, suffix=".bin", train=True):
    """One file of random bytes an item, all of one time."""
    draw = np.random.default_rng(0)
    for side in ("train", "test") if train else ("test",):
        folder = task.public / side
        folder.mkdir()
        for id in pd.read_csv(task.public / f"{side}.csv", dtype=str)["id"]:
            path = folder / f"{id}{suffix}"
            path.write_bytes(draw.bytes(int(draw.integers(100, 200))))
            os.utime(path, (10**9, 10**9))
    return task


def test_fair_files_have_no_findings(tmp_path):
    assert leaks.findings(with_files(fair(tmp_path))) == []


def test_times_of_files(tmp_path):
    task = with_files(fair(tmp_path))
    for id, answer in answers_of(task).items():
        os.utime(task.public / "test" / f"{id}.bin", (10**9, 10**9 + (answer == SPOILED)))
    assert kinds(task) == {"id_order"}


def test_names_of_files(tmp_path):
    """The rows name their files, and the files were left in folders of their labels."""

    def plant(train, test):
        for side, table in (("train", train), ("test", test)):
            table["photo"] = [f"{side}/{at % 7}/{id}.bin" for at, id in enumerate(table["id"])]

    task = fair(tmp_path, plant, columns={"photo": "file"})
    for at, id in enumerate(answers_of(task)):
        path = task.public / "test" / str(at % 7) / f"{id}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100 + at % 50))
    assert "file_names" not in kinds(task)
    for path in (task.public / "test").rglob("*.bin"):
        path.parent.parent.joinpath(answers_of(task)[path.stem]).mkdir(exist_ok=True)
        path.rename(path.parent.parent / answers_of(task)[path.stem] / path.name)
    assert "file_names" in kinds(task)


def test_sizes_of_files(tmp_path):
    task = with_files(fair(tmp_path))
    answers = answers_of(task) | dict(pd.read_csv(task.public / "train.csv", dtype=str)[["id", "target"]].to_numpy())
    for path in task.public.rglob("*.bin"):
        path.write_bytes(os.urandom(300 if answers[path.stem] == SPOILED else 150))
        os.utime(path, (10**9, 10**9))
    assert kinds(task, "warn") == {"file_sizes"}


def test_d2_a_type_of_file_that_only_test_items_have(tmp_path):
    task = with_files(fair(tmp_path))
    for id in list(answers_of(task))[:100]:
        (task.public / "test" / f"{id}.log").write_bytes(b"\0log")
    assert kinds(task, "warn") == {"file_types"}


def test_d2_a_type_of_file_that_the_sources_own_test_set_lacks(tmp_path):
    """Train and test were both cut from the source's train set, whose items have logs; its test items have none."""
    task = with_files(fair(tmp_path))
    for path in list(task.public.rglob("*.bin")):
        path.with_suffix(".log").write_bytes(os.urandom(120))
        os.utime(path.with_suffix(".log"), (10**9, 10**9))
    assert leaks.findings(task) == []
    assert kinds(task, original_test=["test/1.bin", "test/2.bin"]) == {"file_types"}


def test_files_on_both_sides_of_the_split(tmp_path):
    task = with_files(fair(tmp_path))
    train = sorted((task.public / "train").iterdir())
    for at, id in enumerate(list(answers_of(task))[:40]):
        shutil.copy2(train[at], task.public / "test" / f"{id}.bin")
    (one,) = leaks.findings(task)
    assert (one.kind, one.severity, one.value) == ("duplicate_rows", "refuse", 40 / N_TEST)


def test_d7_a_test_row_without_its_file(tmp_path):
    task = with_files(fair(tmp_path))
    for id in list(answers_of(task))[:3]:
        (task.public / "test" / f"{id}.bin").unlink()
    (one,) = leaks.findings(task)
    assert one.kind == "keys" and "3 of 160 test rows have no file" in one.text


def test_d7_rows_of_a_side_table_that_test_needs(tmp_path):
    def plant(train, test):
        for at, table in enumerate((train, test)):
            table["molecule"] = [f"m{at}{row // 2}" for row in range(len(table))]

    task = fair(tmp_path, plant)
    known = pd.read_csv(task.public / "train.csv", dtype=str)["molecule"].unique()
    asked = pd.read_csv(task.public / "test.csv", dtype=str)["molecule"].unique()
    table = pd.DataFrame({"molecule": [*known, *asked], "atoms": range(len(known) + len(asked))})
    table.to_csv(task.public / "structures.csv", index=False)
    assert leaks.findings(task) == []
    table[: len(known) + 5].to_csv(task.public / "structures.csv", index=False)
    (one,) = leaks.findings(task)
    assert (one.kind, one.severity, one.column) == (
        "keys",
        "refuse",
        "molecule",
    ) and "(m110, m111, m112, ...)" in one.text


# ---------------------------------------------------------------- archives
def nested(inner: dict[str, bytes]) -> bytes:
    """A zip in a tar.gz in a zip."""
    core = io.BytesIO()
    with zipfile.ZipFile(core, "w") as archive:
        for name, data in inner.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    middle = io.BytesIO()
    with tarfile.open(fileobj=middle, mode="w:gz") as archive:
        info = tarfile.TarInfo("part.zip")
        info.size = len(core.getvalue())
        archive.addfile(info, io.BytesIO(core.getvalue()))
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("parts.tar.gz", middle.getvalue())
    return outer.getvalue()


def mat(**variables) -> bytes:
    file = io.BytesIO()
    savemat(file, variables, do_compression=True)
    return file.getvalue()


FIELDS = {
    "mat": ("gesture.mat", mat(Video={"frames": np.ones((3, 3)), "Labels": np.array(["a", "b"], dtype=object)})),
    "json": ("meta.json", json.dumps({"items": [{"name": "x", "info": {"target": 3}}]}).encode()),
    "npz": ("arrays.npz", None),
    "csv": ("rows.csv", b"name,Target\nx,1\n"),
    "xml": ("boxes.xml", b"<item><ground_truth>cat</ground_truth></item>"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_d1_label_fields_inside_nested_archives(tmp_path, name):
    file, data = FIELDS[name]
    if data is None:
        buffer = io.BytesIO()
        np.savez(buffer, images=np.zeros(3), labels=np.zeros(3))
        data = buffer.getvalue()
    task = fair(tmp_path)
    (task.public / "test_parts.zip").write_bytes(nested({"readme.txt": b"parts"}))
    assert leaks.findings(task) == []
    (task.public / "test_parts.zip").write_bytes(nested({file: data}))
    (one,) = leaks.findings(task)
    assert (one.kind, one.severity) == ("archive_fields", "refuse")
    assert one.text.startswith("test_parts.zip!/parts.tar.gz!/part.zip!/") and file in one.text


def test_labels_of_train_archives_are_no_leak(tmp_path):
    task = fair(tmp_path)
    (task.public / "train_parts.zip").write_bytes(nested({"gesture.mat": FIELDS["mat"][1]}))
    assert leaks.findings(task) == []


def test_names_inside_an_archive(tmp_path):
    task = fair(tmp_path)
    with zipfile.ZipFile(task.public / "test.zip", "w") as archive:
        for at, (id, answer) in enumerate(answers_of(task).items()):
            archive.writestr(zipfile.ZipInfo(f"{answer}/{id}.jpg"), bytes(100 + at))
    assert kinds(task) == {"file_names"}


def test_what_cannot_be_opened_is_said(tmp_path):
    task = fair(tmp_path)
    (task.public / "test.7z").write_bytes(b"7z\xbc\xaf'\x1c")
    (task.public / "test.zip").write_bytes(nested({"a.txt": b"a"})[:-9])
    found = leaks.findings(task)
    assert {(one.kind, one.severity) for one in found} == {("unread", "note")}
    assert "test.7z: no reader for .7z" in found[0].text and "test.zip: BadZipFile" in found[1].text


def test_a_bomb_is_not_inflated(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBER", 2**16)
    task = fair(tmp_path)
    with zipfile.ZipFile(task.public / "test.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("big.txt", bytes(2**20))
    (task.public / "test.gz").write_bytes(gzip.compress(bytes(2**20)))
    found = leaks.findings(task)
    assert len(found) == 2 and all("more than may be inflated" in one.text for one in found)


# ---------------------------------------------------------------- reachable answers
def test_d16_the_target_in_the_test_table(tmp_path):
    task = fair(tmp_path)
    test = pd.read_csv(task.public / "test.csv", dtype=str, keep_default_na=False)
    test.assign(target="").to_csv(task.public / "test.csv", index=False)
    (one,) = leaks.findings(task)
    assert (one.kind, one.severity, one.column) == ("target_column", "refuse", "target")


def test_d16_the_target_in_the_test_table_under_another_name(tmp_path):
    task = fair(tmp_path, numeric=True)
    test = pd.read_csv(task.public / "test.csv", dtype=str, keep_default_na=False)
    renamed = [f"{float(answers_of(task)[id]):.8f}" for id in test["id"]]
    test.assign(x17=renamed).to_csv(task.public / "test.csv", index=False)
    (one,) = leaks.findings(task)
    assert (one.kind, one.column) == ("answers", "x17")


def test_the_target_beside_test_ids_in_another_table(tmp_path):
    task = fair(tmp_path)
    pd.DataFrame({"row": list(answers_of(task)), "target": "unknown"}).to_csv(task.public / "extra.csv", index=False)
    assert kinds(task) == {"target_column"}


def rows_of(answers):
    return list(answers.items())


REACH = {
    "json object": lambda rows: json.dumps({"seen": dict(rows)}).encode(),
    "json lines": lambda rows: "\n".join(json.dumps({"id": i, "n": 1, "y": y}) for i, y in rows).encode(),
    "log": lambda rows: "".join(f"12:00 INFO item {i} ok -> {y};\n" for i, y in rows).encode(),
    "answer first": lambda rows: "".join(f"{y}|{i}\n" for i, y in rows).encode(),
    "gaps": lambda rows: "".join(f"{i},,{'x' if at % 2 else ''},{y}\n" for at, (i, y) in enumerate(rows)).encode(),
}


@pytest.mark.parametrize("written", REACH)
def test_answers_beside_their_ids_in_public_bytes(tmp_path, written):
    task = fair(tmp_path)
    data = REACH[written](rows_of(answers_of(task)))
    for name, stored in {"notes.txt": data, "notes.txt.gz": gzip.compress(data)}.items():
        (task.public / name).write_bytes(stored)
        assert kinds(task) == {"answers"}
        (task.public / name).unlink()
    wrong = np.random.default_rng(0).permutation([y for _, y in rows_of(answers_of(task))])
    shuffled = REACH[written](list(zip(answers_of(task), wrong, strict=True)))
    (task.public / "notes.txt").write_bytes(shuffled)
    assert leaks.findings(task) == []


def test_answers_in_the_order_of_the_rows(tmp_path):
    task = fair(tmp_path)
    ids = pd.read_csv(task.public / "test.csv", dtype=str)["id"]
    pd.DataFrame({"z": [answers_of(task)[id] for id in ids]}).to_csv(task.public / "z.csv", index=False)
    assert kinds(task) == {"answers"}


def test_long_answers_word_for_word(tmp_path):
    def plant(train, test):
        for table in (train, test):
            table["target"] = [f"a sentence of its own about {town} {at}" for at, town in enumerate(table["town"])]

    task = fair(tmp_path, plant, metric="exact_match", labels=(), sample="a sentence")
    assert kinds(task) == set()
    (task.public / "corpus.txt").write_text(" ... ".join(answers_of(task).values()))
    assert kinds(task) == {"answers"}


def test_a_sample_submission_that_tells(tmp_path):
    task = fair(tmp_path)
    sample = pd.read_csv(task.public / "sample_submission.csv", dtype=str)
    right = [answers_of(task)[id] for id in sample["id"]]
    sample.assign(target=right).to_csv(task.public / "sample_submission.csv", index=False)
    assert kinds(task) == {"sample", "private_files"}  # it has the bytes of the answers


def test_d17_private_files_below_public(tmp_path):
    for name in ("copy.bin", "test_labels.txt", "solution.csv"):
        task = fair(tmp_path)
        content = (task.private / "answers.csv").read_bytes() if name == "copy.bin" else b"x\n"
        (task.public / "data").mkdir()
        (task.public / "data" / name).write_bytes(content)
        assert "private_files" in kinds(task), name


def test_d17_a_link_into_the_private_folder(tmp_path):
    task = fair(tmp_path)
    (task.public / "more.csv").symlink_to("../private/answers.csv")
    assert kinds(task) == {"links"}


# ---------------------------------------------------------------- promises
def test_d5_answers_outside_the_described_labels(tmp_path):
    def plant(train, test):
        test.loc[:4, "target"] = "mouldy"

    (one,) = leaks.findings(fair(tmp_path, plant))
    assert (one.kind, one.severity) == ("labels", "refuse") and one.value == 5 / N_TEST
    told = "# Fair\nPredict `fresh`, `spoiled` or, never seen so far, `mouldy`.\n"
    assert leaks.findings(fair(tmp_path, plant, description=told)) == []


def test_groups_on_both_sides(tmp_path):
    assert kinds(fair(tmp_path, split=Split("grouped", 3, 0.33, by="town"))) == {"groups"}


def test_train_rows_after_the_first_test_row(tmp_path):
    def plant(train, test):
        train["day"] = [f"2020-01-{1 + at % 20:02d}" for at in range(N_TRAIN)]
        test["day"] = [f"2020-01-{21 + at % 7:02d}" for at in range(N_TEST)]

    temporal = Split("temporal", 3, 0.33, by="day")
    assert kinds(fair(tmp_path, plant, split=temporal)) == set()

    def late(train, test):
        plant(train, test)
        train.loc[:9, "day"] = "2020-01-25"

    assert kinds(fair(tmp_path, late, split=temporal)) == {"time_order"}


# ---------------------------------------------------------------- no false alarms
def test_items_of_both_sides_may_be_numbered_alike(tmp_path):
    def plant(train, test):
        for table in (train, test):
            numbers = np.random.default_rng(len(table)).permutation(len(table))
            table["id"] = [str(number) for number in numbers]

    task = fair(tmp_path, plant)
    for side in ("train", "test"):
        (task.public / side).mkdir()
        for id in pd.read_csv(task.public / f"{side}.csv", dtype=str)["id"]:
            record = {"image": id * 30} | ({"label": "fresh"} if side == "train" else {})
            (task.public / side / f"{id}.json").write_text(json.dumps(record))
            os.utime(task.public / side / f"{id}.json", (10**9, 10**9))
    assert kinds(task) == kinds(task, "warn") == set()


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_small_fair_tests_are_not_said_to_be_ordered(n_classes):
    """Of many small tasks in random order not one exceeds a border of the ids and rows."""
    draw = np.random.default_rng(3)
    for _ in range(300):
        values = draw.normal(size=80) if n_classes == 0 else draw.integers(n_classes, size=80)
        target = association.Target("y", n_classes > 0, values[:0], values, n_classes)
        found = association.within([str(at) for at in range(80)], target)
        assert found is None or not found.exceeds({"auc": 0.4, "information": 0.25, "rank": 0.4}[found.measure])


@pytest.mark.parametrize("n_classes", [2, 3, 9, 0])
def test_columns_of_chance_are_never_strong(n_classes):
    """Wide noise, small samples: the strongest of 200 columns stays far from every border."""
    draw = np.random.default_rng(1)
    values = draw.normal(size=120) if n_classes == 0 else draw.integers(n_classes, size=120)
    target = association.Target("y", n_classes > 0, values[:70], values[70:], n_classes)
    for kind in range(200):
        column = draw.normal(size=120) if kind % 2 else draw.integers(2 + kind // 8, size=120)
        cells = [str(cell) for cell in column.tolist()]
        for found in (association.across(cells[:70], cells[70:], target), association.within(cells[70:], target)):
            assert found is None or found.value < 0.6
