"""What a terminal would show: of real progress bars, of hostile streams, and whatever the stream was cut into."""

import itertools
import re
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlexpert.sandbox import terminal
from mlexpert.sandbox.terminal import Capture, shown


def captured(data, limit=1 << 20, chunk=1 << 20):
    capture = Capture(limit)
    for begin in range(0, len(data), chunk):
        capture.add(data[begin : begin + chunk])
    return capture


def text(data, limit=1 << 20):
    return captured(data if isinstance(data, bytes) else data.encode(), limit).text()


# ---------------------------------------------------------------- progress bars
@pytest.mark.parametrize(
    "last",
    [
        "100%|██████████| 3/3 [00:03<00:00,  1.00s/it]",
        " 67%|██████▋   | 2/3 [1:02:03<31:01, 1861.50s/it]",
        "12it [00:03, ?it/s]",
        "0it [00:00, ?it/s]",
        "fit:  50%|#####     | 1/2 [25:00:00<25:00:00, 9e+04s/it, loss=0.31, acc=0.9]",
        "train.csv: 100%|##########| 1.21M/1.21M [00:00<00:00, 9.43MB/s]",
    ],
)
def test_a_bar_is_the_line_it_ended_as(last):
    frames = ["  0%|          | 0/3 [00:00<?, ?it/s]", " 33%|███▎      | 1/3 [00:01<00:02,  1.00s/it]", last]
    assert text("start\n" + "".join(f"\r{frame:<90}" for frame in frames) + "\nend\n") == f"start\n{last}\nend\n"


def test_a_bar_that_removes_itself_leaves_nothing():
    bar = " 50%|█████     | 1/2 [00:01<00:01]"
    assert text(f"\r{bar}\r{' ' * len(bar)}\rdone\n") == "done\n"
    assert text(f"{bar}\x1b[2K\rdone\n") == "done\n"


NESTED = (
    "\router:   0%|      | 0/2 [00:00<?, ?it/s]\n\rinner:   0%|      | 0/2 [00:00<?, ?it/s]\x1b[A"
    "\n\rinner:  50%|###   | 1/2 [00:00<00:00, 33.8it/s]\x1b[A\n\rinner: 100%|######| 2/2 [00:00<00:00, 21.9it/s]\x1b[A"
)


def test_nested_bars_are_drawn_in_their_own_lines():
    removed = "\n\r" + " " * 60 + "\x1b[A\router:  50%|###   | 1/2 [00:00<00:00, 88.13it/s]"
    assert text(NESTED) == ("outer:   0%|      | 0/2 [00:00<?, ?it/s]\ninner: 100%|######| 2/2 [00:00<00:00, 21.9it/s]")
    assert text(NESTED + removed + "\r" + f"{'outer: 100%|######|':<60}\nafter") == "outer: 100%|######|\nafter"


def keras(bars):
    previous = 0
    for bar in bars:
        yield "\b" * previous + "\r" + bar
        previous = len(bar)


def test_keras_bars_go_back_by_backspaces():
    bars = [f"{i:2}/10 [{'=' * i}>{'.' * (9 - i)}] - ETA: 0s - loss: 0.{i}" for i in range(10)]
    last = "10/10 [==========] - 1s 100ms/step - loss: 0.5"
    assert text("Epoch 1/2\n" + "".join(keras([*bars, f"{last:<60}"])) + "\n") == f"Epoch 1/2\n{last}\n"


def test_keras_bars_in_colour():
    bars = [f"\x1b[1m{i:2}/10\x1b[0m \x1b[32m{'━' * i}\x1b[0m\x1b[37m{'━' * (9 - i)}\x1b[0m" for i in range(10)]
    assert text("".join(keras(bars)) + "\n") == f" 9/10 {'━' * 9}\n"


# ---------------------------------------------------------------- what a terminal does with the rest
@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        ("", ""),
        ("blanks at the end  \n", "blanks at the end  \n"),
        ("no newline", "no newline"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("long line\rshort", "shortline"),
        ("abc\b\bX", "aXc"),
        ("abc\b \b\b \bX", "aX"),
        ("\b\b\ra", "a"),
        ("\x1b[1;38;5;196mred\x1b[0m, \x1b[4:3mcurly\x1b[m", "red, curly"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b\x1bPpicture\x9cc", "alinkbc"),
        ("\x1b]title without an end\nnext", "\nnext"),
        ("\x1b(B\x1b7\x1bMx\x1b=", "x"),
        ("\x1b[\x1b[31mx \x1b[3\ny \x1bñ", "x \ny ñ"),
        ("abc\x1b[2Dx\x1b[10Cy\x1b[1Gz\x1b[Kw", "zw"),
        ("one\ntwo\nthree\x1b[2Funo\x1b[Edos\x1b[99Bend", "uno\ndos\nthrend"),
        ("one\ntwo\x1b[A\x1b[J!\n", "one!\n"),
        ("kept\x1b[2J\x1b[H\x1b[?25l too", "kept too"),
        ("nul\0 bell\a tab\t vt\v ff\f", "nul bell tab\t vt ff"),
        ("c1\x85 \x9b31m lines\u2028\u2029 bidi\u202e\u2066", "c1 31m lines bidi"),
        ("naïve 数据 🙂 שלום", "naïve 数据 🙂 שלום"),
    ],
)
def test_controls_act_or_vanish(printed, seen):
    assert text(printed) == seen == shown(printed)


def test_bytes_that_are_not_text_are_replaced():
    assert text(b"\x89PNG\xff\n\xc3(\n") == "\ufffdPNG\ufffd\n\ufffd(\n"
    assert text("π".encode()[:1]) == "\ufffd", "a character that broke off at the end of the stream"
    assert text(b"\x1b]0;" + "π".encode()[:1]) == ""


def test_the_end_may_be_read_before_it_is_reached():
    capture = captured("π = 3, π".encode()[:-1])
    assert capture.text() == "π = 3, \ufffd" == capture.text()
    capture.add("π".encode()[1:] + b"\x1b[")
    assert capture.text() == "π = 3, π"
    capture.add(b"31m!")
    assert capture.text() == "π = 3, π!" and capture.received == len("π = 3, π\x1b[31m!".encode())


MOVES = [f"\x1b[{count}{command}" for count in ("", "0", "1", "2", "9") for command in "ABCDEFGJK"]
STARTS = ["\x1b", "\x1b[", "\x1b[3", "\x1b[3;1m", "\x1b]0;", "\x1bP", "\x1b\\", "\x1b(", "\x1b[" + "1" * 40]
TEXTS = ["abc", "xyz", " ", "\t", "π数🙂", "a\nb\n", "a\nb\nc\nd\n", "line\n" * 9, "x" * 23, "\xff", "\ud800"]
PIECES = st.one_of(*map(st.sampled_from, (MOVES, STARTS, TEXTS, ["\r", "\n", "\r\n", "\b", "\a", "\x9c", "\0"])))
STREAMS = st.lists(PIECES, max_size=25).map(lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass"))


def test_the_cursor_reaches_the_last_lines_only():
    lines, rows = [f"line {i}" for i in range(1000)], terminal.ROWS
    reached = [*lines[:-rows], "Xine " + lines[-rows][5:], *lines[-rows + 1 :]]
    for chunk in (1, 1 << 20):
        assert captured(
            "\n".join([*lines[:-1], lines[-1] + "\x1b[9999F" + "X"]).encode(), chunk=chunk
        ).text() == "\n".join(reached)


@settings(deadline=None)
@given(STREAMS, st.lists(st.integers(0, 300), max_size=6), st.integers(0, 60))
def test_how_the_stream_was_cut_never_matters(stream, cuts, limit):
    with mock.patch.multiple(terminal, ROWS=3, COLUMNS=7):
        whole, pieces = captured(stream, limit), Capture(limit)
        borders = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
        for begin, end in itertools.pairwise(borders):
            pieces.add(stream[begin:end])
        bytewise = captured(stream, limit, chunk=1)
        for one in (pieces, bytewise):
            assert (one.text(), one.received, one.truncated) == (whole.text(), len(stream), whole.truncated)


@settings(deadline=None)
@given(STREAMS)
def test_what_was_shown_is_plain_and_shown_again_as_it_is(stream):
    once = text(stream)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", once)
    assert shown(once) == once == text(once)


# ---------------------------------------------------------------- the limit
@pytest.mark.parametrize("limit", [0, 1, 9, 10, 11])
def test_the_limit_counts_exactly(limit):
    capture = captured(b"0123456789", limit)
    assert (capture.received, capture.truncated) == (10, limit < 10)
    assert (capture.text() == "0123456789") == (limit >= 10)


def test_both_ends_are_cut_at_lines():
    lines = "".join(f"line {i:03}\n" for i in range(1000))  # of 9 bytes
    for limit, kept in ((36, 2), (40, 2), (1998, 111), (2003, 111)):  # exactly at a border, and beyond it
        head, tail = (f"line {i:03}" for i in (kept - 1, 1000 - kept))
        seen = text(lines, limit).splitlines()
        assert seen[kept - 1 : kept + 2] == [head, f"... [{9 * (1000 - 2 * kept)} bytes cut] ...", tail]
        assert (seen[0], seen[-1], len(seen)) == ("line 000", "line 999", 2 * kept + 1)
    erased = f"\x1b[{terminal.ROWS}F\x1b[J"  # the whole screen: what is left was final before
    assert text(lines + erased, 1997) == text(lines[: 9 * (1001 - terminal.ROWS)], 1997)


def test_a_line_longer_than_the_limit_is_cut_at_characters():
    assert text("π" * 50 + "数" * 50, 21) == f"{'π' * 5}\n... [231 bytes cut] ...\n{'数' * 3}"
    assert text("short\n" + "x" * 90 + "\nend", 40) == f"short\n{'x' * 14}\n... [60 bytes cut] ...\n{'x' * 16}\nend"


@given(st.text(st.sampled_from("ab π数\n"), max_size=80), st.integers(0, 60))
def test_what_is_kept_and_what_was_cut_add_up(printed, limit):
    seen, data = text(printed, limit), printed.encode()
    if len(data) <= limit:
        assert seen == printed
        return
    head, cut, tail = re.fullmatch(r"(?s)(.*)\.\.\. \[(\d+) bytes cut\] \.\.\.\n(.*)", seen).groups()
    if not printed.startswith(head):
        head = head.removesuffix("\n")  # put in before the line: it was none of the output
    assert printed.startswith(head) and printed.endswith(tail)
    missing = len(data) - len(head.encode()) - len(tail.encode())
    assert missing <= int(cut) <= missing + 1, "a newline before the line may be none of the output all the same"
    assert len(data) - int(cut) <= limit


def test_bars_count_as_what_is_left_of_them():
    bars = "".join(f"\r{i:6}%" for i in range(10_000))
    assert text(f"before\n{bars}\nafter\n", 64) == "before\n  9999%\nafter\n"


def state_bytes(capture):
    screen, record = capture._screen, capture._record
    rows = sum(len(row.text) for row in screen._rows)
    return rows + len(screen._rows) + len(screen._unfinished) + len(record._head) + len(record._tail)


ENDLESS = {
    "no newline": ("", "x" * 65536),
    "newlines": ("", "\n" * 65536),
    "lines": ("", "a\n" * 32768),
    "wide lines": ("", "\x1b[4095Cx\n" * 999),
    "back and forth": ("", "\b\r" * 999),
    "up and down": ("", "\x1b[A\n\n" * 999),
    "title": ("\x1b]0;", "x" * 65536),
    "argument": ("\x1b[", "1" * 65536),
    "intermediates": ("\x1b(", "(" * 65536),
    "commands": ("", "\x1b["),
    "broken": ("", "\ud800" * 999),
}


@pytest.mark.parametrize(("start", "chunk"), ENDLESS.values(), ids=ENDLESS.keys())
def test_memory_stays_bounded_on_streams_without_end(start, chunk):
    capture, limit, chunk = Capture(1000), 1000, chunk.encode("utf-8", "surrogatepass")
    capture.add(start.encode())
    for _ in range(40):
        capture.add(chunk)
        assert state_bytes(capture) <= limit + 1 + 2 * terminal.ROWS * (terminal.COLUMNS + 1) + 64
    assert capture.received == len(start) + 40 * len(chunk) and len(capture.text().encode()) <= limit + 40


def test_a_line_without_end_keeps_both_ends():
    capture = Capture(1000)
    for _ in range(160):
        capture.add(b"x" * 65536)
    assert state_bytes(capture) <= 1001 + terminal.COLUMNS + 1
    assert capture.text() == f"{'x' * 500}\n... [{160 * 65536 - 1000} bytes cut] ...\n{'x' * 500}"
