"""The review as one HTML file: a list of tasks at the left, one task at a time at the right, the command below.

The file needs nothing beside it and loads nothing. Everything that comes from a task is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from mlexpert.loops.reviewing.exhibit import Exhibit
from mlexpert.loops.reviewing.sections import article

CSS, SCRIPT = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(name: str, exhibits: Sequence[Exhibit], quarantined: Mapping[str, str], command: str) -> str:
    """`quarantined`: tasks that the Factory refused, with their reasons. `command` is continued by what is chosen."""
    counts = Counter(one.standing.state for one in exhibits)
    told = " · ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Review of {escape(name)}</title><style>{CSS}</style></head>"
        f'<body data-command="{escape(command)}"><nav><h1>{escape(name)}</h1><p>{len(exhibits)} tasks · {told}</p>'
        '<input type="search" placeholder="Filter: image, auc, warn ..." aria-label="Filter tasks">'
        f"{''.join(map(_link, exhibits))}{_refused(quarantined)}"
        '<p class="hint">j, k: next, previous<br>a: accept · r: reject</p></nav>'
        f"<main>{''.join(map(article, exhibits))}</main>"
        f'<div id="tray"><code></code><button>Copy the command</button></div><script>{SCRIPT}</script></body></html>'
    )


def _link(one: Exhibit) -> str:
    worst = next((level for level in ("refuse", "warn") if any(f.severity == level for f in one.findings)), "")
    task, state = one.task, one.standing.state
    words = " ".join((task.id, one.title, task.modality, task.metric, task.domain, state, worst)).lower()
    mark = {"refuse": "!!", "warn": "!"}.get(worst, "")
    return (
        f'<a href="#{escape(task.id)}" data-words="{escape(words)}"><i class="state {state}" data-state="{state}"></i>'
        f"<span>{escape(one.title)}</span><small>{mark} {escape(task.modality)}</small></a>"
    )


def _refused(quarantined: Mapping[str, str]) -> str:
    """Tasks that were never made, with the reason why."""
    lines = "".join(f"<p><b>{escape(id)}</b> {escape(reason)}</p>" for id, reason in sorted(quarantined.items()))
    return f'<details class="refused"><summary>{len(quarantined)} quarantined</summary>{lines}</details>' * bool(lines)
