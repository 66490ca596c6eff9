"""Decisions of reviewers, the page they read, and what of a set reaches training."""

import getpass
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ml_collections import ConfigDict

from mlexpert.factory.ledger import Entry, Ledger
from mlexpert.loops import review, tasksets
from mlexpert.loops.reviewing import charts, decisions, markup
from mlexpert.loops.reviewing.exhibit import exhibit
from mlexpert.loops.reviewing.page import page
from mlexpert.loops.settings import ConfigError, validate
from mlexpert.tasks import sources
from mlexpert.tasks.seal import write
from mlexpert.tasks.sources import Sources
from mlexpert.tasks.task import Facts, Provenance, Split, TaskError, Thresholds, load_set

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = [
    {"kind": "single_column", "severity": "warn", "text": "column 'a' alone tells", "column": "a", "value": 0.99}
]


def make(folder, id, source="data", text="Boxes & <b>tags</b>", noted=None, **facts):
    train = pd.DataFrame({"id": [f"t{at}" for at in range(40)], "a": [str(at % 7) for at in range(40)]})
    train["y"] = ["yes" if at % 3 else "no" for at in range(40)]
    test = pd.DataFrame({"id": ["1", "2", "3"], "a": ["4", "5", "6"]})
    answers = pd.DataFrame({"id": ["1", "2", "3"], "y": ["yes", "no", "yes"]})
    given = Facts(
        id=id, modality="tabular", domain="tests", metric="accuracy", id_column="id", target_columns=("y",),
        labels=("no", "yes"), provenance=Provenance("test", "https://example.org/x", "CC0", True, source),
        split=Split("random", 1, 0.07, drift={"a": 0.31, "adversarial AUC": 0.52}), columns={"a": "number"},
        thresholds_from="reference solutions",
    )  # fmt: skip
    return write(
        folder, replace(given, **facts), Thresholds(0.9, 0.8, 0.7, 0.6, 0.5), description=f"# {id}\n{text}\n",
        train=train, test=test, sample=answers.assign(y="yes"), answers=answers,
        notes={"findings": FINDINGS, "references": {"linear": 0.75}, "title": f"The {id}"} if noted is None else noted,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for id, source in {"ash": "tree", "elm": "tree", "oak": "wood", "yew": "bush"}.items():
        make(tmp_path / "set", id, source)
    return tmp_path / "set"


def run(folder, out, **changes):
    config = dict(name="review", loop="review", tasks=str(folder), accept="", reject="", who="", why="")
    review.run(validate(ConfigDict(config | changes)), out)
    return (out / "review.html").read_text()


def standings(folder):
    return {task.id: decisions.standing(task, decisions.read(folder)) for task in load_set(folder)}


# ---------------------------------------------------------------- decisions
def test_decisions_are_recorded_with_time_user_and_checksum(folder, tmp_path, capsys):
    run(folder, tmp_path / "out", accept="ash, elm", reject="oak:too easy; yew:labels: odd", who="ada")
    told = json.loads((folder / "review.json").read_text())["decisions"]
    assert [(each["task"], each["decision"], each["why"]) for each in told] == [
        ("ash", "accepted", ""), ("elm", "accepted", ""),
        ("oak", "rejected", "too easy"), ("yew", "rejected", "labels: odd"),
    ]  # fmt: skip
    assert all(each["who"] == "ada" and re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:]+\+00:00", each["when"]) for each in told)
    assert "4 of 4 tasks are decided" in capsys.readouterr().out
    run(folder, tmp_path / "out", accept="oak")
    assert decisions.read(folder)[-1].who == getpass.getuser()
    assert standings(folder)["oak"].state == "accepted"  # the last word counts


def test_a_changed_task_needs_a_new_decision(folder, tmp_path):
    run(folder, tmp_path / "out", accept="ash", reject="oak:leaks")
    make(folder, "ash", text="other words")
    make(folder, "oak", text="other words")
    now = standings(folder)
    assert now["ash"].state == now["oak"].state == "undecided"
    assert now["oak"].is_barred and not now["ash"].is_barred
    run(folder, tmp_path / "out", accept="all")
    assert standings(folder)["oak"].state == "undecided"  # "all" does not overrule an earlier rejection
    run(folder, tmp_path / "out", accept="oak")
    assert not standings(folder)["oak"].is_barred


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (dict(tasks=""), "tasks is empty"),
        (dict(accept="fir"), "'fir' is no task of .*; there are ash, elm, oak, yew"),
        (dict(reject="oak"), "a rejection needs a reason"),
        (dict(accept="oak", reject="oak:x"), "'oak' is accepted and rejected"),
    ],
)
def test_what_cannot_be_decided_is_refused(folder, tmp_path, changes, told):
    with pytest.raises(ConfigError, match=told):
        run(changes.pop("tasks", folder), tmp_path / "out", **changes)
    assert not (folder / "review.json").exists()


def test_a_damaged_record_is_an_error(folder, tmp_path):
    for text in (
        "{",
        '{"decisions": [{"task": "oak"}]}',
        '{"decisions": [{"task":"a","digest":"","decision":"maybe","who":"","when":""}]}',
    ):
        (folder / "review.json").write_text(text)
        with pytest.raises(TaskError, match=r"review\.json"):
            run(folder, tmp_path / "out")


# ---------------------------------------------------------------- training
def config(train_folder, **tasks):
    fields = dict(n_train=2, n_held_out=1, kinds=("tabular",), seed=1, held_out_seed=2, folder="")
    return ConfigDict({"tasks": fields | {"train_folder": str(train_folder)} | tasks})


def ids(tasks):
    return [task.id for task in tasks]


def test_rejected_and_held_out_tasks_never_reach_training(folder, tmp_path, capsys):
    sources.record(folder, Sources(("tree", "wood"), ("bush",), 0.3, 0))
    assert ids(tasksets.training(config(folder), None)) == ["ash", "elm", "oak"]
    assert "left out, held out by source: yew" in capsys.readouterr().out
    run(folder, tmp_path / "out", reject="elm:labels")
    assert ids(tasksets.training(config(folder), None)) == ["ash", "oak"]
    told = capsys.readouterr().out
    assert "left out, rejected by review: elm" in told and "2 of 3 tasks are not reviewed" not in told
    assert ids(tasksets.held_out(config(folder), None)) == ["yew"]
    make(folder, "elm", "tree", text="mended")  # nobody has looked at the new one
    assert ids(tasksets.training(config(folder), None)) == ["ash", "oak"]


def test_a_set_without_a_split_gets_one_by_source(folder, capsys):
    train, held = tasksets.training(config(folder), None), tasksets.held_out(config(folder), None)
    assert sorted(ids(train) + ids(held)) == ["ash", "elm", "oak", "yew"] and train and held
    assert {task.id for task in train}.isdisjoint(ids(held)) and (("ash" in ids(train)) == ("elm" in ids(train)))
    assert "3 sources are new" in capsys.readouterr().out
    recorded = sources.recorded(folder)
    make(folder, "fir", "new one")
    tasksets.training(config(folder), None)
    again = sources.recorded(folder)
    assert set(recorded.held_out) <= set(again.held_out) and set(recorded.train) <= set(again.train)
    assert "new-one" in {*again.train, *again.held_out}


def test_a_held_out_set_of_the_same_data_is_refused(folder, tmp_path):
    sources.record(folder, Sources(("bush", "tree", "wood"), (), 0.0, 0))
    make(tmp_path / "other", "maple", "Tree")
    with pytest.raises(TaskError, match=r"task ash is made from the same data as the held-out task maple \(2 such"):
        tasksets.training(config(folder, folder=str(tmp_path / "other")), None)
    make(tmp_path / "far", "lily", "flower")
    far = config(folder, folder=str(tmp_path / "far"))
    assert len(tasksets.training(far, None)) == 4 and ids(tasksets.held_out(far, None)) == ["lily"]


def test_nothing_left_is_an_error(folder, tmp_path):
    sources.record(folder, Sources((), ("bush", "tree", "wood"), 1.0, 0))
    with pytest.raises(TaskError, match="nothing is left to train on"):
        tasksets.training(config(folder), None)
    run(folder, tmp_path / "out", reject="ash:x;elm:x;oak:x;yew:x")
    with pytest.raises(TaskError, match="every task is rejected by review"):
        tasksets.held_out(config(folder), None)


# ---------------------------------------------------------------- the page
class Checker(HTMLParser):
    """Every tag is closed in order, nothing is loaded, and texts are kept."""

    VOID = frozenset({"meta", "input", "img", "br", "rect", "line", "circle", "polyline"})

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.tags, self.loads = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [
            value for name, value in attributes if name in ("src", "srcset") and not value.startswith("data:")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        while self.open and self.open[-1] in ("th", "td") and self.open[-1] != tag:
            self.open.pop()  # HTML closes cells of a row by itself
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(html):
    checker = Checker()
    checker.feed(html)
    assert not checker.open and not checker.loads and "link" not in checker.tags
    return checker, " ".join(checker.texts)


def test_the_page_shows_all_there_is_and_needs_nothing(folder, tmp_path):
    ledger = Ledger(folder / "ledger.jsonl")
    ledger.append(Entry("oak", "repair", "repaired", "dropped 'b'"))
    ledger.append(Entry("pine", "verify", "quarantined", "all rows have one class"))
    sources.record(folder, Sources(("tree", "wood"), ("bush",), 0.3, 0))
    html = run(folder, tmp_path / "out", reject="oak:<script>alert(1)</script>", who="ada")
    checker, text = read(html)
    for shown in (
        "The oak", "Boxes & <b>tags</b>", "column 'a' alone tells", "linear", "gold 0.9", "dropped 'b'", "CC0",
        "all rows have one class", "AUC 0.520", "0.310", "held out", "rejected", "<script>alert(1)</script>",
        "https://example.org/x",
    ):  # fmt: skip
        assert shown in text, shown
    assert checker.tags.count("script") == 1 and checker.tags.count("article") == 4 and checker.tags.count("svg") >= 12
    assert "default-src 'none'" in html and "://" not in html.replace("https://example.org/x", "")


def test_pictures_are_inside(tmp_path):
    task = make(tmp_path / "set", "photos", columns={"a": "file"})
    (task.public / "4").write_bytes(b"")
    train = pd.read_csv(task.public / "train.csv", dtype=str)
    (task.public / "one.png").write_bytes(b"\x89PNG bytes")
    train.assign(a="one.png").to_csv(task.public / "train.csv", index=False)
    html = page("set", [exhibit(task, [], [], None)], {}, "run")
    assert html.count('<img src="data:image/png;base64,iVBORyBieXRlcw=="') == 8


def test_a_task_of_another_maker_is_searched_for_leaks(tmp_path):
    task = make(tmp_path / "set", "bare", noted={})
    (task.root / "ledger.jsonl").write_text("")
    _, text = read(run(tmp_path / "set", tmp_path / "out"))
    assert "No leak, nothing to remark." in text and "sample submission" in text


def test_markdown_is_escaped_and_laid_out():
    html = markup.html("# A <i>\n\nx `a*b` **bold** y\n\n- one\n  more\n- two\n\n```\n<code>\n\n```\n")
    listed = "<ul><li>one more</li><li>two</li></ul><pre>&lt;code&gt;\n</pre>"
    assert html == f"<h3>A &lt;i&gt;</h3><p>x <code>a*b</code> <b>bold</b> y</p>{listed}"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0"),
        (0.12345, "0.1235"),
        (1234567.0, "1.23e+06"),
        (16625.5, "16,626"),
        (90.0, "90"),
        (1e-9, "1e-09"),
        (-2.5, "-2.5"),
    ],
)
def test_numbers_as_people_write_them(value, told):
    assert charts.short(value) == told


@pytest.mark.parametrize("lower", [False, True])
def test_better_scores_stand_further_to_the_right(lower):
    scores = (
        dict(gold=0.1, silver=0.2, bronze=0.3, median=0.4)
        if lower
        else dict(gold=0.9, silver=0.8, bronze=0.7, median=0.6)
    )
    best, worst = (0.05, 0.5) if lower else (0.95, 0.5)
    drawn = charts.ladder(scores, {"best": best, "worst": worst}, [], lower)
    places = dict(zip(["worst", "best"], map(float, re.findall(r'<circle cx="([\d.]+)"', drawn)), strict=True))
    lines = {name: float(x) for x, name in re.findall(r'<line x1="([\d.]+)"[^>]* class="mark (\w+)"', drawn)}
    order = [places["worst"], lines["median"], lines["bronze"], lines["silver"], lines["gold"], places["best"]]
    assert order == sorted(order) and len(set(order)) == 6


def test_equal_values_can_be_drawn():
    flat = np.full(5, 3.0)
    assert "<svg" in charts.histogram(flat, flat) and "<svg" in charts.histogram(np.array([]), np.array([np.nan]))
    assert "<svg" in charts.ladder(dict.fromkeys(("gold", "silver", "bronze", "median"), 1.0), {}, [1.0, 1.0], False)


def test_whole_numbers_get_a_bin_each():
    values = np.array([3.0, 4, 4, 5, 5, 5, 9])
    borders = charts.edges(values)
    assert borders.tolist() == [2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5]
    assert charts.shares(values, borders) == pytest.approx([1 / 7, 2 / 7, 3 / 7, 0, 0, 0, 1 / 7])
    assert np.diff(charts.edges(np.arange(1000.0))).tolist() == [34.0] * 30  # wide ranges: whole widths
    assert sum(charts.shares(np.array([-50.0, 0.5, 7e9]), np.array([0.0, 1.0]))) == 1.0  # none is lost


def test_the_command(folder, tmp_path):
    command = [sys.executable, "experiments/run.py", "--config=configs/review.py", f"--workdir={tmp_path / 'out'}"]
    chosen = [f"--config.tasks={folder}", "--config.accept=all", "--config.who=ada"]
    done = subprocess.run([*command, *chosen], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 decisions recorded now; 4 of 4 tasks are decided" in done.stdout
    assert (tmp_path / "out" / "review.html").exists()
