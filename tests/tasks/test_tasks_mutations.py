"""Files that are a little different from a perfect submission, for tasks of every kind: what each of them is worth."""

import csv
import gzip
import io
import shutil
from dataclasses import replace

import numpy as np
import pytest
from metric_cases import EACH
from task_cases import best_of, case_of, columns_of, make_task, text_of

from mlexpert.tasks.grading import Grader
from mlexpert.tasks.metrics import METRICS, Answers, Needs, evaluate
from mlexpert.tasks.metrics.record import NUMERIC
from mlexpert.types import Medal, VerdictStatus

KINDS = (
    ("accuracy", 0), ("macro_f1", 0), ("qwk", 0), ("auc", 0), ("auc", 1), ("logloss", 1), ("multiclass_auc", 0),
    ("rmse", 0), ("rmse", 1), ("rmsle", 0), ("spearman", 0), ("pinball", 1), ("crps", 0), ("kl_divergence", 0),
    ("multilabel_f", 0), ("lwlrap", 0), ("map_at_k", 1), ("ndcg", 0), ("exact_match", 0), ("levenshtein", 0),
    ("dice", 0), ("mask_precision", 0), ("point_f1", 0), ("box_map", 0), ("cuboid_map", 0), ("bias_auc", 0),
)  # fmt: skip
PERFECT, INVALID, UNREADABLE = "perfect", VerdictStatus.INVALID, VerdictStatus.UNREADABLE
MAY_BE_EMPTY = frozenset(Needs) - {*NUMERIC, Needs.LABEL}


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def joined(rows: list[list[str]], delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n", delimiter=delimiter, quoting=quoting).writerows(rows)
    return file.getvalue()


def on_rows(change):
    return lambda text: joined(change(rows_of(text)))


def with_cell(rows: list[list[str]], row: int, column: int, cell: str) -> list[list[str]]:
    return [
        [cell if (r, c) == (row, column) else old for c, old in enumerate(old_row)] for r, old_row in enumerate(rows)
    ]


# name -> (change, what comes of it, what the reason begins with)
MUTATIONS = {
    "none": (lambda text: text, PERFECT, ""),
    "rows in another order": (on_rows(lambda rows: [rows[0], *rows[:0:-1]]), PERFECT, ""),
    "columns in another order": (on_rows(lambda rows: [row[::-1] for row in rows]), PERFECT, ""),
    "CRLF": (lambda text: text.replace("\n", "\r\n"), PERFECT, ""),
    "CR": (lambda text: text.replace("\n", "\r"), PERFECT, ""),
    "a BOM": (lambda text: "\ufeff" + text, PERFECT, ""),
    "every field quoted": (lambda text: joined(rows_of(text), quoting=csv.QUOTE_ALL), PERFECT, ""),
    "blank lines": (lambda text: "\n" + text.replace("\n", "\n\n") + "\n\n", PERFECT, ""),
    "no last newline": (lambda text: text.rstrip("\n"), PERFECT, ""),
    "a further column": (on_rows(lambda rows: [[*row, "x"] for row in rows]), PERFECT, "column 'x' is ignored"),
    "an index column": (
        on_rows(lambda rows: [[str(at - 1) if at else "Unnamed: 0", *row] for at, row in enumerate(rows)]),
        PERFECT,
        "column 'Unnamed: 0' is ignored",
    ),
    "an index column without a name": (
        on_rows(lambda rows: [[str(at - 1) if at else "", *row] for at, row in enumerate(rows)]),
        PERFECT,
        "column '' is ignored",
    ),
    "gzip": (lambda text: gzip.compress(text.encode()), PERFECT, "gzip, unpacked"),
    "UTF-16": (lambda text: text.encode("utf-16"), PERFECT, "read as UTF-16"),
    "semicolons": (lambda text: joined(rows_of(text), ";"), INVALID, "separated by semicolons"),
    "tabs": (lambda text: joined(rows_of(text), "\t"), INVALID, "separated by tabs"),
    "no header": (on_rows(lambda rows: rows[1:]), INVALID, "no header line"),
    "the header twice": (on_rows(lambda rows: [rows[0], *rows]), INVALID, "line 2: the header is repeated"),
    "no id column": (on_rows(lambda rows: [row[1:] for row in rows]), INVALID, "missing column 'id'"),
    "a column less": (on_rows(lambda rows: [row[:-1] for row in rows]), INVALID, "missing column"),
    "a column under another name": (on_rows(lambda rows: with_cell(rows, 0, 1, "Y")), INVALID, "missing column"),
    "a row less": (on_rows(lambda rows: rows[:-1]), INVALID, "missing ids: 1, first"),
    "a row twice": (on_rows(lambda rows: [*rows, rows[1]]), INVALID, "duplicate ids: 1, first 'r0'"),
    "one id in place of another": (on_rows(lambda rows: with_cell(rows, 2, 0, "r0")), INVALID, "duplicate ids: 1"),
    "an unknown id": (on_rows(lambda rows: with_cell(rows, 1, 0, "r99")), INVALID, "unknown ids: 1, first 'r99'"),
    "ids with a blank": (
        on_rows(lambda rows: [rows[0], *([f" {row[0]}", *row[1:]] for row in rows[1:])]),
        INVALID,
        "unknown ids",
    ),
    "ids in capitals": (
        on_rows(lambda rows: [rows[0], *([row[0].upper(), *row[1:]] for row in rows[1:])]),
        INVALID,
        "unknown ids",
    ),
    "a field too many": (on_rows(lambda rows: [rows[0], [*rows[1], "1"], *rows[2:]]), INVALID, "line 2: "),
    "no row": (on_rows(lambda rows: rows[:1]), INVALID, "no rows below the header"),
    "an open quote": (lambda text: text + 'r9,"', UNREADABLE, "broken CSV near line"),
    "a stray byte": (lambda text: text.encode() + b"\xe9,1\n", UNREADABLE, "not UTF-8 (line"),
    "a zero byte": (lambda text: text + "\0", UNREADABLE, "a binary file"),
    "nothing": (lambda text: "", UNREADABLE, "the file is empty"),
    "a web page": (lambda text: "<!doctype html><html></html>", UNREADABLE, "a HTML or XML file"),
    "JSON": (lambda text: '[{"id": "r0"}]', UNREADABLE, "a JSON file"),
}  # fmt: skip
# These depend on what a cell holds.
CELLS = {
    "an empty cell": "",
    "nan": "nan",
    "infinity": "inf",
    "a word": "zebra",
}


@pytest.fixture(scope="module")
def graders(tmp_path_factory):
    """(name, variant) -> grader, text of the perfect submission, its score."""
    folder, made = tmp_path_factory.mktemp("kinds"), {}

    def get(kind):
        if kind not in made:
            task, case = make_task(folder, *kind)
            text = text_of(list(Grader(task).form.ids), columns_of(case), best_of(case))
            grader = Grader(task)
            made[kind] = grader, text, hand_in(grader, text).score, case
        return made[kind]

    return get


def hand_in(grader, content):
    path = grader.task.root / "handed-in.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return grader.grade(path)


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_what_a_changed_file_is_worth(graders, kind, mutation):
    grader, text, best, _ = graders(kind)
    change, expected, reason = MUTATIONS[mutation]
    verdict = hand_in(grader, change(text))
    assert verdict.reason.startswith(reason) and len(verdict.reason) <= 60, verdict
    if expected is PERFECT:
        assert verdict.status is VerdictStatus.GRADED and verdict.score == best
    else:
        assert verdict.status is expected and verdict.score is None and verdict.medal is Medal.NONE


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_a_bad_cell_is_invalid_or_worse_and_never_better(graders, kind, cell):
    grader, text, best, case = graders(kind)
    verdict = hand_in(grader, joined(with_cell(rows_of(text), 2, 1, CELLS[cell])))
    if case.metric.needs in MAY_BE_EMPTY and verdict.status is VerdictStatus.GRADED:
        assert verdict.score >= best if grader.task.lower_is_better else verdict.score <= best
    else:
        assert verdict.status is INVALID and verdict.score is None
        assert "line 3" in verdict.reason


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not case_of(*kind).beside], ids=lambda kind: kind[0])
def test_nothing_that_is_said_depends_on_the_answers(graders, kind, tmp_path):
    """The same public part with the answers of other rows: every verdict but the score is the same."""
    grader, text, _, case = graders(kind)
    shutil.copytree(grader.task.root, tmp_path / "copy")
    other = Grader(replace(grader.task, root=tmp_path / "copy"))
    order = np.roll(np.arange(case.answers.rows), 1)
    other.answers = Answers(other.answers.values[order], {})
    cells = [joined(with_cell(rows_of(text), 2, 1, cell)) for cell in (*CELLS.values(), "-1", "0.5", "7 8 9", "c0 c0")]
    for content in [*(change(text) for change, _, _ in MUTATIONS.values()), *cells]:
        one, two = hand_in(grader, content), hand_in(other, content)
        assert (one.status, one.reason) == (two.status, two.reason)


@pytest.mark.parametrize(("name", "variant"), EACH)
def test_a_file_scores_what_its_values_do(tmp_path, name, variant):
    """Every metric, through a task folder and a CSV file; the best predictions that a task gives are its best file."""
    task, case = make_task(tmp_path, name, variant)
    grader = Grader(task)
    found = grader.grade(task.public / "sample_submission.csv")
    assert found.score == evaluate(case.metric, case.answers, case.predictions, len(case.labels))
    assert found.reason == "the same values as the sample submission"
    perfect = hand_in(grader, text_of(list(grader.form.ids), columns_of(case), best_of(case)))
    assert perfect.score is not None and METRICS[name].lower_is_better == task.lower_is_better
    assert perfect.score <= found.score if task.lower_is_better else perfect.score >= found.score
