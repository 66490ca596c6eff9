"""Building: what is public and what is hidden, row by row; the same bytes each time; every bad input by name."""

import numpy as np
import pandas as pd
import pytest
from sources import frame, plan, raw

from mlexpert.factory.build import build
from mlexpert.factory.records import Quarantine
from mlexpert.tasks.hidden import hidden_answers
from mlexpert.tasks.tables import column, header, read_table


@pytest.fixture
def stage(tmp_path):
    def staged(changes, **tables):
        return build(raw(tmp_path / "raw", **tables), plan(**changes), tmp_path / "staged")

    return staged


def public(staged, name):
    return read_table(staged.public / name)


def test_rows_go_to_their_side_whole_and_the_target_only_to_train(stage):
    data = frame(50)
    staged = stage({}, data=data)
    train, test, answers = public(staged, "train.csv"), public(staged, "test.csv"), staged.answers
    assert list(train) == ["id", *data.columns] and list(test) == ["id", *data.columns[:-1]]
    assert list(answers) == ["id", "y"] and answers["id"].tolist() == test["id"].tolist()
    whole = pd.concat([train, test.merge(answers, on="id")]).drop(columns="id")
    assert sorted(map(tuple, whole.to_numpy())) == sorted(map(tuple, data.to_numpy()))
    assert staged.rows == (40, 10) and staged.facts.split.test_share == 0.2
    assert sorted(map(int, [*train["id"], *test["id"]])) == list(range(50))


def test_the_same_recipe_gives_the_same_bytes_and_another_seed_another_task(stage):
    def contents(seed):
        staged = stage({"seed": seed}, data=frame(50))
        return {path.name: path.read_bytes() for path in staged.public.iterdir()} | {
            "a": staged.answers.to_csv().encode()
        }

    assert contents(1) == contents(1)
    assert contents(1)["test.csv"] != contents(2)["test.csv"]


def test_the_sample_is_the_constant_and_the_answers_grade(stage):
    staged = stage({"metric": "logloss"}, data=frame(90, classes=("low", "mid", "high")))
    assert staged.facts.labels == ("high", "low", "mid")
    sample = public(staged, "sample_submission.csv")
    assert list(sample) == ["id", "high", "low", "mid"] and sample["id"].tolist() == staged.answers["id"].tolist()
    assert len(set(sample["low"])) == 1
    path = staged.public.parent / "answers.csv"
    staged.answers.to_csv(path, index=False)
    assert hidden_answers(staged.facts, path, column(path, "id")).rows == 18


def test_numbers_as_labels_are_in_the_order_of_numbers(stage):
    assert stage({"metric": "accuracy"}, data=frame(60, classes=("10", "9", "1"))).facts.labels == ("1", "9", "10")


def test_hidden_columns_roles_and_dropped_ones(stage):
    data = frame(60).assign(w=[str(at + 1) for at in range(60)], later="x")
    staged = stage({"metric": "wmae", "roles": {"weight": "w"}, "hidden": ["w"], "drop": {"later": "why"}}, data=data)
    assert "w" in header(staged.public / "train.csv") and "w" not in header(staged.public / "test.csv")
    assert "later" not in header(staged.public / "train.csv") and list(staged.answers) == ["id", "y", "weight"]


def test_words_that_mean_missing_elsewhere_stay_what_they_are(stage):
    data = frame(60).assign(town=["NA", "None", ""] * 20, memo=['a "quoted", text\r\nof two lines'] * 60)
    staged = stage({}, data=data)
    train = public(staged, "train.csv")
    assert set(train["town"]) == {"NA", "None", ""} and set(train["memo"]) == {'a "quoted", text\nof two lines'}


def test_rows_without_an_answer_are_left_out_and_counted(stage):
    data = frame(60)
    data.loc[[3, 7], "y"] = ["", "NA"]
    staged = stage({}, data=data)
    assert sum(staged.rows) == 58 and "2 rows of data.csv" in staged.findings[0].text


def test_equal_rows_are_kept_once_where_that_is_asked(stage):
    data = pd.concat([frame(60), frame(60).head(10).assign(y="9")])
    staged = stage({"distinct": True}, data=data)
    assert sum(staged.rows) == 60 and "10 rows" in staged.findings[0].text
    assert sum(stage({}, data=data).rows) == 70


def test_merged_labels(stage):
    data = frame(60, classes=("a", "b", "c", "d"))
    staged = stage({"metric": "accuracy", "merge_labels": {"c": "rest", "d": "rest"}}, data=data)
    assert staged.facts.labels == ("a", "b", "rest")


def test_a_ready_split_joins_answers_by_id_and_takes_no_row_without_one(stage):
    train = frame(60).assign(id=[f"t{at}" for at in range(60)])
    test = frame(20, seed=1).assign(id=[f"s{at}" for at in range(20)])
    answers = test[["id", "y"]].sample(frac=1, random_state=0).iloc[:18]
    how = {"recipe": "ready", "train": "train.csv", "test": "test.csv", "answers": "answers.csv", "id_column": "id"}
    staged = stage(how, train=train, test=test.drop(columns="y"), answers=answers)
    truth = dict(zip(test["id"], test["y"], strict=True))
    assert staged.rows == (60, 18) and all(truth[id] == y for id, y in staged.answers[["id", "y"]].to_numpy())
    assert public(staged, "test.csv")["id"].tolist() == staged.answers["id"].tolist() != sorted(answers["id"])
    labelled = stage({**how, "answers": ""}, train=train, test=test)
    assert labelled.rows == (60, 20) and "y" not in header(labelled.public / "test.csv")


def test_files_are_named_after_their_row_and_nothing_else(stage, tmp_path):
    folder = tmp_path / "raw" / "pictures"
    (folder / "cat").mkdir(parents=True)
    data = frame(40, classes=("cat", "dog")).assign(file=[f"cat/{at}.PNG" for at in range(40)])
    for at in range(40):
        (folder / "cat" / f"{at}.PNG").write_bytes(b"%d" % at)
    staged = stage({"metric": "accuracy", "files_column": "file", "files_folder": "pictures"}, data=data)
    test = public(staged, "test.csv")
    assert test["file"].tolist() == [f"files/{id}.png" for id in test["id"]]
    assert len(list((staged.public / "files").iterdir())) == 40
    contents = {(staged.public / name).read_bytes() for name in test["file"]}
    assert contents == {b"%d" % at for at in range(40)} - {
        (staged.public / name).read_bytes() for name in public(staged, "train.csv")["file"]
    }


def test_the_description_tells_labels_metric_files_and_form(stage):
    staged = stage({"metric": "accuracy"}, data=frame(60, classes=("no", "yes")))
    page = (staged.public / "description.md").read_text()
    for told in (
        "Boxes of tea.",
        "`no`, `yes`",
        "`accuracy`",
        "higher is better",
        "`test.csv`: 12 rows, 6 columns",
        "id,y",
    ):
        assert told in page
    assert str(staged.facts.split.seed) not in page.split("## Goal")[0]


def test_a_time_split_writes_rows_in_order_of_time(stage):
    staged = stage({"recipe": "temporal", "time_column": "day"}, data=frame(60).sample(frac=1, random_state=1))
    days = public(staged, "train.csv")["day"].tolist()
    assert days == sorted(days) and days[-1] < public(staged, "test.csv")["day"].min()
    assert staged.facts.split.by == "day" and staged.facts.split.drift["day"] == 1.0
    assert staged.facts.split.drift["adversarial AUC"] < 0.8  # the day itself is not shown


ROWS = frame(40, classes=("no", "yes"))
LABEL = {"metric": "accuracy"}


@pytest.mark.parametrize(
    ("changes", "data", "message"),
    [
        ({}, ROWS.drop(columns="y"), r"data.csv has no column 'y'; it has a, b, noise, town, day"),
        ({}, ROWS, r"target 'y' holds '(no|yes)', not a number"),
        ({}, frame(40).assign(y="5"), r"target 'y' is 5 in every row"),
        (LABEL, ROWS.assign(y="no"), r"target 'y' is 'no' in every row"),
        (LABEL, ROWS.assign(y=""), "a split needs at least 2"),
        (
            {"id_column": "town", **LABEL},
            ROWS,
            r"data.csv: 37 of 40 ids in column 'town' are repeated, first '\w+'; name another",
        ),
        (
            {"id_column": "key", **LABEL},
            ROWS.assign(key=[str(at % 39) for at in range(40)]),
            r"data.csv: 1 of 40 ids in column 'key' are repeated, first '0'",
        ),
        ({"id_column": "key", **LABEL}, ROWS, "no column 'key'"),
        (
            {"id_column": "noise", **LABEL},
            ROWS.assign(noise=["", *map(str, range(39))]),
            "an id in column 'noise' is empty",
        ),
        ({"drop": {"nothing": "x"}, **LABEL}, ROWS, "no column 'nothing' to drop"),
        ({"columns": {"town": "number"}, **LABEL}, ROWS, "column 'town' is declared a number: "),
        ({"columns": {"town": "time"}, **LABEL}, ROWS, "column 'town' is declared a time: "),
        ({"metric": "surprise"}, ROWS, "unknown metric 'surprise'"),
        ({"metric": "qwk"}, ROWS, "needs the setting 'low'"),
        ({"labels": ["no"], **LABEL}, ROWS, "labels of the target are not in the blueprint's `labels`, first 'yes'"),
        ({"train": "other.csv"}, ROWS, "other.csv: missing"),
        ({"files_column": "town", **LABEL}, ROWS, "3 files belong to rows on both sides"),
        (
            {"files_column": "town", **LABEL, "recipe": "grouped", "group_column": "town"},
            ROWS,
            "column 'town' names '.*', no file below '.'",
        ),
        ({"metric": "rmsle"}, frame(40), "give rmsle no value"),
    ],
)
def test_a_source_that_cannot_become_a_task_says_what_to_do(stage, changes, data, message):
    with pytest.raises(Quarantine, match=message):
        stage(changes, data=data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,y\n1,2\n3\n", "line 3: 1 fields"),
        (b"a,a,y\n1,2,3\n", "column 'a' appears twice"),
        (b"\xff\xfea\x00,\x00", "not CSV in UTF-8"),
        (b"a,y\n", "has no rows"),
        (b"", "has no rows|no column"),
    ],
)
def test_a_file_that_is_no_table_is_named(stage, tmp_path, text, message):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "data.csv").write_bytes(text)
    with pytest.raises(Quarantine, match=message):
        stage({})


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (pd.DataFrame({"id": ["s0", "s0"], "y": ["1", "2"]}), "answers.csv repeats ids"),
        (pd.DataFrame({"id": ["s0", "zz"], "y": ["1", "2"]}), "answers 1 ids that test.csv does not have"),
        (pd.DataFrame({"key": ["s0"], "y": ["1"]}), "answers.csv has no id column 'id'"),
    ],
)
def test_answers_that_do_not_fit_the_test_rows_are_refused(stage, answers, message):
    train = frame(30).assign(id=[f"t{at}" for at in range(30)])
    test = frame(10).assign(id=[f"s{at}" for at in range(10)]).drop(columns="y")
    how = {"recipe": "ready", "train": "train.csv", "test": "test.csv", "answers": "answers.csv", "id_column": "id"}
    with pytest.raises(Quarantine, match=message):
        stage(how, train=train, test=test, answers=answers)


@pytest.mark.parametrize(
    ("recipe", "labels", "kind"),
    [
        ({"recipe": "temporal", "time_column": "day"}, ["no"] * 38 + ["yes"] * 2, "one_class"),
        (
            {"recipe": "temporal", "time_column": "day"},
            ["no", "yes"] * 16 + ["no", "yes", "maybe", "no"] * 2,
            "unseen_label",
        ),
        ({"recipe": "stratified", "metric": "macro_f1"}, ["no", "yes"] * 19 + ["no", "rare"], "undefined"),
    ],
)
def test_a_split_that_leaves_the_target_unusable_has_a_kind_that_repair_knows(stage, recipe, labels, kind):
    with pytest.raises(Quarantine) as error:
        stage(LABEL | recipe, data=ROWS.assign(y=labels))
    assert error.value.kind == kind


def test_numbers_survive_as_they_were_written(stage):
    data = frame(40).assign(a=[f"0.1000{at}e-5" for at in range(40)], y=[f"{1e15 + at:.1f}" for at in range(40)])
    staged = stage({}, data=data)
    assert set(public(staged, "train.csv")["a"]) < set(data["a"]) and set(staged.answers["y"]) < set(data["y"])
    assert np.isfinite(public(staged, "sample_submission.csv")["y"].astype(float)).all()
