import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlexpert.harness.printed import excerpt, last_lines, one_line, own_score, plain


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("10%\r 50%\r100%\n", "100%\n"),
        ("long line\rshort", "shortline"),
        ("a\r\nb", "a\nb"),
        ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        ("abc\b\bX", "aXc"),
        ("nul\x00 bell\x07 tab\t", "nul bell tab\t"),
        ("\ud800", "?"),
        ("a\u2028b\u202ec", "abc"),
        ("naïve 数据", "naïve 数据"),
    ],
)
def test_plain_shows_what_a_terminal_would(printed, shown):
    assert plain(printed) == shown


@given(st.text(st.characters()))
def test_plain_is_stable_and_encodable(text):
    once = plain(text)
    assert plain(once) == once
    once.encode("utf-8")


@pytest.mark.parametrize(
    ("stdout", "score"),
    [
        ("cv 0.83", 0.83),
        ("CV: 0.1\nvalidation = -1e-3\nbye", -0.001),
        ("cv 0.5 then val=.75", 0.75),
        ("cv 0.83.", 0.83),
        ("\x1b[32mcv\x1b[0m 0.7", 0.7),
        ("cv 0.4\ncv nan\ncv inf\ncv 1e999", 0.4),
        ("cv 1.2.3", None),
        ("cv 3rd", None),
        ("eval 0.9\nmcv 0.9\nscore 0.99", None),
        ("", None),
    ],
)
def test_own_score_is_the_last_finite_validation_line(stdout, score):
    assert own_score(plain(stdout)) == score


@given(st.text().filter(lambda text: "[" not in text), st.integers(0, 20), st.integers(1, 20))
def test_excerpt_keeps_to_its_size_and_to_the_ends(text, head, tail):
    cut = excerpt(text, head, tail)
    trimmed = text.strip("\n").rstrip()
    if len(trimmed) <= head + tail:
        assert cut == trimmed
    elif head == 0:
        assert len(cut) <= tail and trimmed.endswith(cut)
    else:
        start, _, rest = cut.partition("\n[")
        end = rest.partition("left out]\n")[2]
        assert trimmed.startswith(start) and len(start) <= head
        assert trimmed.endswith(end) and len(end) <= tail


def test_excerpt_cuts_at_line_borders():
    assert excerpt("one\ntwo\nthree", 0, 8) == "three"
    assert excerpt("one\ntwo\nthree", 0, 9) == "two\nthree"
    assert excerpt("x" * 10, 0, 4) == "xxxx"


def test_last_lines_and_one_line():
    assert last_lines("a\nb\nc\n", 2) == "b\nc" and last_lines("a", 0) == ""
    assert one_line(" a\n\tb ", 60) == "a b" and one_line("x" * 61, 60) == "x" * 57 + "..."
