"""Tables are read by pinned rules: exact cells, nothing guessed or shifted; the fast way and the general one agree."""

import csv
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlexpert.tasks import delimited
from mlexpert.tasks.tables import TaskError, column, header, read_table


def written(tmp_path, text: str | bytes):
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_cells_are_exact_and_only_declared_numbers_are_parsed(tmp_path):
    path = written(tmp_path, '\ufeffid,note,x\n007,NA,1.5\n9007199254740993,None,\n1e5,"a,""b""\nc",nan\n')
    table = read_table(path, {"x": "number", "absent": "number"})
    assert table["id"].tolist() == ["007", "9007199254740993", "1e5"]
    assert table["note"].tolist() == ["NA", "None", 'a,"b"\nc'] and table["note"].dtype == object
    assert (
        table["x"].dtype == np.float64
        and table["x"].tolist()[0] == 1.5
        and table["x"].isna().tolist()[1:] == [True] * 2
    )
    assert read_table(path)["x"].tolist() == ["1.5", "", "nan"]
    assert column(path, "id") == ["007", "9007199254740993", "1e5"] and header(path) == ["id", "note", "x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", "line 3: 1 fields, the header has 2"),
        ("a,b\n1,2,3\n", "line 2: 3 fields, the header has 2"),
        ('a,b\n1,"2\n', "line 2: unclosed quote"),
        ("a,a\n1,2\n", "column 'a' appears twice"),
        ("a,b\n1,x\n", "'x' in column 'b' is not a number"),
        (b"a,b\n1,\xe9\n", "not CSV in UTF-8"),
    ],
)
def test_a_broken_table_is_an_error_that_names_the_place(tmp_path, text, message):
    with pytest.raises(TaskError, match=message):
        read_table(written(tmp_path, text), {"b": "number"})


def test_a_missing_column_or_file_is_named(tmp_path):
    with pytest.raises(TaskError, match=r"t\.csv has no column 'y'; it has \['a'\]"):
        column(written(tmp_path, "a\n1\n"), "y")
    with pytest.raises(TaskError, match="missing"):
        header(tmp_path / "none.csv")


def test_what_pandas_writes_comes_back(tmp_path):
    table = pd.DataFrame({"id": ["1", "2"], "text": ["", "NA"], "n": [0.1, np.nan]})
    table.to_csv(tmp_path / "t.csv", index=False)
    again = read_table(tmp_path / "t.csv", {"n": "number"})
    assert again["text"].tolist() == ["", "NA"] and np.array_equal(again["n"], table["n"], equal_nan=True)


def outcome(split, text, limit):
    try:
        names = delimited.header(text)
        return split(text, names, list(range(len(names)))[::-1], limit, 5)
    except delimited.Broken as broken:
        return broken.line, broken.cause, broken.found


texts = st.lists(
    st.lists(st.sampled_from(["", "a", "b,", '"q"', "x y", "long cell", "\u2028", "\x0b"]), min_size=1, max_size=3),
    max_size=5,
).map(lambda rows: "\n".join(",".join(row) for row in rows)) | st.text('a,"\n\r', max_size=20)


@given(texts, st.sampled_from(["\n", "\r\n", "\r"]), st.integers(0, 4))
def test_the_fast_way_and_the_csv_module_agree(text, newline, limit):
    text = text.replace("\n", newline)
    fast, general = outcome(delimited.body, text, limit), outcome(delimited._read, text, limit)
    if isinstance(fast, delimited.Body) and isinstance(general, delimited.Body):
        assert fast.cells == general.cells and list(fast.lines) == list(general.lines)
    else:
        assert fast == general


def test_a_large_plain_table_is_split_in_pieces(monkeypatch):
    monkeypatch.setattr(delimited, "PIECE", 4)
    text = "a,b,c\n" + "".join(f"{at},x{at},{at % 3}\n" for at in range(50))
    body = delimited.body(text, ["a", "b", "c"], [2, 0], 100)
    assert body.cells == [[str(at % 3) for at in range(50)], [str(at) for at in range(50)]]
    assert body.lines == range(2, 52) and list(csv.reader(io.StringIO(text)))[50][0] == "49"
