"""Small pictures as inline SVG: histograms, shares, a ladder of scores. Colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

import numpy as np

BINS = 30
MOST_CLASSES = 14
WIDE, HIGH, STEP = 500, 150, 17  # of a chart, and from one line of text to the next


def edges(*columns: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Common borders of bins: between the 0.5 and the 99.5 percentile, so that one outlier flattens nothing."""
    values = np.concatenate([column[np.isfinite(column)] for column in columns])
    if not len(values):
        return np.linspace(0, 1, bins + 1)
    low, high = np.quantile(values, [0.005, 0.995])
    if low == high:
        low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    if (values == np.round(values)).all():  # whole numbers stand in the middle of bins of whole width
        width = max(1.0, np.ceil((high - low + 1) / bins))
        return np.arange(np.floor(low) - 0.5, np.ceil(high) + width, width)
    return np.linspace(low, high, bins + 1)


def shares(values: np.ndarray, borders: np.ndarray) -> list[float]:
    """Share of the values in each bin; values beyond the borders count in the outer bins."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return [0.0] * (len(borders) - 1)
    counts, _ = np.histogram(np.clip(finite, borders[0], borders[-1]), borders)
    return (counts / len(finite)).tolist()


def spark(train: Sequence[float], test: Sequence[float]) -> str:
    """A column's distribution in a table cell: train filled, test as a line."""
    most = max([*train, *test, 1e-12])
    width, height = 120.0, 26.0
    step = width / max(1, len(train))
    bars = "".join(
        f'<rect x="{at * step:.1f}" y="{height - height * share / most:.1f}" width="{max(step - 0.6, 0.4):.1f}" '
        f'height="{height * share / most:.1f}" class="train"/>'
        for at, share in enumerate(train)
    )
    line = _steps(test, most, step, height)
    return f'<svg viewBox="0 0 {width:g} {height:g}" class="spark" aria-hidden="true">{bars}{line}</svg>'


def _steps(
    values: Sequence[float], most: float, step: float, height: float, left: float = 0.0, top: float = 0.0
) -> str:
    """The outline of a histogram."""
    if not values or not any(values):
        return ""
    points = []
    for at, share in enumerate(values):
        y = top + height - height * share / most
        points += [f"{left + at * step:.1f},{y:.1f}", f"{left + (at + 1) * step:.1f},{y:.1f}"]
    return f'<polyline points="{" ".join(points)}" class="test"/>'


def histogram(train: np.ndarray, test: np.ndarray) -> str:
    """Numbers: train as bars, test as an outline, with a few ticks."""
    borders = edges(train, test)
    left, bottom = 4.0, 22.0
    known, asked = shares(train, borders), shares(test, borders)
    most = max([*known, *asked, 1e-12])
    step, height = (WIDE - 2 * left) / len(known), HIGH - bottom
    bars = "".join(
        f'<rect x="{left + at * step:.1f}" y="{height - height * share / most:.1f}" width="{step - 1:.1f}" '
        f'height="{height * share / most:.1f}" class="train"><title>{short(borders[at])} to {short(borders[at + 1])}: '
        f"train {share:.1%}, test {other:.1%}</title></rect>"
        for at, (share, other) in enumerate(zip(known, asked, strict=True))
    )
    ticks = "".join(
        f'<text x="{left + share * (WIDE - 2 * left):.1f}" y="{HIGH - 6}" text-anchor="{anchor}">'
        f"{short(borders[0] + share * (borders[-1] - borders[0]))}</text>"
        for share, anchor in ((0, "start"), (0.25, "middle"), (0.5, "middle"), (0.75, "middle"), (1, "end"))
    )
    line = f'<line x1="{left}" y1="{height:.1f}" x2="{WIDE - left}" y2="{height:.1f}" class="axis"/>'
    return _svg(WIDE, HIGH, "distribution", bars + _steps(asked, most, step, height, left) + line + ticks)


def classes(train: Mapping[str, float], test: Mapping[str, float], labels: Sequence[str] = ()) -> str:
    """Labels with their shares on both sides, the most frequent first (or in the given order)."""
    both = {name: train.get(name, 0.0) + test.get(name, 0.0) for name in {*train, *test}}
    names = [name for name in labels if name in both] or sorted(both, key=lambda name: (-both[name], name))
    rest = names[MOST_CLASSES:]
    rows = [(name, train.get(name, 0.0), test.get(name, 0.0)) for name in names[:MOST_CLASSES]]
    if rest:
        rows.append((f"{len(rest)} more", sum(train.get(n, 0.0) for n in rest), sum(test.get(n, 0.0) for n in rest)))
    most = max([share for _, *pair in rows for share in pair] + [1e-12])
    drawn = []
    for at, (name, known, asked) in enumerate(rows):
        y, end = at * 24.0, 172 + 240 * max(known, asked) / most
        drawn.append(
            f'<text x="158" y="{y + 15}" text-anchor="end">{escape(cut(name, 22))}</text>'
            f'<rect x="166" y="{y + 3}" width="{240 * known / most:.1f}" height="8" class="train"/>'
            f'<rect x="166" y="{y + 12}" width="{240 * asked / most:.1f}" height="8" class="testbar"/>'
            f'<text x="{end:.1f}" y="{y + 16}" class="value">{known:.1%} · {asked:.1%}</text>'
        )
    return _svg(WIDE, int(24 * len(rows)) + 2, "shares of the labels", "".join(drawn))


# ---------------------------------------------------------------- the ladder
def ladder(marks: Mapping[str, float], solutions: Mapping[str, float], people: Sequence[float], lower: bool) -> str:
    """Thresholds and scores on one line, the best at the right.

    `marks`: gold, silver, bronze, median. `people`: scores of a human leaderboard, drawn as a band behind.
    """
    scores = [*marks.values(), *solutions.values()]
    pad = 0.08 * (max(scores) - min(scores)) or abs(scores[0]) * 0.05 or 0.5
    low, high = min(scores) - pad, max(scores) + pad

    def place(score: float) -> float:
        share = (score - low) / (high - low)
        return 14 + (WIDE - 28) * (1 - share if lower else share)

    order = sorted(solutions, key=lambda name: solutions[name], reverse=lower)
    top = 24 + STEP * len(marks)
    height = top + STEP * len(order) + 18
    drawn, texts = [_people(people, low, high, place, height - 20)], []  # texts last, so that no line crosses them
    for row, name in enumerate(sorted(marks, key=lambda name: place(marks[name]))):
        x, y = place(marks[name]), 14 + STEP * row
        drawn.append(f'<line x1="{x:.1f}" y1="{y - 9}" x2="{x:.1f}" y2="{height - 20}" class="mark {name}"/>')
        texts.append(_beside(x, y, f"{name} {short(marks[name])}", 5, name))
    for row, name in enumerate(order):
        x, y = place(solutions[name]), top + STEP * row + 8
        drawn.append(f'<circle cx="{x:.1f}" cy="{y - 4}" r="4.5" class="dot"/>')
        texts.append(_beside(x, y, f'{escape(name)} <tspan class="value">{short(solutions[name])}</tspan>', 9, ""))
    better = f'<text x="{WIDE - 4}" y="{height - 3}" text-anchor="end" class="value">better →</text>'
    return _svg(WIDE, height, "thresholds and reference solutions", "".join(drawn + texts) + better)


def _beside(x: float, y: float, text: str, gap: float, kind: str) -> str:
    """A name at the side of its mark where there is room."""
    anchor, at = ("end", x - gap) if x > 0.62 * WIDE else ("start", x + gap)
    return f'<text x="{at:.1f}" y="{y}" text-anchor="{anchor}" class="halo {kind}">{text}</text>'


def _people(people: Sequence[float], low: float, high: float, place: Callable[[float], float], base: float) -> str:
    """Where people scored, as a faint histogram behind the ladder."""
    inside = np.array([score for score in people if low <= score <= high])
    if len(inside) < 2:
        return ""
    borders = np.linspace(low, high, 61)
    counts, _ = np.histogram(inside, borders)
    drawn = []
    for count, start, end in zip(counts.tolist(), borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        x, other = sorted((place(start), place(end)))
        tall = 0.6 * base * math.sqrt(count / max(counts))
        wide = other - x
        drawn.append(f'<rect x="{x:.1f}" y="{base - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}" class="people"/>')
    return "".join(drawn)


def _svg(width: int, height: int, title: str, inside: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}" class="chart">{inside}</svg>'


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def short(value: float) -> str:
    """A number as a person would write it down: four figures, no needless zeros."""
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        text = f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
        return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
    return f"{value:.3g}"
