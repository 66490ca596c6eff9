"""A task's Markdown as HTML: headings, lists, code, paragraphs. Everything is escaped, and nothing becomes a link."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape


def html(text: str) -> str:
    parts: list[str] = []
    for block in _blocks(text):
        first = block[0]
        if first.startswith("```"):
            parts.append(f"<pre>{escape(chr(10).join(block[1:]))}</pre>")
        elif heading := re.match(r"(#{1,6})\s+(.*)", first):
            level = min(6, len(heading[1]) + 2)
            parts.append(
                f"<h{level}>{_inline(heading[2])}</h{level}>" + (html("\n".join(block[1:])) if block[1:] else "")
            )
        elif re.match(r"\s*([-*+]|\d+\.)\s", first):
            parts.append(f"<ul>{''.join(f'<li>{_inline(item)}</li>' for item in _items(block))}</ul>")
        else:
            parts.append(f"<p>{_inline(' '.join(block))}</p>")
    return "".join(parts)


def _blocks(text: str) -> Iterable[list[str]]:
    """Runs of lines between empty ones; a fenced block is one."""
    block: list[str] = []
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            if fenced:
                yield block
                block = []
            elif block:
                yield block
                block = [line]
            else:
                block = [line]
            fenced = not fenced
        elif fenced or line.strip():
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _items(block: Sequence[str]) -> list[str]:
    items: list[str] = []
    for line in block:
        if match := re.match(r"\s*(?:[-*+]|\d+\.)\s+(.*)", line):
            items.append(match[1])
        else:
            items[-1] += " " + line.strip()
    return items


def _inline(text: str) -> str:
    """Code and emphasis; the code's own stars and underscores stay."""
    parts = re.split(r"`([^`]*)`", text)
    for at, part in enumerate(parts):
        safe = escape(part)
        parts[at] = f"<code>{safe}</code>" if at % 2 else re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", safe)
    return "".join(parts)
