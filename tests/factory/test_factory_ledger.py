"""The ledger survives a death at any byte and never guesses."""

import json

import pytest

from mlexpert.factory.ledger import Entry, Ledger, LedgerError, read, table

ENTRIES = [
    Entry("a", "fetch", "done", digest="1"),
    Entry("a", "verify", "repaired", "dropped column 'x'\nwhich told the target", detail={"attempt": 1}),
    Entry("b", "fetch", "quarantined", "no such file: ü"),
]


@pytest.fixture
def path(tmp_path):
    ledger = Ledger(tmp_path / "set" / "ledger.jsonl")
    for entry in ENTRIES:
        ledger.append(entry)
    return ledger.path


def test_what_was_appended_is_read_again(path):
    assert read(path) == Ledger(path).entries == ENTRIES
    assert Ledger(path).last("a") == ENTRIES[1] and Ledger(path).last("c") is None
    assert read(path.with_name("none.jsonl")) == []


def test_cut_at_any_byte_the_whole_lines_stay_and_the_next_line_is_its_own(path):
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        whole = data[:size].count(b"\n")
        assert read(path) == ENTRIES[:whole]
        Ledger(path).append(ENTRIES[2])
        assert read(path) == [*ENTRIES[:whole], ENTRIES[2]]


@pytest.mark.parametrize("line", ["{}", "[]", "nonsense", '{"task": "a", "stage": "s", "state": "lost"}', ""])
def test_damage_in_the_middle_is_an_error_that_names_the_line(path, line):
    lines = path.read_text().splitlines()
    lines[1] = line
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(LedgerError, match="line 2"):
        Ledger(path)


def test_an_unknown_state_is_refused(path):
    with pytest.raises(ValueError, match="'lost'"):
        Ledger(path).append(Entry("a", "fetch", "lost"))


def test_as_a_table_and_as_lines(path):
    frame = table(read(path))
    assert frame["task"].tolist() == ["a", "a", "b"] and list(frame.columns)[:3] == ["task", "stage", "state"]
    assert [json.loads(line)["stage"] for line in path.read_text().splitlines()] == ["fetch", "verify", "fetch"]
    assert table([]).empty and list(table([]).columns) == list(frame.columns)
