"""Prepared MLE-bench folders: every grader's kind of answers becomes a task whose grade is the metric's own value.

The folders are made up of the toys that the parity benchmark feeds to MLE-bench's own graders, so what holds for these
tasks holds for those graders, as far as `experiments/bench/grader_parity.py` finds the metrics equal.
"""

import dataclasses
import sys
import types

import numpy as np
import pandas as pd
import pytest

from experiments.bench.grader_draw import draw
from mlexpert.factory import mlebench
from mlexpert.factory.mlebench_metrics import BY_NAME, GRADERS
from mlexpert.factory.records import Quarantine
from mlexpert.tasks.grading import Grader
from mlexpert.tasks.metrics import METRICS, bind, evaluate, read_answers
from mlexpert.tasks.seal import seal
from mlexpert.tasks.tables import read_table
from mlexpert.tasks.task import Facts, Split, Thresholds

LISTS = {
    "dogs": {"DOGS_LIST": ["basenji", "beagle", "boxer"]}, "classes": {"CLASSES": ["EAP", "HPL", "MWS"]},
    "constants": {"TARGET_COLS": ["seizure_vote", "other_vote", "lpd_vote"]},
    "vocabulary": {"CLASS_NAMES": ["Bark", "Meow", "Purr"]},
}  # fmt: skip


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """Stands for the grader's package, where some lists of labels are."""
    monkeypatch.setitem(sys.modules, "lists", types.ModuleType("lists"))
    for module, names in LISTS.items():
        monkeypatch.setitem(sys.modules, f"lists.{module}", types.SimpleNamespace(**names))


def prepare(folder, name, answers, sample, sample_name="public/sample_submission.csv", **files):
    """A prepared folder as MLE-bench lays it out."""
    root = folder / name / "prepared"
    for part in ("public", "private"):
        (root / part).mkdir(parents=True)
    (root / "public" / "description.md").write_text("# Toys\n\nPredict.", encoding="utf-8")
    if isinstance(answers, list):
        (root / "private" / "test.jsonl").write_text(pd.DataFrame(answers).to_json(orient="records", lines=True))
    else:
        answers.to_csv(root / "private" / "answers.csv", index=False)
    sample.to_csv(root / sample_name, index=False)
    for file, table in files.items():
        table.to_csv(root / "public" / f"{file}.csv", index=False)
    return root


def fetched(folder, name, checkout=None, boards=None):
    source = mlebench.origin(folder, checkout, [name], boards)
    (lead,) = source.discover()
    raw = source.fetch(lead, folder / "work" / name)
    return raw, source.plan(raw)


def sealed(raw, plan, folder):
    """The task, with thresholds that mean nothing."""
    facts = Facts(
        id=plan.id, modality=plan.modality, domain=plan.domain, metric=plan.metric, settings=plan.settings,
        id_column=plan.id_column, target_columns=plan.target_columns, labels=plan.labels, provenance=raw.provenance,
        split=Split("ready", 0, 0.0), thresholds_from="nothing", train=plan.train, test=plan.test,
    )  # fmt: skip
    answers = read_table(raw.folder / plan.answers)
    return seal(folder, facts, Thresholds(0, 0, 0, 0, 0), public=raw.folder / plan.public_folder, answers=answers)


def refused(folder, name, **changes):
    with pytest.raises(Quarantine) as caught:
        fetched(folder, name, **changes)
    assert caught.value.stage == "fetch"
    return caught.value.reason


# ---------------------------------------------------------------- every grader
# Its grader reads borders as widths and heights; the toy gives each side its own boxes, so they differ here by design.
BOXES = "vinbigdata-chest-xray-abnormalities-detection"
PLAIN = [grader for grader in GRADERS if not grader.refused and grader.competition != BOXES]


@pytest.mark.parametrize("grader", PLAIN, ids=lambda grader: grader.competition)
def test_the_grade_is_the_metric(grader, tmp_path):
    toy = draw(grader, "lists", np.random.default_rng(7))
    prepare(tmp_path, grader.competition, toy.answers, toy.submission)
    task = sealed(*fetched(tmp_path, grader.competition), tmp_path / "set")
    path = tmp_path / "submission.csv"
    toy.submission.to_csv(path, index=False)
    verdict = Grader(task).grade(path)
    metric = bind(METRICS[grader.metric], grader.settings)
    answers = read_answers(metric, toy.targets, toy.labels, toy.beside)
    expected = evaluate(metric, answers, toy.predictions, len(toy.labels))
    assert verdict.score == pytest.approx(expected, rel=1e-12, abs=1e-12), verdict.reason
    assert not task.provenance.redistributable and task.provenance.source_dataset == grader.competition.lower()


def test_one_row_per_box_becomes_one_per_image(tmp_path):
    borders = ["x_min", "y_min", "x_max", "y_max"]
    boxes = pd.DataFrame([("a", 1, 0, 0, 4, 4), ("b", 0, 1, 1, 3, 3), ("a", 0, 2, 2, 6, 6)])
    boxes.columns = ["image_id", "class_id", *borders]
    sample = pd.DataFrame({"image_id": ["a", "b"], "PredictionString": "14 1.0 0 0 1 1"})
    prepare(tmp_path, BOXES, boxes, sample)
    raw, plan = fetched(tmp_path, BOXES)
    cells = read_table(raw.folder / plan.answers).set_index("image_id")["PredictionString"].to_dict()
    assert cells == {"a": "1 1 0 0 4 4 0 1 2 2 6 6", "b": "0 1 1 1 3 3"}
    path = tmp_path / "s.csv"
    path.write_text("image_id,PredictionString\nb,0 0.9 1 1 3 3\na,1 0.8 0 0 4 4 0 0.7 2 2 6 6\n")
    assert Grader(sealed(raw, plan, tmp_path / "set")).grade(path).score == 1.0


def test_those_that_cannot_be_say_why(tmp_path):
    without = [grader for grader in GRADERS if grader.refused]
    assert len(without) == 2
    for grader in without:
        toy = draw(grader, "lists", np.random.default_rng(7))
        prepare(tmp_path, grader.competition, toy.answers, toy.submission)
        assert "name a row by two columns" in refused(tmp_path, grader.competition)


def test_the_map_is_whole():
    assert len(GRADERS) == len(BY_NAME) == 82
    for grader in GRADERS:
        bind(METRICS[grader.metric], grader.settings)


# ---------------------------------------------------------------- layout
IDS = [f"i{at}" for at in range(6)]
SAMPLE = pd.DataFrame({"id": IDS, "target": 0.5})
TRUTH = pd.DataFrame({"id": IDS, "target": [0, 1, 0, 1, 1, 0]})
NAME = "tabular-playground-series-may-2022"


def test_tables_are_recognised_and_the_public_folder_is_copied(tmp_path):
    train = pd.DataFrame({"id": ["a", "b"], "x": [1, 2], "target": [0, 1]})
    root = prepare(tmp_path, NAME, TRUTH, SAMPLE, train=train, test=TRUTH.drop(columns="target").assign(x=1))
    (root / "public" / "images").mkdir()
    (root / "public" / "images" / "a.png").write_bytes(b"png")
    raw, plan = fetched(tmp_path, NAME)
    assert (plan.train, plan.test, plan.labels, plan.recipe) == ("train.csv", "test.csv", ("0", "1"), "ready")
    assert (raw.folder / "public" / "images" / "a.png").read_bytes() == b"png"
    assert raw.text.startswith("# Toys") and raw.title == "Toys"
    sealed(raw, plan, tmp_path / "set")


def test_a_sample_of_another_name_place_and_columns(tmp_path):
    sample = SAMPLE.assign(further=1)[["further", "target", "id"]]
    root = prepare(tmp_path, NAME, TRUTH, sample, sample_name="private/sample_submission.csv")
    before = (root / "private" / "sample_submission.csv").read_text()
    raw, plan = fetched(tmp_path, NAME)
    assert read_table(raw.folder / "public" / plan.sample).columns.tolist() == ["id", "target"]
    assert (root / "private" / "sample_submission.csv").read_text() == before


def test_nothing_of_the_benchmark_is_changed(tmp_path):
    """Files are linked, and what is written anew is no longer a link."""
    root = prepare(tmp_path, NAME, TRUTH, SAMPLE.assign(further=1))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    fetched(tmp_path, NAME)
    fetched(tmp_path, NAME)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_rows_of_the_sample_without_an_answer_do_not_count(tmp_path):
    name = "h-and-m-personalized-fashion-recommendations"
    answers = pd.DataFrame({"customer_id": ["a", "b"], "prediction": ["x y", "z"]})
    sample = pd.DataFrame({"customer_id": ["a", "b", "c"], "prediction": "z"})
    prepare(tmp_path, name, answers, sample)
    task = sealed(*fetched(tmp_path, name), tmp_path / "set")
    path = tmp_path / "s.csv"
    path.write_text("customer_id,prediction\nc,anything\na,x y\nb,z\n")
    assert Grader(task).grade(path).score == 1.0


def test_labels_are_those_of_answers_training_and_sample(tmp_path):
    name = "paddy-disease-classification"
    train = pd.DataFrame({"image_id": ["t1", "t2"], "label": ["blast", "normal"]})
    answers = pd.DataFrame({"image_id": IDS, "label": ["blast"] * 5 + ["hispa"]})
    prepare(tmp_path, name, answers, pd.DataFrame({"image_id": IDS, "label": "tungro"}), train=train)
    assert fetched(tmp_path, name)[1].labels == ("blast", "hispa", "normal", "tungro")


@pytest.mark.parametrize("cells", [[0.0, 1.0, 0.0, 1.0, 1.0, 0.0], [False, True, False, True, True, False]])
def test_digits_in_other_spellings(tmp_path, cells):
    prepare(tmp_path, NAME, TRUTH.assign(target=cells), SAMPLE)
    raw, plan = fetched(tmp_path, NAME)
    assert read_table(raw.folder / plan.answers)["target"].tolist() == list("010110")
    sealed(raw, plan, tmp_path / "set")


# ---------------------------------------------------------------- leaderboards
def test_a_real_board_and_a_pointer(tmp_path):
    prepare(tmp_path, NAME, TRUTH, SAMPLE)
    checkout = tmp_path / "checkout"
    home = checkout / "mlebench" / "competitions" / NAME
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(f"id: {NAME}\nname: Tabular Playground, May\n")
    board = home / "leaderboard.csv"
    board.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1087\nsize 67155\n")
    raw, plan = fetched(tmp_path, NAME, checkout)
    assert raw.title == "Tabular Playground, May"
    assert "is a Git LFS pointer" in raw.provenance.note and plan.board == ""
    (tmp_path / "boards" / NAME).mkdir(parents=True)
    raw, plan = fetched(tmp_path, NAME, checkout, tmp_path / "boards")
    assert "another one is used" in raw.provenance.note and plan.board == NAME
    board.write_text("scoreNullable,teamId,score,hasScore\n0.99,1,0.99,True\n,2,,False\n0.5,3,0.5,True\n")
    raw, plan = fetched(tmp_path, NAME, checkout)
    assert "private leaderboard of MLE-bench, 2 teams" in raw.provenance.note and plan.board == "board"
    assert (raw.folder / "board" / "private_leaderboard.csv").read_text() == "rank,score\n1,0.99\n2,0.5\n"


# ---------------------------------------------------------------- what is refused
def test_what_is_missing_is_named(tmp_path):
    (tmp_path / NAME / "raw").mkdir(parents=True)
    assert "is not prepared" in refused(tmp_path, NAME)
    root = prepare(tmp_path, NAME, TRUTH, SAMPLE)
    for path, told in (("private/answers.csv", "no answers: no file in private/ has id, target"),
                       ("public/sample_submission.csv", "no sample submission"),
                       ("public/description.md", "no description.md")):  # fmt: skip
        content = (root / path).read_bytes()
        (root / path).unlink()
        assert told in refused(tmp_path, NAME)
        (root / path).write_bytes(content)
    fetched(tmp_path, NAME)
    prepare(tmp_path, "another-competition", TRUTH, SAMPLE)
    assert "no metric is known for 'another-competition'" in refused(tmp_path, "another-competition")


def test_parts_that_do_not_fit(tmp_path):
    root = prepare(tmp_path, NAME, TRUTH, SAMPLE.iloc[1:])
    assert "1 answers have no row in sample_submission.csv, the first is 'i0'" in refused(tmp_path, NAME)
    SAMPLE.rename(columns={"target": "other"}).to_csv(root / "public" / "sample_submission.csv", index=False)
    assert "sample_submission.csv has no column 'target'" in refused(tmp_path, NAME)
    SAMPLE.to_csv(root / "public" / "sample_submission.csv", index=False)
    TRUTH.to_csv(root / "public" / "test.csv", index=False)
    assert "test.csv in the public folder shows the target 'target'" in refused(tmp_path, NAME)
    (root / "public" / "test.csv").unlink()
    (root / "public" / "test.csv").symlink_to(root / "private" / "answers.csv")
    assert "test.csv in the public folder is a link" in refused(tmp_path, NAME)


def test_one_hot_rows_without_a_one(tmp_path):
    name = "spooky-author-identification"
    sample = pd.DataFrame({"id": IDS, "EAP": 0.4, "HPL": 0.3, "MWS": 0.3})
    prepare(tmp_path, name, sample.assign(EAP=0, HPL=0, MWS=0), sample)
    assert "a row has not one 1" in refused(tmp_path, name)


def test_discover(tmp_path):
    with pytest.raises(Quarantine, match="is no folder"):
        mlebench.origin(tmp_path / "none").discover()
    prepare(tmp_path, NAME, TRUTH, SAMPLE)
    (tmp_path / ".cache").mkdir()
    (lead,) = mlebench.origin(tmp_path).discover()
    assert lead.id == NAME and lead == mlebench.origin(tmp_path).discover()[0]
    TRUTH.iloc[::-1].assign(more=1).to_csv(tmp_path / NAME / "prepared" / "private" / "answers.csv", index=False)
    assert mlebench.origin(tmp_path).discover()[0].digest() != lead.digest()
    assert dataclasses.asdict(lead)["provenance"]["source"] == "mle-bench"
