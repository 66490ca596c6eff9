"""Verification notices what is wrong with a task; repair changes what can be changed and says so."""

import json
import resource
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sources import frame, plan, raw

from mlexpert.factory import reference
from mlexpert.factory.adopt import adopt
from mlexpert.factory.attempt import Draft, Refused, mended, seal_into
from mlexpert.factory.build import Staged, build
from mlexpert.factory.records import Finding, Quarantine
from mlexpert.factory.reference import SAMPLE_SCORE, Job
from mlexpert.factory.repair import ATTEMPTS, Problem, problems_of, repair
from mlexpert.factory.thresholds import Decision
from mlexpert.factory.verify import verify
from mlexpert.tasks.task import Thresholds


# ---------------------------------------------------------------- verify
@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A staged task, what its solutions scored, and the folder of their submissions."""
    folder = tmp_path_factory.mktemp("sound")
    source, how = raw(folder / "raw", data=frame(80)), plan()
    staged = build(source, how, folder / "staged")
    out = folder / "out"
    out.mkdir()
    staged.answers.to_csv(out / "answers.csv", index=False)
    return source, how, staged, reference.scores(Job(staged.facts, staged.public, out / "answers.csv", out)), out


def sealed(sound, folder, staged: Staged | None = None, **changes):
    source, how, made, scores, _ = sound
    limits = Thresholds(*[min(scores.values())] * 3, np.median(list(scores.values())), scores[SAMPLE_SCORE])
    decision = Decision(replace(limits, **changes), "reference solutions")
    staged = staged or made
    facts = replace(staged.facts, thresholds_from="reference solutions")
    return seal_into(folder, Draft(replace(staged, facts=facts), decision, scores, (), None), source, how, ())


def test_a_sound_task_passes_and_its_shuffled_answers_are_told(sound, tmp_path):
    findings = verify(sealed(sound, tmp_path), sound[3], sound[4])
    assert [finding.kind for finding in findings] == ["shuffled"] and findings[0].value > sound[3]["constant"]


def test_solutions_are_in_sane_order(sound):
    scores = sound[3]
    assert (
        scores["linear"] < scores["shallow tree"] < scores["constant"] == pytest.approx(scores[SAMPLE_SCORE], rel=1e-5)
    )


def test_a_sample_that_scores_something_else_than_its_threshold_is_noticed(sound, tmp_path):
    with pytest.raises(Quarantine, match="the sample scores"):
        verify(sealed(sound, tmp_path, sample=123.0), sound[3], sound[4])


def test_a_file_that_scores_something_else_than_its_numbers_is_noticed(sound, tmp_path):
    with pytest.raises(Quarantine, match=r"'linear' solution scores .* as a file"):
        verify(sealed(sound, tmp_path), sound[3] | {"linear": 0.123}, sound[4])
    lines = (sound[4] / "linear.csv").read_text().splitlines()
    (tmp_path / "linear.csv").write_text("\n".join(lines[:-1]))
    with pytest.raises(Quarantine, match=r"'linear' solution is not valid: .*missing"):
        verify(sealed(sound, tmp_path / "set"), {name: sound[3][name] for name in (SAMPLE_SCORE, "linear")}, tmp_path)


def test_answers_given_to_the_wrong_rows_are_noticed(sound, tmp_path):
    source, how, staged, _, _ = sound
    draw = np.random.default_rng(0)
    wrong = replace(staged, answers=staged.answers.assign(y=draw.permutation(staged.answers["y"])))
    out = tmp_path / "out"
    out.mkdir()
    wrong.answers.to_csv(out / "answers.csv", index=False)
    scores = reference.scores(Job(staged.facts, staged.public, out / "answers.csv", out))
    task = sealed((source, how, staged, scores, out), tmp_path / "set", wrong, median=max(scores.values()))
    with pytest.raises(Quarantine, match=r"no solution beats a constant .* ids do not align") as error:
        verify(task, scores, out)
    assert error.value.kind == "nothing_learnt"


def test_a_solution_better_than_perfect_answers_means_a_wrong_direction(sound, tmp_path, monkeypatch):
    from mlexpert.factory import verify as module

    monkeypatch.setattr(module, "perfect_predictions", lambda grader: np.full(grader.answers.rows, 1e3))
    with pytest.raises(Quarantine, match="direction is wrong") as error:
        verify(sealed(sound, tmp_path), sound[3], sound[4])
    assert error.value.kind == "direction"


# ---------------------------------------------------------------- the process of the solutions


def dying(job, seconds):
    raise SystemExit(3)


def burning(job, seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
    while True:
        pass


def sleeping(job, seconds):
    time.sleep(60)


@pytest.mark.parametrize(
    ("instead", "message"),
    [(dying, "ended with code 3"), (burning, "took longer than 0.01 s"), (sleeping, "took longer than 0.01 s")],
)
def test_a_process_that_dies_or_is_slow_is_told(sound, tmp_path, monkeypatch, instead, message):
    monkeypatch.setattr(reference, "work", instead)
    monkeypatch.setattr(reference, "WAIT", 10 if instead is sleeping else 10_000)
    with pytest.raises(Quarantine, match=message) as error:
        reference.run(Job(sound[2].facts, sound[2].public, sound[4] / "answers.csv", tmp_path), seconds=0.01)
    assert error.value.kind == reference.RESOURCES


def test_an_error_in_the_process_comes_back_as_a_reason(sound, tmp_path):
    (tmp_path / "answers.csv").write_text("id,y\n1,2\n")
    with pytest.raises(Quarantine, match=r"reference solutions: TaskError: the ids of answers\.csv"):
        reference.run(Job(sound[2].facts, sound[2].public, tmp_path / "answers.csv", tmp_path))


def test_a_process_gives_what_a_call_gives(sound, tmp_path):
    out = tmp_path / "out"
    found = reference.run(Job(sound[2].facts, sound[2].public, sound[4] / "answers.csv", out))
    assert found == sound[3] and json.loads((out / "result.json").read_text())["scores"] == found


# ---------------------------------------------------------------- repair
def test_findings_of_one_kind_are_one_problem_and_only_refusals_count():
    findings = [
        Finding("single_column", "refuse", "a tells", "a"),
        Finding("single_column", "refuse", "b tells", "b"),
        Finding("presence", "warn", "c may tell", "c"),
        Finding("file_names", "refuse", "names tell"),
    ]
    assert problems_of(findings) == [
        Problem("single_column", "a tells; b tells", ("a", "b")), Problem("file_names", "names tell")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "before", "after"),
    [
        (Problem("single_column", "t", ("a", "b")), {}, {"drop": {"a": "t", "b": "t"}}),
        (Problem("presence", "t", ("a",)), {"drop": {"b": "s"}}, {"drop": {"b": "s", "a": "t"}}),
        (Problem("id_order", "t", ("a",)), {"id_column": "a"}, {"id_column": "", "drop": {"a": "t"}}),
        (Problem("duplicate_rows", "t"), {}, {"distinct": True}),
        (Problem("one_class", "t"), {}, {"recipe": "stratified"}),
        (Problem("undefined", "t"), {"recipe": "grouped", "group_column": "town"}, {"seed": 1}),
        (Problem("shared_file", "t"), {"files_column": "a"}, {"recipe": "grouped", "group_column": "a"}),
    ],
)
def test_repairs(problem, before, after, tmp_path):
    how = plan(**before)
    found = repair(raw(tmp_path, data=frame(20)), how, problem)
    assert found and found.plan == replace(how, **after) and found.text.endswith("t")


@pytest.mark.parametrize(
    ("problem", "before"),
    [
        (Problem("direction", "t"), {}),
        (Problem("", "t"), {}),
        (Problem("single_column", "t", ("y",)), {}),
        (Problem("single_column", "t", ("a",)), {"drop": {"a": "s"}}),
        (Problem("single_column", "t", ("town",)), {"recipe": "grouped", "group_column": "town"}),
        (Problem("id_order", "t"), {}),
        (Problem("duplicate_rows", "t"), {"distinct": True}),
        (Problem("one_class", "t"), {"recipe": "stratified"}),
        (Problem("duplicate_rows", "t"), {"public_folder": "public", "answers": "a.csv"}),
    ],
)
def test_what_no_change_can_mend_is_left_to_a_person(problem, before, tmp_path):
    assert repair(raw(tmp_path, data=frame(20)), plan(**before), problem) is None


def test_rare_labels_are_merged_with_the_next_rarest(tmp_path):
    labels = ["a"] * 30 + ["b"] * 20 + ["c"] * 6 + ["other"] * 1
    source = raw(tmp_path, data=pd.DataFrame({"x": range(57), "y": labels}))
    found = repair(source, plan(metric="accuracy", recipe="stratified"), Problem("unseen_label", "t"))
    assert found and found.plan.merge_labels == {"other": "other labels", "c": "other labels"}


def test_repairs_are_bounded_and_their_history_is_told(tmp_path):
    source, error = raw(tmp_path, data=frame(20)), Refused([Finding("single_column", "refuse", "a tells", "a")])
    changed, text = mended(source, plan(), error, [])
    assert changed.drop == {"a": "a tells"} and text == "dropped a: a tells"
    with pytest.raises(Quarantine, match=f"leaks: a tells \\(after {ATTEMPTS} repairs: one; two"):
        mended(source, plan(), error, ["one", "two", *["x"] * (ATTEMPTS - 2)])


# ---------------------------------------------------------------- prepared benchmarks
@pytest.fixture
def prepared(tmp_path):
    data = frame(50).assign(id=[f"r{at}" for at in range(50)])
    train, test = data[:40], data[40:]
    public = tmp_path / "raw" / "public"
    source = raw(tmp_path / "raw", answers=test[["id", "y", "a"]])
    raw(public, train=train, test=test.drop(columns="y"), sampleSubmission=test[["id"]].assign(y=1.0))
    (public / "pictures").mkdir()
    (public / "pictures" / "1.bin").write_bytes(b"x")
    how = dict(public_folder="public", answers="answers.csv", train="train.csv", test="test.csv", id_column="id",
               sample="sampleSubmission.csv", recipe="ready")  # fmt: skip
    return source, how, tmp_path / "staged"


def test_a_prepared_folder_is_copied_as_it_is_and_the_answers_stay_outside(prepared):
    source, how, folder = prepared
    staged = adopt(source, plan(**how), folder)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert names == ["description.md", "pictures/1.bin", "sample_submission.csv", "test.csv", "train.csv"]
    assert (folder / "train.csv").read_bytes() == (source.folder / "public" / "train.csv").read_bytes()
    assert list(staged.answers) == ["id", "y"] and staged.rows == (40, 10)
    assert staged.facts.split.recipe == "ready" and staged.facts.split.test_share == 0.2
    assert staged.facts.columns["a"] == "number" and staged.facts.columns["id"] == "id"


def test_answers_inside_the_public_folder_are_not_copied(prepared):
    source, how, folder = prepared
    (source.folder / "answers.csv").rename(source.folder / "public" / "answers.csv")
    adopt(source, plan(**(how | {"answers": "public/answers.csv"})), folder)
    assert not (folder / "answers.csv").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample": "none.csv"}, "no none.csv"),
        ({"public_folder": "elsewhere"}, "no folder 'elsewhere'"),
        ({"target_columns": ["z"]}, "answers.csv has no column 'z'; it has id, y, a"),
    ],
)
def test_a_prepared_folder_that_lacks_something_says_what(prepared, changes, message):
    source, how, folder = prepared
    with pytest.raises(Quarantine, match=message):
        adopt(source, plan(**(how | changes)), folder)
