"""Messages to token ids and sampled ids to actions, in the chat format of Qwen3. Append-only.

1. A context is the concatenation of pieces that are encoded one by one and never again: an opening, then turn about the
   ids that the policy sampled and an extension (observation or correction). No piece rewrites an earlier one, reasoning
   is never stripped, so every context extends the one before it.
2. A sampled turn ends with <|im_end|>, which the policy itself draws. If its limit cut it, the extension closes it.
3. Text that is not ours (task descriptions, printed output) is escaped: it cannot produce a reserved id.
4. `parse` is strict: what is neither one complete tool call nor plain text is malformed, with a reason to be shown.

A turn:  <think>\\n...\\n</think>\\n\\n  then text and/or one <tool_call> block, whose inside is `ToolStyle`'s.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlexpert.harness.prompts import ToolSpec
from mlexpert.rollout.tokenizer import Tokenizer
from mlexpert.types import Action, Finish, Malformed, ToolCall

END = "<|im_end|>"
CUT = "the turn was cut at its token limit"
_HEADER = "<|im_start|>assistant\n"
_THINK, _UNTHINK, _CALL, _UNCALL = "<think>", "</think>", "<tool_call>", "</tool_call>"
_FUNCTION = re.compile(r"\s*<function=(\w+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=(\w+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)


class ToolStyle(enum.StrEnum):
    JSON = "json"  # {"name": ..., "arguments": {...}}: Qwen3
    TAGS = "tags"  # <function=...><parameter=...> with the code raw: Qwen3.5 on; far fewer tokens for code


@dataclass(frozen=True)
class Renderer:
    tokenizer: Tokenizer
    style: ToolStyle
    opens_think: bool = False  # the assistant's header already opens <think>, as thinking-only models are trained
    brief: bool = False  # list tools as one-line signatures, not as JSON schemas: for models trained on these lines

    @property
    def stop_id(self) -> int:
        return self.tokenizer.reserved[END]

    @property
    def header(self) -> str:
        return _HEADER + (f"{_THINK}\n" if self.opens_think else "")

    def opening(self, system: str, tools: Sequence[ToolSpec], user: str) -> np.ndarray:
        """Ids_P of a fresh context up to the assistant's header. `user` is escaped.

        Without system text and tools there is no system turn.
        """
        listing = _signatures(tools) if self.brief else _tools_text(tools, self.style)
        instructions = ("\n" if self.brief else "\n\n").join(part for part in (system, listing) if part)
        head = f"<|im_start|>system\n{instructions}{END}\n" if instructions else ""
        return self.tokenizer.encode(f"{head}<|im_start|>user\n{self.escape(user)}{END}\n{self.header}")

    def observation(self, text: str, closed: bool = True) -> np.ndarray:
        """Ids_P of a tool's escaped answer. `closed` says that the turn before it ended with <|im_end|>."""
        body = self.escape(text.rstrip("\n"))
        return self._extension(f"<tool_response>\n{body}\n</tool_response>", closed)

    def correction(self, text: str, closed: bool = True) -> np.ndarray:
        """Ids_P of an escaped remark on a malformed turn."""
        return self._extension(self.escape(text.rstrip("\n")), closed)

    def assistant(self, think: str, reply: ToolCall | str) -> np.ndarray:
        """Ids_N of a turn written by a teacher, <|im_end|> included: exactly what `parse` reads back.

        Raises:
          ValueError: the turn cannot be read back (a reserved tag or a closing tag in the code, blank text, ...).
        """
        lead = "" if self.opens_think else f"{_THINK}\n"
        thought = f"{lead}{think}\n{_UNTHINK}\n\n" if think or self.opens_think else ""
        body = reply if isinstance(reply, str) else f"{_CALL}\n{_call_text(reply, self.style)}\n{_UNCALL}"
        ids_N = self.tokenizer.encode(f"{thought}{body}{END}")
        action = self.parse(ids_N)
        if isinstance(reply, str):
            same = isinstance(action, Finish) and action.text == reply.strip()
        else:
            same = isinstance(action, ToolCall) and (action.name, dict(action.arguments)) == (
                reply.name,
                dict(reply.arguments),
            )
        if not same or action.think != think.strip():
            raise ValueError(f"this turn would be read back as {action}, not as {reply!r} with the thought {think!r}")
        return ids_N

    def parse(self, ids_N: np.ndarray) -> Action:
        """What a sampled turn asks for; never raises on any ids."""
        if len(ids_N) == 0 or int(ids_N[-1]) != self.stop_id:
            return Malformed(CUT)
        if int(np.max(ids_N)) >= self.tokenizer.vocab_size or int(np.min(ids_N)) < 0:
            return Malformed("the turn holds unknown tokens")
        text = self.tokenizer.decode(ids_N[:-1])
        think, rest = _split_think(f"{_THINK}\n{text}" if self.opens_think else text)
        if rest is None:
            return Malformed("the think block is not closed", think)
        if problem := self._stray(think, rest):
            return Malformed(problem, think)
        if _CALL not in rest and _UNCALL not in rest:
            reply = rest.strip()
            return Finish(reply, think) if reply else Malformed("the turn holds neither a tool call nor text", think)
        return _parse_call(rest, think, self.style)

    def escape(self, text: str) -> str:
        r"""Breaks every reserved token in `text` by a backslash after its first character: `<\think>`.

        Lone surrogates, which no UTF-8 encoder takes, become "?".
        """
        return self._reserved_pattern().sub(lambda tag: f"{tag[0][0]}\\{tag[0][1:]}", _encodable(text))

    def _extension(self, body: str, closed: bool) -> np.ndarray:
        return self.tokenizer.encode(f"{'' if closed else END}\n<|im_start|>user\n{body}{END}\n{self.header}")

    def _stray(self, think: str, rest: str) -> str:
        pattern = self._reserved_pattern()
        if pattern.search(think) or any(tag not in (_CALL, _UNCALL) for tag in pattern.findall(rest)):
            return "a reserved tag stands where none may"
        return ""

    def _reserved_pattern(self) -> re.Pattern[str]:
        # The longest first: one added token may begin another. `re` caches the compiled pattern.
        return re.compile(
            "|".join(re.escape(token) for token in sorted(self.tokenizer.reserved, key=len, reverse=True))
        )


# ---------------------------------------------------------------- reading
def _split_think(text: str) -> tuple[str, str | None]:
    """(thought, what follows it); what follows is None when the block is not closed."""
    stripped = text.lstrip()
    if not stripped.startswith(_THINK):
        return "", text
    thought, close, rest = stripped.removeprefix(_THINK).partition(_UNTHINK)
    return thought.strip(), rest if close else None


def _parse_call(rest: str, think: str, style: ToolStyle) -> ToolCall | Malformed:
    if rest.count(_CALL) > 1 or rest.count(_UNCALL) > 1:
        return Malformed("more than one tool call in a turn", think)
    before, opened, inside = rest.partition(_CALL)
    body, closed, after = inside.partition(_UNCALL)
    if not opened or not closed or _UNCALL in before:
        return Malformed("the tool call is not opened and closed", think)
    if after.strip():
        return Malformed("text after the tool call", think)
    parsed = _parse_json(body) if style is ToolStyle.JSON else _parse_tags(body)
    return Malformed(parsed, think) if isinstance(parsed, str) else ToolCall(parsed[0], parsed[1], think)


def _parse_tags(body: str) -> tuple[str, dict[str, str]] | str:
    """(name, arguments), or the reason why there is none. One newline on each side of a value is the format's."""
    function = _FUNCTION.fullmatch(body)
    if function is None:
        return "the tool call has no complete function block"
    name, inside = function.groups()
    arguments: dict[str, str] = {}
    position = 0
    while match := _PARAMETER.match(inside, position):
        if match[1] in arguments:
            return "a parameter is given twice"
        arguments[match[1]] = match[2]
        position = match.end()
    return (name, arguments) if not inside[position:].strip() else "the tool call has an incomplete parameter block"


def _parse_json(body: str) -> tuple[str, dict[str, str]] | str:
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        return "the tool call is not valid JSON"
    if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
        return "the tool call needs exactly a name and arguments"
    name, arguments = call["name"], call["arguments"]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return "the tool call needs a text name and an object of arguments"
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    if any(_encodable(text) != text for text in (name, *values, *values.values())):
        return "the tool call holds text that is not Unicode"
    return name, values


# ---------------------------------------------------------------- writing
def _encodable(text: str) -> str:
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _plain(call: ToolCall) -> tuple[str, dict[str, str]]:
    return call.name, dict(call.arguments)


def _call_text(call: ToolCall, style: ToolStyle) -> str:
    if style is ToolStyle.JSON:
        return json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
    parameters = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in call.arguments.items())
    return f"<function={call.name}>\n{parameters}</function>"


def _signatures(tools: Sequence[ToolSpec]) -> str:
    return "\n".join(f"{tool.name}({', '.join(tool.parameters)}): {tool.description}" for tool in tools)


def _tools_text(tools: Sequence[ToolSpec], style: ToolStyle) -> str:
    if not tools:
        return ""
    example = ToolCall("NAME", {"PARAMETER": "VALUE"})
    listing = "\n".join(json.dumps(_schema(tool), ensure_ascii=False) for tool in tools)
    return (
        f"# Tools\n\nThe functions you may call, one JSON object a line:\n<tools>\n{listing}\n</tools>\n\n"
        f"A call is written as below, at most one a turn, with nothing after it:\n"
        f"{_CALL}\n{_call_text(example, style)}\n{_UNCALL}"
    )


def _schema(tool: ToolSpec) -> dict:
    properties = {name: {"type": "string", "description": meaning} for name, meaning in tool.parameters.items()}
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": {"type": "object", "properties": properties},
    }
    return {"type": "function", "function": function}
