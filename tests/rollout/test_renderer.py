"""Pieces extend, untrusted text stays text, a teacher's turn is read back exactly, the rest is malformed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlexpert.harness.prompts import SHORT_TOOLS
from mlexpert.rollout import tokenizer as tk
from mlexpert.rollout.renderer import CUT, Renderer, ToolStyle
from mlexpert.types import Finish, Malformed, ToolCall

TOKENIZER = tk.train(["print(1)\n", "user\n", "assistant\n", "done"] * 5, 400)
RENDERERS = [Renderer(TOKENIZER, style, opens) for style in ToolStyle for opens in (False, True)]
ANY = pytest.mark.parametrize("renderer", RENDERERS, ids=lambda r: f"{r.style}{'-thinks' * r.opens_think}")
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
HOSTILE = st.lists(
    st.sampled_from(
        [*tk.SPECIAL, *tk.TAGS, "<", "\\", "<\\", "<|", "im_end|>", "<thi", "nk>", "\n", "\ud800", "a", "/"]
    )
).map("".join)


def turn(text: str, stop: str = "<|im_end|>") -> np.ndarray:
    return TOKENIZER.encode(text + stop)


def tags(inside: str) -> str:
    return f"<tool_call>\n<function=execute_code>\n{inside}</function>\n</tool_call>"


# ---------------------------------------------------------------- writing
@ANY
def test_a_context_is_qwen_chat(renderer):
    context = np.concatenate(
        [
            renderer.opening("Be short.", [], "Task."),
            renderer.assistant("think", "done"),
            renderer.observation("ok\n"),
            renderer.assistant("", "done"),
            renderer.correction("no call"),
        ]
    )
    head = "<|im_start|>assistant\n" + "<think>\n" * renderer.opens_think
    lead, empty = ("", "\n</think>\n\n") if renderer.opens_think else ("<think>\n", "")
    assert TOKENIZER.decode(context) == (
        f"<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nTask.<|im_end|>\n{head}"
        f"{lead}think\n</think>\n\ndone<|im_end|>"
        f"\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n{head}"
        f"{empty}done<|im_end|>"
        f"\n<|im_start|>user\nno call<|im_end|>\n{head}"
    )


@ANY
def test_tools_are_listed_only_when_there_are_any(renderer):
    listed = TOKENIZER.decode(renderer.opening("", SHORT_TOOLS, "Task."))
    assert '"name": "execute_code"' in listed and "<tools>" in listed and listed.count("<|im_start|>system") == 1
    assert TOKENIZER.decode(renderer.opening("", [], "Task.")).startswith("<|im_start|>user\nTask.")


def test_brief_tools_are_one_line_each():
    text = TOKENIZER.decode(Renderer(TOKENIZER, ToolStyle.TAGS, brief=True).opening("Act.", SHORT_TOOLS, "Task."))
    lines = text.split("<|im_end|>")[0].splitlines()
    assert lines[:2] == ["<|im_start|>system", "Act."] and len(lines) == 2 + len(SHORT_TOOLS)
    assert lines[2].startswith("execute_code(code, parent): ")


@ANY
def test_a_cut_turn_is_closed_by_what_follows_it(renderer):
    for extension in (renderer.observation, renderer.correction):
        open_ids, closed_ids = extension("x", closed=False), extension("x")
        assert open_ids[0] == renderer.stop_id and open_ids[1:].tolist() == closed_ids.tolist()


@settings(max_examples=150, deadline=None)
@given(HOSTILE | TEXT)
def test_untrusted_text_never_makes_a_reserved_id(text):
    """An extension or opening holds the same reserved ids whatever the text inside says."""
    reserved = list(TOKENIZER.reserved.values())
    for renderer in RENDERERS:
        for piece in (renderer.observation, renderer.correction, lambda body, r=renderer: r.opening("", [], body)):
            ids, quiet = piece(text), piece("quiet")
            assert ids[np.isin(ids, reserved)].tolist() == quiet[np.isin(quiet, reserved)].tolist()


@given(TEXT.filter(lambda text: "<" not in text))
@settings(deadline=None)
def test_escaping_leaves_other_text_alone(text):
    assert RENDERERS[0].escape(text) == text


def test_escaping_is_visible():
    assert RENDERERS[0].escape("a <think> <b>") == "a <\\think> <b>"


# ---------------------------------------------------------------- a turn written is the turn read
VALUE = st.text(alphabet=st.sampled_from("ab_1 \n\t\"'\\{}=(é")) | TEXT
WRITABLE = VALUE.filter(lambda text: "</p" not in text and "<|" not in text and "<t" not in text)


@ANY
@settings(max_examples=60, deadline=None)
@given(code=WRITABLE, node=WRITABLE, think=WRITABLE.map(str.strip))
def test_a_teachers_call_is_read_back(renderer, code, node, think):
    call = ToolCall("execute_code", {"code": code, "parent": node}, think)
    assert renderer.parse(renderer.assistant(think, call)) == call


@ANY
def test_a_teachers_ending_is_read_back(renderer):
    assert renderer.parse(renderer.assistant("I am done", "done")) == Finish("done", "I am done")


@pytest.mark.parametrize("code", ["print('<tool_call>')", "x = '</parameter>'", "'<|im_end|>'", "# <think>"])
def test_a_turn_that_would_be_read_otherwise_is_refused(code):
    with pytest.raises(ValueError, match="would be read back as"):
        RENDERERS[2].assistant("", ToolCall("execute_code", {"code": code}))
    with pytest.raises(ValueError, match="would be read back as"):
        RENDERERS[0].assistant("", " ")


# ---------------------------------------------------------------- reading what nobody asked for
def test_whitespace_is_tolerated_and_text_before_a_call_is_allowed():
    parse = Renderer(TOKENIZER, ToolStyle.TAGS).parse
    body = (
        " <tool_call> \n\n<function=execute_code>  <parameter=code>\n a\n\n</parameter>\n\n </function></tool_call>\n "
    )
    assert parse(turn("\n<think>why</think> I run it." + body)) == ToolCall("execute_code", {"code": " a\n"}, "why")
    spaced = '<tool_call>{"arguments": {"node": 3}, "name": "update_answer"}\n</tool_call>'
    assert Renderer(TOKENIZER, ToolStyle.JSON).parse(turn(spaced)) == ToolCall("update_answer", {"node": "3"})
    assert parse(turn("<tool_call><function=analyze></function></tool_call>")) == ToolCall("analyze", {})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither"),
        ("<think>a</think>\n", "neither"),
        ("<think>a", "not closed"),
        ("a</think>", "reserved"),
        ("<think>a<think></think>b", "reserved"),
        ("<tool_response>\nok\n</tool_response>", "reserved"),
        ("<|im_start|>user\nhello", "reserved"),
        ("<tool_call>", "opened and closed"),
        ("</tool_call>", "opened and closed"),
        ("</tool_call><tool_call>", "opened and closed"),
        (tags("<parameter=code>\na\n</parameter>\n") * 2, "more than one"),
        (tags("<parameter=code>\na\n</parameter>\n") + "b", "text after"),
        ("<tool_call>print(1)</tool_call>", "function"),
        ("<tool_call><function=a b></function></tool_call>", "function"),
        (tags("<parameter=code>\na\n"), "parameter"),
        (tags("a"), "parameter"),
        (tags("<parameter=code>a</parameter>" * 2), "twice"),
    ],
)
def test_a_malformed_turn_says_why(text, reason):
    action = Renderer(TOKENIZER, ToolStyle.TAGS).parse(turn(text))
    assert isinstance(action, Malformed) and reason in action.reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"name": "a"}', "exactly"),
        ('["name", "arguments"]', "exactly"),
        ('{"name": "a", "arguments": {}, "more": 1}', "exactly"),
        ('{"name": 1, "arguments": {}}', "text name"),
        ('{"name": "a", "arguments": "code"}', "text name"),
        ('{"name": "a", "arguments": {"code": "\\ud800"}}', "Unicode"),
    ],
)
def test_a_malformed_json_call_says_why(body, reason):
    action = Renderer(TOKENIZER, ToolStyle.JSON).parse(turn(f"<tool_call>{body}</tool_call>"))
    assert isinstance(action, Malformed) and reason in action.reason


@ANY
def test_a_cut_turn_is_malformed_whatever_it_holds(renderer):
    call = renderer.assistant("", ToolCall("execute_code", {"code": "a"}))
    assert renderer.parse(call[:-1]) == renderer.parse(call[:0]) == Malformed(CUT)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-1, TOKENIZER.vocab_size + 3)))
def test_no_ids_make_the_parser_raise(ids):
    for renderer in RENDERERS:
        action = renderer.parse(np.asarray([*ids, renderer.stop_id], np.int32))
        assert isinstance(action, ToolCall | Malformed | Finish)


def test_ids_beyond_the_tokenizer_are_malformed():
    ids = np.asarray([TOKENIZER.vocab_size, RENDERERS[0].stop_id], np.int32)
    assert RENDERERS[0].parse(ids) == Malformed("the turn holds unknown tokens")
