"""From an origin to a set of tasks: what is kept, mended and refused, what a second run does, what a death leaves."""

from dataclasses import replace

import pytest
from sources import PROVENANCE, frame, origin, plan

from mlexpert.factory.ledger import Ledger, read
from mlexpert.factory.make import LEDGER, make
from mlexpert.factory.records import Lead, Origin, Quarantine
from mlexpert.tasks.grading import Grader, probe
from mlexpert.tasks.task import load, load_set, notes
from mlexpert.types import Medal


def leaking():
    """A column that is the label under another name."""
    table = frame(160, classes=("no", "yes"))
    return table.assign(verdict=table["y"].map({"no": "alive", "yes": "dead"}))


def rare():
    """Three labels, one of them in a single row."""
    table = frame(150, classes=("a", "b", "c"))
    table.loc[7, "y"] = "unheard of"
    return table


SOURCES = {
    "good": (plan("good"), frame(160)),
    "leaks": (plan("leaks", metric="auc"), leaking()),
    "rare": (plan("rare", metric="macro_f1", recipe="stratified"), rare()),
    "away": (plan("away"), Quarantine("fetch", "no network; connect and start again")),
    "broken": (plan("broken"), frame(60).assign(y="5")),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("factory")
    seen = []
    report = make(origin(SOURCES), folder / "set", folder / "work", progress=lambda *told: seen.append(told))
    return folder, report, seen


@pytest.fixture
def again(made):
    """Runs the same set again, with changes."""
    return lambda sources=SOURCES, version="": make(origin(sources, version), made[0] / "set", made[0] / "work")


# ---------------------------------------------------------------- one run
def test_good_tasks_are_kept_and_bad_ones_do_not_stop_them(made):
    folder, report, seen = made
    assert report.kept == ["good", "leaks", "rare"] and set(report.repaired) == {"leaks", "rare"}
    assert report.quarantined["away"] == "fetch: no network; connect and start again"
    assert "target 'y' is 5 in every row" in report.quarantined["broken"] and len(report.quarantined) == 2
    assert [task.id for task in load_set(folder / "set")] == report.kept
    assert [told[:2] for told in seen] == [(done, 5) for done in range(1, 6)]
    assert {told[2]: told[3] for told in seen} == {
        "good": "kept", "leaks": "repaired", "rare": "repaired", "away": "quarantined", "broken": "quarantined"
    }  # fmt: skip


def test_what_was_mended_is_in_the_report_the_task_and_the_ledger(made):
    folder, report, _ = made
    leaks, mended = (load(folder / "set" / id) for id in ("leaks", "rare"))
    assert "dropped verdict" in report.repaired["leaks"][0] and "verdict" not in leaks.columns
    assert "merged 2 rare labels" in report.repaired["rare"][0] and len(mended.labels) == 3 and "other" in mended.labels
    for task in (leaks, mended):
        assert notes(task)["repairs"] == report.repaired[task.id]
    lines = [(entry.stage, entry.state) for entry in read(folder / "set" / LEDGER) if entry.task == "rare"]
    assert lines == [
        ("fetch", "done"), ("plan", "done"), ("repair", "repaired"), ("build", "done"), ("verify", "done"),
        ("leaks", "done"), ("seal", "repaired"),
    ]  # fmt: skip
    assert "dropped verdict" in [entry.reason for entry in read(folder / "set" / LEDGER) if entry.task == "leaks"][-1]


def test_a_kept_task_can_be_graded_and_says_where_it_comes_from(made):
    folder, report, _ = made
    for task in load_set(folder / "set"):
        sample, perfect = probe(Grader(task))
        assert sample.medal is Medal.NONE and perfect.medal is Medal.GOLD
        assert task.provenance == PROVENANCE and task.thresholds_from == "reference solutions"
        assert {"constant", "linear", "boosted"} <= notes(task)["references"].keys()
        detail = report.details[task.id]
        assert detail["rows"][1] == round(0.2 * sum(detail["rows"]))
        assert detail["metric"] == task.metric and detail["seconds"] > 0


def test_the_same_sources_give_the_same_tasks(made, tmp_path):
    some = {id: SOURCES[id] for id in ("good", "leaks")}
    make(origin(some), tmp_path / "set", tmp_path / "work", workers=1)
    for id in some:
        assert load(tmp_path / "set" / id).checksums == load(made[0] / "set" / id).checksums


# ---------------------------------------------------------------- a second run
def test_nothing_is_made_twice_but_what_could_not_be_fetched(made, again):
    before = len(read(made[0] / "set" / LEDGER))
    report = again()
    assert report.found == report.kept == ["good", "leaks", "rare"]
    assert report.repaired == made[1].repaired and report.details == made[1].details
    assert report.quarantined == made[1].quarantined and report.seconds < 1.0
    fresh = read(made[0] / "set" / LEDGER)[before:]
    assert [(entry.task, entry.stage) for entry in fresh] == [("away", "fetch")]


def test_an_altered_task_and_one_whose_making_was_cut_short_are_made_again(made, again):
    folder = made[0] / "set"
    checksums = load(folder / "good").checksums
    (folder / "good" / "public" / "train.csv").write_text("half a fi")
    ledger = Ledger(folder / LEDGER)
    ledger.append(replace(ledger.last("leaks"), stage="verify", state="done"))  # died after that
    with (folder / LEDGER).open("a") as file:
        file.write('{"task": "rare", "sta')
    report = again()
    assert report.found == ["rare"] and report.kept == made[1].kept
    assert load(folder / "good").checksums == checksums


def test_a_changed_lead_is_made_again_and_leaves_the_set_if_it_fails(made, again):
    folder = made[0] / "set"
    good, worse = {"good": SOURCES["good"]}, {"good": (plan("good"), frame(60).assign(y="5"))}
    assert again(worse).found == ["good"]  # neither lead nor version changed
    assert "good" in again(worse, version="2").quarantined and not (folder / "good").exists()
    assert (folder / "leaks").exists()  # what this origin does not name is not its business
    report = again(good)
    assert report.kept == ["good"] and not report.found


def test_a_fault_of_the_program_is_told_and_tried_again(made, again):
    sources = {"odd": (plan("odd"), object()), "broken": SOURCES["broken"]}
    for _ in range(2):
        report = again(sources)
        assert "fault of the program (AttributeError" in report.quarantined["odd"] and "broken" in report.quarantined
    assert "Traceback" in (made[0] / "work" / "odd" / "fault.txt").read_text()
    faults = [entry for entry in read(made[0] / "set" / LEDGER) if entry.stage == "fault"]
    assert len(faults) == 2


def test_two_tasks_of_one_name_are_an_error_of_the_origin(tmp_path):
    one = origin({"a": (plan("a"), frame(60))})
    twice = Origin(lambda: [Lead("a", "A", PROVENANCE)] * 2, one.fetch, one.plan)
    with pytest.raises(Quarantine, match="two tasks are called 'a'"):
        make(twice, tmp_path / "set", tmp_path / "work")


def test_a_blueprint_of_another_name_is_refused(tmp_path):
    report = make(origin({"a": (plan("b"), frame(60))}), tmp_path / "set", tmp_path / "work")
    assert "the blueprint is for 'b'" in report.quarantined["a"]


# ---------------------------------------------------------------- people's scores
def test_a_board_gives_thresholds_and_a_new_board_makes_the_task_again(tmp_path):
    sources = {"good": (plan("good", board="comp"), frame(160))}
    folder = tmp_path / "boards" / "comp"
    folder.mkdir(parents=True)

    def run(scores):
        (folder / "private.csv").write_text("rank,score\n" + "".join(f"{at},{s}\n" for at, s in enumerate(scores, 1)))
        return make(origin(sources), tmp_path / "set", tmp_path / "work", boards=tmp_path / "boards")

    assert run([0.1, 0.3, 0.6, 2.0]).details["good"]["thresholds_from"] == "leaderboard of comp, 4 teams (private)"
    assert load(tmp_path / "set" / "good").thresholds.gold == 0.1
    assert run([0.1, 0.3, 0.6, 2.0]).found == ["good"]
    assert "does not fit rmse" in run([2.0, 0.3, 0.1]).quarantined["good"]
