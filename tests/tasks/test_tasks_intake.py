"""Every file a policy might leave behind: accepted as documented, or refused with a short reason it can act on."""

import errno
import gzip
import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlexpert.tasks.intake import Form, Predictions, label_codes, read_submission, size_limit
from mlexpert.tasks.metrics import Needs
from mlexpert.tasks.reasons import Note, Reason, Refusal, fill, quoted
from mlexpert.types import VerdictStatus


def form(needs=Needs.NUMBER, labels=(), ids=("a", "b", "c"), columns=("y",)) -> Form:
    place = {id: at for at, id in enumerate(ids)}
    shares = needs is Needs.PROBABILITY and len(columns) > 1
    return Form("id", columns, ids, place, needs, label_codes(labels), sum_to_one=shares)


def read(tmp_path, content: str | bytes, **fields) -> Predictions | Refusal:
    path = tmp_path / "submission.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_submission(path, form(**fields))


def values(outcome: Predictions | Refusal) -> list:
    assert isinstance(outcome, Predictions), outcome
    return outcome.values.tolist()


GOOD = "id,y\na,1\nb,2\nc,3\n"


# ---------------------------------------------------------------- accepted
@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        GOOD.rstrip(),
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\r"),
        "\ufeff" + GOOD,
        '"id","y"\n"a","1"\n"b","2"\n"c","3"\n',
        "id,y\nc,3\na,1\nb,2\n",
        "y,id\n1,a\n2,b\n3,c\n",
        "id,y\na,1.0\nb,2e0\nc, 3\n",
        "id,y\n\na,1\n\nb,2\nc,3\n\n",
    ],
)
def test_accepted_spellings_of_the_same_submission(tmp_path, content):
    assert read(tmp_path, content) == Predictions(pytest.approx([1, 2, 3]), "")


@pytest.mark.parametrize("name", ["Unnamed: 0", "", "fold"])
def test_further_columns_are_ignored_with_a_note(tmp_path, name):
    outcome = read(tmp_path, f"{name},id,y\n0,a,1\n1,b,2\n2,c,3\n")
    assert values(outcome) == [1, 2, 3]
    assert outcome.note == f"column {name!r} is ignored"


def test_ids_near_two_to_the_53_stay_apart(tmp_path):
    big = ("9007199254740992", "9007199254740993")
    assert values(read(tmp_path, f"id,y\n{big[1]},1\n{big[0]},0\n", ids=big)) == [0, 1]


@pytest.mark.parametrize("yes", ["True", "true", "TRUE", "1", "1.0"])
@pytest.mark.parametrize("labels", [("False", "True"), ("0", "1"), ("false", "true")])
def test_booleans_may_be_written_the_other_way(tmp_path, yes, labels):
    assert values(read(tmp_path, f"id,y\na,{yes}\n", needs=Needs.LABEL, labels=labels, ids=("a",))) == [1]


def test_whole_number_labels_may_be_written_as_floats(tmp_path):
    assert values(read(tmp_path, "id,y\na,3.0\nb,2\nc,-1.0\n", needs=Needs.LABEL, labels=("-1", "2", "3"))) == [2, 1, 0]
    assert values(read(tmp_path, "id,y\na,3\nb,2.0\nc,2\n", needs=Needs.LABEL, labels=("2.0", "3.0"))) == [1, 0, 0]


def test_an_alias_never_shadows_a_label():
    assert label_codes(("1", "1.0")) == {"1": 0, "1.0": 1}


def test_missing_value_words_are_text(tmp_path):
    outcome = read(tmp_path, "id,y\na,NA\nb,None\nc,null\n", needs=Needs.LABEL, labels=("None", "null", "NA"))
    assert values(outcome) == [2, 0, 1]


def test_shares_with_three_decimals(tmp_path):
    three = dict(needs=Needs.PROBABILITY, labels=("p", "q", "r"), columns=("p", "q", "r"), ids=("a",))
    assert values(read(tmp_path, "id,r,q,p\na,.334,.333,.332\n", **three)) == [[0.332, 0.333, 0.334]]


def test_identity_with_the_sample_is_noted(tmp_path):
    path = tmp_path / "submission.csv"
    path.write_text(GOOD)
    plain = form()
    same = Form(**{**vars(plain), "sample": np.array([1.0, 2.0, 3.0])})
    assert read_submission(path, same).note == Note.IS_SAMPLE
    path.write_text(GOOD.replace("3", "3.1"))
    assert read_submission(path, same).note == ""


# ---------------------------------------------------------------- not there, not readable
def test_absent(tmp_path):
    for path in (None, tmp_path / "nothing.csv"):
        assert read_submission(path, form()) == Refusal(VerdictStatus.ABSENT, "")


@pytest.mark.parametrize("kind", ["folder", "link", "dangling link", "pipe"])
def test_what_is_not_a_regular_file_neither_blocks_nor_is_followed(tmp_path, kind):
    path = tmp_path / "submission.csv"
    target = tmp_path / "target.csv"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    if kind == "link":
        target.write_text(GOOD)
    assert read_submission(path, form()) == Refusal(VerdictStatus.UNREADABLE, "not a readable regular file")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"\xef\xbb\xbf\n", "the file is empty"),
        (GOOD.encode("utf-16-le"), "UTF-16 text without its mark, write UTF-8"),
        (GOOD.encode("utf-16-be"), "UTF-16 text without its mark, write UTF-8"),
        (GOOD.encode("utf-16")[:-1], "not UTF-16 (line 4)"),
        (GOOD.encode("utf-32"), "a UTF-32 file, not CSV text"),
        (b"id,y\na,1\nb\xe9,2\nc,3\n", "not UTF-8 (line 3)"),
        (b"id,y\na,\x001\n", "a binary file, not CSV text"),
        (b"\x1f\x8b\x08\x00rest", "a broken gzip file"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-9], "a broken gzip file"),
        (gzip.compress(gzip.compress(GOOD.encode(), mtime=0), mtime=0), "a gzip file, not CSV text"),
        (b"PAR1....", "a Parquet file, not CSV text"),
        (b"<html><body>404</body></html>", "a HTML or XML file, not CSV text"),
        (b'[{"id": "a", "y": 1}]', "a JSON file, not CSV text"),
        (b'id,y\na,1\nb,"2\nc,3\n', "broken CSV near line 4: unclosed quote"),
    ],
)
def test_unreadable(tmp_path, content, reason):
    assert read(tmp_path, content) == Refusal(VerdictStatus.UNREADABLE, reason)


def test_a_cell_beyond_the_cap(tmp_path):
    outcome = read(tmp_path, "id,y\na," + "1" * 2_000_000 + "\n")
    assert outcome.status is VerdictStatus.UNREADABLE and outcome.reason.startswith("broken CSV near line 2")


def test_a_file_beyond_the_cap(tmp_path, monkeypatch):
    monkeypatch.setattr("mlexpert.tasks.intake.MAX_BYTES", 2**20)
    assert read(tmp_path, b"x" * (2**20 + 1)) == Refusal(VerdictStatus.UNREADABLE, "the file is larger than 1 MB")


def test_a_fault_of_the_host_is_not_a_fault_of_the_file(tmp_path, monkeypatch):
    def no_descriptors(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "open", no_descriptors)
    with pytest.raises(OSError, match="too many open files"):
        read_submission(tmp_path / "submission.csv", form())


# ---------------------------------------------------------------- readable, not valid
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("id,y\n", "no rows below the header"),
        ("a,1\nb,2\nc,3\n", "no header line"),
        ("y\n1\n2\n3\n", "missing column 'id'"),
        ("id,Y\na,1\nb,2\nc,3\n", "missing column 'y'"),
        ("id,y,y\na,1,1\nb,2,2\nc,3,3\n", "column 'y' appears twice"),
        (GOOD.replace(",", ";"), "separated by semicolons, write commas"),
        (GOOD.replace(",", "\t"), "separated by tabs, write commas"),
        ("id,y\nid,y\na,1\nb,2\nc,3\n", "line 2: the header is repeated"),
        ("id,y\na,1\nb,2,9\nc,3\n", "line 3: 3 fields, the header has 2"),
        ("id,y\na,1\nb\nc,3\n", "line 3: 1 fields, the header has 2"),
        ("id,y\na,1\na,1\nb,2\nc,3\n", "duplicate ids: 1, first 'a'"),
        ("id,y\na,1\na,2\nc,3\n", "duplicate ids: 1, first 'a'"),
        ("id,y\n a,1\n b,2\n c,3\n", "unknown ids: 3, first ' a'"),
        ("id,y\nA,1\nb,2\nc,3\n", "unknown ids: 1, first 'A'"),
        ("id,y\na,1\n", "missing ids: 2, first 'b'"),
        ("id,y\na,1\nb,\nc,\n", "empty values: 2, first in line 3"),
        ("id,y\na,1\nb,nan\nc,NaN\n", "NaN or infinite values: 2, first in line 3"),
        ("id,y\na,1\nb,-inf\nc,3\n", "NaN or infinite values: 1, first in line 3"),
        ("id,y\na,1\nb,1e400\nc,3\n", "NaN or infinite values: 1, first in line 3"),
        ("id,y\na,1\nb,NA\nc,3\n", "line 3: 'NA' is not a number"),
        ('id,y\na,1\nb,"1,5"\nc,3\n', "line 3: '1,5' is not a number"),
        ("id,y\na,1\nb,1_0\nc,3\n", "line 3: '1_0' is not a number"),
        ("id,y\na,1\nb,1e200\nc,3\n", "line 3: '1e200' is too large"),
    ],
)
def test_invalid(tmp_path, content, reason):
    assert read(tmp_path, content) == Refusal(VerdictStatus.INVALID, reason)


@pytest.mark.parametrize("cell", ["yes", "True ", "2", "0.7", "NA"])
def test_labels_out_of_the_set(tmp_path, cell):
    outcome = read(tmp_path, f"id,y\na,{cell}\n", needs=Needs.LABEL, labels=("False", "True"), ids=("a",))
    assert outcome == Refusal(VerdictStatus.INVALID, f"line 2: {cell!r} is not one of the labels")


def test_an_empty_label_is_not_a_missing_value_word(tmp_path):
    outcome = read(tmp_path, "id,y\na,\nb,NA\nc,NA\n", needs=Needs.LABEL, labels=("NA", "x"))
    assert outcome == Refusal(VerdictStatus.INVALID, "empty values: 1, first in line 2")


@pytest.mark.parametrize("cell", ["-0.1", "1.0001"])
def test_probabilities_out_of_range(tmp_path, cell):
    outcome = read(tmp_path, f"id,y\na,{cell}\nb,0\nc,1\n", needs=Needs.PROBABILITY, labels=("0", "1"))
    assert outcome == Refusal(VerdictStatus.INVALID, f"line 2: '{cell}' is not a probability")


@pytest.mark.parametrize("row", [".5,.5,.5", ".2,.3,.1", ".33,.33,.33"])
def test_shares_that_do_not_sum_to_one(tmp_path, row):
    three = dict(needs=Needs.PROBABILITY, labels=("p", "q", "r"), columns=("p", "q", "r"), ids=("a",))
    outcome = read(tmp_path, f"id,p,q,r\na,{row}\n", **three)
    assert isinstance(outcome, Refusal) and outcome.reason.startswith("line 2: probabilities sum to")


# ---------------------------------------------------------------- for any content
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_no_content_raises_and_every_reason_is_one_short_line(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    outcome = read_submission(path, form())
    assert isinstance(outcome, Refusal) and outcome.status is not VerdictStatus.ABSENT
    assert 0 < len(outcome.reason) <= 60 and outcome.reason.isprintable()


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


@given(st.lists(st.tuples(cells, cells), max_size=4))
def test_no_table_raises(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "table.csv"
    path.write_bytes("".join(f"{id},{y}\n" for id, y in [("id", "y"), *rows]).encode())
    outcome = read_submission(path, form())
    assert isinstance(outcome, Predictions) or (0 < len(outcome.reason) <= 60 and outcome.reason.isprintable())


@given(st.permutations(["a", "b", "c"]), st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3))
def test_row_order_never_matters_and_numbers_survive(tmp_path_factory, order, numbers):
    path = tmp_path_factory.getbasetemp() / "order.csv"
    given_to = dict(zip("abc", numbers, strict=True))
    path.write_text("id,y\n" + "".join(f"{id},{given_to[id]!r}\n" for id in order))
    assert values(read_submission(path, form())) == numbers


def test_the_longest_reasons_still_fit():
    long = quoted("\x00" * 500)
    for reason in Reason:
        assert len(fill(reason, *[long if "{}: {}" in reason else 10**9] * 3)) <= 60


# ---------------------------------------------------------------- packed, other codings, caps
def test_packed_and_utf16_files_are_read_and_said_to_be(tmp_path):
    two_members = gzip.compress(GOOD[:9].encode()) + gzip.compress(GOOD[9:].encode())
    for content, note in (
        (gzip.compress(GOOD.encode()), Note.GZIP),
        (two_members, Note.GZIP),
        (gzip.compress(GOOD.encode("utf-16")), Note.GZIP),
        (GOOD.encode("utf-16"), Note.UTF16),
        (b"\xfe\xff" + GOOD.encode("utf-16-be"), Note.UTF16),
    ):
        assert read(tmp_path, content) == Predictions(pytest.approx([1, 2, 3]), note)


@pytest.mark.parametrize("filling", [b"\0", b"\n", b"a,1\n"])
def test_a_gzip_bomb_is_stopped_at_the_cap(tmp_path, monkeypatch, filling):
    monkeypatch.setattr("mlexpert.tasks.intake.MAX_BYTES", 2**20)
    bomb = gzip.compress(b"id,y\n" + filling * (2**26 // len(filling)), 1)
    assert len(bomb) < 2**20
    tracemalloc.start()
    outcome = read(tmp_path, bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcome == Refusal(VerdictStatus.UNREADABLE, "the file is larger than 1 MB") and peak < 8 * 2**20


def test_room_for_a_submission_grows_with_the_sample():
    small, ids = form(), tuple(map(str, range(100_000)))
    assert size_limit(small) == 256 * 2**20
    assert size_limit(form(ids=ids, columns=tuple(f"c{at}" for at in range(99)))) == 64 * 100 * 100_000


@pytest.mark.parametrize("quote", ["", '"'])
def test_far_too_many_rows_are_not_read_to_the_end(tmp_path, quote):
    body = f"{quote}a{quote},1\n" * 200_000
    outcome = read(tmp_path, f"id,y\n{body}")
    assert outcome == Refusal(VerdictStatus.INVALID, "more than 1006 rows, the sample has 3")
    assert read(tmp_path, "id,y\n" + quote + "\n" * 300_000).status is not VerdictStatus.ABSENT


def test_far_too_many_columns_are_not_read(tmp_path):
    names = ",".join(f"x{at}" for at in range(30_000))
    outcome = read(tmp_path, f"id,y,{names}\n")
    assert outcome == Refusal(VerdictStatus.INVALID, "30002 columns, at most 20002 are read")


@pytest.mark.parametrize(
    ("content", "code", "column", "line", "count"),
    [
        ("id,y,z\na,1,0.5\nb,2,\nc,3,\n", Reason.EMPTY_CELL, "z", 3, 2),
        ("id,y,z\nc,1,0.5\nb,2,nan\na,3,inf\n", Reason.NOT_FINITE, "z", 3, 2),
        ("id,y,z\na,x,0.5\nb,2,1\nc,-,2\n", Reason.NOT_A_NUMBER, "y", 2, 2),
        ("id,y\na,1\nb,1\nc,1\n", Reason.MISSING_COLUMN, "z", 0, 1),
        ("id,y,z\na,1,1\na,1,1\nc,1,1\n", Reason.DUPLICATE_IDS, "", 0, 1),
        ("id,y,z\na,1,1\nb,1\nc,1,1\n", Reason.RAGGED, "", 3, 0),
    ],
)
def test_a_refusal_names_column_first_line_and_count(tmp_path, content, code, column, line, count):
    refusal = read(tmp_path, content, columns=("y", "z"))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.column, refusal.line, refusal.count) == (code, column, line, count)


@pytest.mark.parametrize(
    ("needs", "cell", "told"),
    [
        (Needs.RUNS, "1", "a run-length encoding needs pairs"),
        (Needs.LABELS, "p z", "'z' is not one of the labels"),
        (Needs.BOXES, "cat 0.5 1 1", "boxes come in groups of 6"),
        (Needs.POINTS, "cat 1 nan", "'nan' is not a finite number"),
    ],
)
def test_cells_that_hold_more_than_a_number(tmp_path, needs, cell, told):
    outcome = read(tmp_path, f"id,y\nb,\na,{cell}\n", needs=needs, labels=("p", "q"), ids=("a", "b"))
    assert isinstance(outcome, Refusal) and outcome.reason.startswith(f"line 3: {told}")
    assert outcome.status is VerdictStatus.INVALID and outcome.code is Reason.CELL


def test_a_text_may_be_anything(tmp_path):
    outcome = read(tmp_path, 'id,y\na,NA\nb,\nc,"x,""y""\nz"\n', needs=Needs.TEXT)
    assert values(outcome) == ["NA", "", 'x,"y"\nz']


def test_sets_of_labels_as_one_column_each(tmp_path):
    told = dict(needs=Needs.LABELS, columns=("p", "q"), ids=("a", "b"))
    assert read(tmp_path, "id,q,p\nb,1,0\na,0,1.0\n", **told).values.toarray().tolist() == [[1, 0], [0, 1]]
    assert read(tmp_path, "id,q,p\nb,1,0\na,0,2\n", **told).reason == "line 3: '2' is neither 0 nor 1"
