"""What a script printed, made plain: the only place where printed text is interpreted, and then only for its own score.

Nothing else in the harness reads printed text, so a script that imitates a tool response, a score line or a node
line changes what the policy sees of that script's output and nothing more.
"""

from __future__ import annotations

import math
import re

from mlexpert.sandbox.terminal import shown

_OWN_SCORE = re.compile(
    r"\b(?:cv|val|validation)[ :=]+([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?)(?!\w|\.\w)", re.IGNORECASE
)


def plain(text: str) -> str:
    """The text as a terminal would leave it. What a sandbox captured is plain already and comes back as it is."""
    return shown(text.encode("utf-8", "replace").decode("utf-8"))  # lone surrogates cannot be tokenised


def excerpt(text: str, head: int, tail: int) -> str:
    """At most `head` first and `tail` last characters, cut at line borders where there is one.

    With `head` 0 the result is the bare tail; otherwise a line says how much was left out between the two.
    """
    text = text.strip("\n").rstrip()
    if len(text) <= head + tail:
        return text
    end = _last_lines(text, tail)
    if head == 0:
        return end
    start = text[:head]
    start = start[: start.rfind("\n")] if "\n" in start else start
    return f"{start}\n[{len(text) - len(start) - len(end)} characters left out]\n{end}"


def _last_lines(text: str, chars: int) -> str:
    if chars == 0:
        return ""
    end = text[-chars:]
    at_border = text[-chars - 1] == "\n"
    if not at_border and "\n" in end:
        end = end[end.index("\n") + 1 :]
    return end


def last_lines(text: str, lines: int) -> str:
    """The last `lines` lines of the text, blank ends removed."""
    return "\n".join(text.strip("\n").rstrip().split("\n")[-lines:]) if lines else ""


def one_line(text: str, chars: int) -> str:
    """The text on one line of at most `chars` characters, whitespace collapsed."""
    text = " ".join(plain(text).split())
    return text if len(text) <= chars else text[: chars - 3] + "..."


def own_score(stdout: str) -> float | None:
    """The validation score that the script itself reported in plain text: the last line like `cv 0.83`, if finite.

    It guides the policy's view of its own tree and nothing else: neither reward, nor budget, nor answer depends on it.
    """
    for line in reversed(stdout.split("\n")):
        found = _OWN_SCORE.findall(line)
        if found and math.isfinite(score := float(found[-1])):
            return score
    return None
