"""One task of the review page: its sections from the decision down to the ledger, as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import urlparse

from mlexpert.factory.drift import ADVERSARIAL
from mlexpert.loops.reviewing import charts, markup
from mlexpert.loops.reviewing.decisions import UNDECIDED
from mlexpert.loops.reviewing.exhibit import Column, Exhibit

MUCH_DRIFT, TELLING = 0.15, 0.6  # of a column, and of the model that tells the sides apart
FAR = 2.5  # spreads of the thresholds beyond which a solution is told in words
MAX_CELL, MAX_SHOWN = 90, 90  # characters of a cell, and columns of the rows that are shown
LINES = ("gold", "silver", "bronze", "median")
KEY = '<div class="key"><span><i></i>train</span><span><i class="t"></i>test</span></div>'


def article(one: Exhibit) -> str:
    parts = [
        f"<header><h2>{escape(one.title)}</h2><code>{escape(one.task.id)}</code></header>",
        _chips(one),
        _section("Decision", _decision(one)),
        _section("What was found", _findings(one)),
        _pair(_section("Target", _targets(one)), _section("Thresholds and reference solutions", _thresholds(one))),
        _section("Description, as the policy reads it", f'<div class="text">{markup.html(one.text)}</div>'),
        _section("Pictures", _pictures(one)),
        _section("First rows of train", _rows(*one.shown)),
        _section("Columns", _columns(one)),
        _section("Sample submission", _rows(*one.sample)),
        _pair(_section("Split", _split(one)), _section("Licence and provenance", _provenance(one))),
        _section("How it was made", _history(one)),
    ]
    return f'<article class="task" id="{escape(one.task.id)}">{"".join(parts)}</article>'


def _section(title: str, inside: str) -> str:
    return f"<section><h3>{title}</h3>{inside}</section>" if inside else ""


def _pair(one: str, other: str) -> str:
    return f'<div class="two">{one}{other}</div>'


def _list(told: Mapping[str, str]) -> str:
    """Terms and their HTML."""
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{text}</dd>' for name, text in told.items() if text)}</dl>"


# ---------------------------------------------------------------- what it is, and what was decided
def _chips(one: Exhibit) -> str:
    task = one.task
    settings = "".join(f", {name} {value}" for name, value in task.settings.items())
    better = "lower is better" if task.lower_is_better else "higher is better"
    chips = {
        f"<b>{escape(task.modality)}</b>, {escape(task.domain)}": "",
        f"<b>{escape(task.metric)}</b>{escape(settings)}, {better}": "",
        f"{one.rows[0]:,} train, {one.rows[1]:,} test rows": "",
        escape(_licence(one)): "good" if task.provenance.redistributable else "warn",
        f"side: <b>{one.side}</b>" if one.side else "": "",
    }
    return f'<div class="chips">{"".join(_chip(text, kind) for text, kind in chips.items() if text)}</div>'


def _chip(text: str, kind: str) -> str:
    return f'<span class="chip {kind}">{text}</span>'


def _licence(one: Exhibit) -> str:
    origin = one.task.provenance
    return f"{'may' if origin.redistributable else 'must not'} be passed on: {origin.licence}"


def _decision(one: Exhibit) -> str:
    said = "".join(
        f"<p><b>{made.decision}</b> by {escape(made.who)} on {escape(made.when[:16].replace('T', ' '))} UTC"
        f"{': ' + escape(made.why) if made.why else ''}</p>"
        for made in reversed(one.decisions)
    )
    if not said:
        said = "<p>Nobody has decided yet.</p>"
    elif one.standing.state == UNDECIDED:
        said = f"<p>This version is new since the last decision and needs another.</p>{said}"
    return (
        f'{said}<div class="decide"><button class="yes" aria-pressed="false">Accept</button>'
        '<button class="no" aria-pressed="false">Reject</button>'
        '<input placeholder="why (needed for a rejection)" aria-label="Reason"></div>'
    )


def _findings(one: Exhibit) -> str:
    lines = [(f.severity, f.text) for f in one.findings] + [("repair", text) for text in one.repairs]
    told = "".join(
        f'<div class="finding"><span class="tag {kind}">{kind}</span><span>{escape(text)}</span></div>'
        for kind, text in lines
    )
    return told or '<span class="soft">No leak, nothing to remark.</span>'


# ---------------------------------------------------------------- target and thresholds
def _targets(one: Exhibit) -> str:
    more = len(one.task.target_columns) - len(one.targets)
    rest = f'<p class="soft">and {more} more targets</p>' if more > 0 else ""
    return KEY + "".join(_target(one, column) for column in one.targets) + rest


def _target(one: Exhibit, column: Column) -> str:
    labels = one.task.labels
    chart = charts.histogram(*column.numbers) if column.numbers else charts.classes(*column.counts, labels=labels)
    what = f"{column.distinct:,} different values"
    return f'<p><span class="target">{escape(column.name)}</span> <span class="soft">{what}</span></p>{chart}'


def _thresholds(one: Exhibit) -> str:
    marks = {name: getattr(one.task.thresholds, name) for name in LINES}
    solutions = dict(one.solutions) or {"sample submission": one.task.thresholds.sample}
    far = [name for name, score in solutions.items() if _is_far(score, list(marks.values()))]
    near = {name: score for name, score in solutions.items() if name not in far}
    chart = charts.ladder(marks, near, one.people, one.task.lower_is_better)
    source = f'<p class="soft">from {escape(one.task.thresholds_from)}{", in grey" if one.people else ""}</p>'
    beyond = ", ".join(f"{name} {charts.short(solutions[name])}" for name in far)
    return source + chart + (f'<p class="soft">far off: {escape(beyond)}</p>' if far else "")


def _is_far(score: float, marks: Sequence[float]) -> bool:
    """Whether a score would push all thresholds into a corner of the drawing."""
    spread = max(marks) - min(marks)
    return spread > 0 and not min(marks) - FAR * spread <= score <= max(marks) + FAR * spread


# ---------------------------------------------------------------- the data
def _pictures(one: Exhibit) -> str:
    shown = "".join(
        f'<figure><img src="{uri}" alt=""><figcaption>{escape(caption[:24])}</figcaption></figure>'
        for caption, uri in one.pictures
    )
    return f'<div class="pictures">{shown}</div>' if shown else ""


def _rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names[:MAX_SHOWN])
    body = "".join(f"<tr>{''.join(map(_cell, row[:MAX_SHOWN]))}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll rows">{table}</div>' if names else ""


def _cell(text: str) -> str:
    return f'<td title="{escape(text[:400])}">{escape(charts.cut(text, MAX_CELL))}</td>'


def _columns(one: Exhibit) -> str:
    """All columns, those that differ most between the sides first."""
    lines = "".join(map(_column, sorted(one.columns, key=lambda column: -(column.drift or 0.0))))
    more = one.n_columns - len(one.columns)
    head = "<th>column<th>kind<th>train, test<th>values<th class=n>different<th class=n>empty<th>drift"
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    return KEY + table + (f'<p class="soft">and {more:,} more columns</p>' if more > 0 else "") if lines else ""


def _column(column: Column) -> str:
    gaps = "" if max(column.gaps) == 0 else f"{column.gaps[0]:.0%}, {column.gaps[1]:.0%}"
    return (
        f'<tr><td><code>{escape(column.name)}</code></td><td class="soft">{escape(column.kind)}</td>'
        f'<td>{_spark(column)}</td><td>{_values(column)}</td><td class="n">{column.distinct:,}</td>'
        f'<td class="n">{gaps}</td><td>{_drift(column)}</td></tr>'
    )


def _drift(column: Column) -> str:
    if column.drift is None:
        return ""
    much = "much" if column.drift > MUCH_DRIFT else ""
    wide = 4 + 90 * min(1.0, column.drift)
    return f'<span class="bar {much}" style="width:{wide:.0f}px"></span>{column.drift:.3f}'


def _spark(column: Column) -> str:
    if column.numbers:
        borders = charts.edges(*column.numbers, bins=20)
        return charts.spark(*(charts.shares(side, borders) for side in column.numbers))
    if column.kind in ("text", "id", "file"):
        return ""
    train, test = column.counts
    names = sorted({*train, *test}, key=lambda name: (-train.get(name, 0.0), name))[:20]
    return charts.spark([train.get(name, 0.0) for name in names], [test.get(name, 0.0) for name in names])


def _values(column: Column) -> str:
    """From where to where, or the most frequent cells."""
    if column.numbers:
        finite = [value for side in column.numbers for value in side.tolist() if value == value]
        return f"{charts.short(min(finite))} to {charts.short(max(finite))}" if finite else ""
    names = sorted(column.counts[0], key=lambda name: (-column.counts[0][name], name))[:3]
    return escape(", ".join(charts.cut(name, 32) or "(empty)" for name in names))


# ---------------------------------------------------------------- where it comes from
def _split(one: Exhibit) -> str:
    split = one.task.split
    told = {
        "recipe": escape(split.recipe + (f" by {split.by}" if split.by else "")),
        "seed": str(split.seed),
        "test share": f"{split.test_share:.1%}" if split.test_share else "not known",
    }
    if (auc := split.drift.get(ADVERSARIAL)) is not None:
        alike = "alike" if auc < TELLING else "different, see the columns with most drift"
        told["told apart"] = f"AUC {auc:.3f} of a model that guesses the side: the sides are {alike}"
    worst = sorted(((value, name) for name, value in split.drift.items() if name != ADVERSARIAL), reverse=True)[:5]
    told["most drift"] = escape(", ".join(f"{name} {value:.3f}" for value, name in worst))
    return _list(told)


def _provenance(one: Exhibit) -> str:
    origin = one.task.provenance
    url = escape(origin.url)
    is_link = urlparse(origin.url).scheme in ("http", "https")
    return _list(
        {
            "source": escape(origin.source),
            "address": f'<a href="{url}" rel="noreferrer">{url}</a>' if is_link else url,
            "licence": escape(_licence(one)),
            "data underneath": escape(origin.source_dataset),
            "note": escape(origin.note),
        }
    )


def _history(one: Exhibit) -> str:
    """The ledger of this task: stages as a chain, and what was said about any of them."""
    chain = "".join(f'<li class="{entry.state}">{escape(entry.stage)}</li>' for entry in one.history)
    said = "".join(
        f"<p><b>{escape(entry.stage)}</b>, {entry.state}: {escape(entry.reason)}</p>"
        for entry in one.history
        if entry.reason
    )
    return f'<ol class="steps">{chain}</ol>{said}' if chain else ""
