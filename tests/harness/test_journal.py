import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlexpert.harness.journal import Journal, JournalError, replay, result_from_json, result_to_json
from mlexpert.types import ExecStatus, Medal, Result, Verdict, VerdictStatus


def test_events_come_back_as_they_were_with_tokens_and_any_text(tmp_path):
    journal = Journal(tmp_path / "a" / "j.jsonl")
    events = [
        {"event": "turn", "ids": [1, 2], "logprobs": [-0.1, -1e-17], "versions": [3, 3], "support": None},
        {"event": "note", "text": "line\nbreak \u2028 \ud800 \x00 </tool_call>"},
    ]
    for event in events:
        journal.append(event)
    assert replay(journal.path) == events == Journal(journal.path).events()
    assert replay(journal.path, 1) == events[:1] and len(journal) == 2


def test_truncation_goes_back_to_a_moment(tmp_path):
    journal = Journal(tmp_path / "j")
    for i in range(5):
        journal.append({"event": "turn", "i": i})
    journal.truncate(2)
    journal.append({"event": "turn", "i": 9})
    assert [event["i"] for event in Journal(journal.path).events()] == [0, 1, 9]
    with pytest.raises(ValueError, match="cannot keep 4 of 3"):
        journal.truncate(4)


def test_a_cut_at_any_byte_loses_at_most_the_last_event(tmp_path):
    journal = Journal(tmp_path / "j")
    for i in range(3):
        journal.append({"event": "turn", "i": i})
    whole = journal.path.read_bytes()
    for size in range(len(whole) + 1):
        journal.path.write_bytes(whole[:size])
        again = Journal(journal.path)
        assert len(again) == whole[:size].count(b"\n")
        assert again.torn_bytes == size - (whole[:size].rfind(b"\n") + 1)
        again.append({"event": "turn", "i": 7})
        assert replay(journal.path)[-1]["i"] == 7


@pytest.mark.parametrize("line", [b"{broken}\n", b"[1]\n", b'{"no": 1}\n', b"\xff\n"])
def test_a_damaged_line_is_an_error_that_names_file_and_line(tmp_path, line):
    (tmp_path / "j").write_bytes(b'{"event":"open"}\n' + line + b'{"event":"x"}\n')
    with pytest.raises(JournalError, match=r"j, line 2"):
        Journal(tmp_path / "j")


def test_what_json_cannot_say_is_refused_and_leaves_the_file_whole(tmp_path):
    journal = Journal(tmp_path / "j")
    for event in ({"event": "x", "v": float("nan")}, {"v": 1}):
        with pytest.raises(ValueError):
            journal.append(event)
    with pytest.raises(TypeError):
        journal.append({"event": "x", "v": object()})
    assert journal.path.read_bytes() == b"" and len(journal) == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters()), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(ExecStatus))
def test_results_survive_exactly(make, tmp_path_factory, text, score, status):
    files = {"submission.csv": tmp_path_factory.getbasetemp()}
    facts = dict(reason=text, oom_kills=2, stdout_bytes=1 << 40, stderr_bytes=1, queued_s=abs(score))
    done = make.execution(text, status=status, message=text, files=files, **facts)
    result = Result(done, Verdict(VerdictStatus.GRADED, text, score, Medal.GOLD, True, True, 0.1))
    assert result_from_json(json.loads(json.dumps(result_to_json(result), allow_nan=False))) == result


def test_a_result_of_before_reasons_were_kept_still_loads(make):
    result = Result(make.execution("cv 0.1"), Verdict(VerdictStatus.ABSENT))
    old = result_to_json(result)
    for name in ("reason", "oom_kills", "stdout_bytes", "stderr_bytes", "queued_s"):
        del old["execution"][name]
    assert result_from_json(old) == result
