"""What of a competition's page belongs into the task: what the data are, not how the contest was run."""

from __future__ import annotations

import re

# Parts that are about the contest, or about a metric and a form that the task describes itself; and other parts.
_CONTEST = (
    r"(?:competition )?(?:evaluation(?: metric| criteria)?|metric|scoring|submission(?: file)?(?: format)?|"
    r"submission instructions|time ?line|prizes?|citation|acknowledge?ments?|code requirements|rules|team limits|"
    r"frequently asked.*|leaderboard)"
)
_DATA = (
    r"(?:description|overview|goal|context|background|(?:data ?set|data|file)(?: descriptions?| fields)?|files|columns)"
)
_HEADING = re.compile(
    rf"^[ \t]*#+[ \t]*(?P<marked>[^\n#]+?)[ \t#*:]*$|^[ \t*]*(?P<plain>{_CONTEST}|{_DATA})[ \t*:]*$", re.I | re.M
)
DOMAINS = {
    "medicine": r"patient|medical|disease|clinic|cancer|health|diagnos|hospital|drug",
    "finance": r"bank|loan|credit|stock|trading|insurance|fraud|default|customer value",
    "real estate": r"house|housing|rent|property|apartment|real estate",
    "retail": r"sales|store|product|retail|e-?commerce|shopping|purchase",
    "transport": r"taxi|traffic|flight|bike|vehicle|trip|driver",
    "energy": r"energy|electric|power|solar|consumption",
    "biology": r"species|plant|animal|leaf|whale|bird|gene|protein|molecul|cell",
    "language": r"text|sentence|essay|tweet|comment|review|author|question|language",
    "science": r"physics|particle|astronom|star|crystal|material|chemi",
    "society": r"crime|school|student|census|passenger|employee|citizen",
}


def body(text: str) -> str:
    """The text without the parts that only concern the contest."""
    marks = list(_HEADING.finditer(text))
    kept = [text[: marks[0].start()]] if marks else [text]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends[: len(marks)], strict=True):
        title = (mark["marked"] or mark["plain"]).strip()
        if not re.fullmatch(_CONTEST, title, re.I):
            kept.append(text[mark.start() : end])
    return re.sub(r"\n{3,}", "\n\n", "".join(kept)).strip()


def domain(title: str, text: str) -> str:
    """The field of life that most of the words are of; "general" if they are of none."""
    words = f"{title} {title} {text}".lower()
    counts = {name: len(re.findall(pattern, words)) for name, pattern in DOMAINS.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] >= 2 else "general"
