"""Ids and row order (and, for `files`, times): things that name a row and must not tell what it is.

Rows of a fair task come in an order that says nothing. Where order has a meaning of its own (time, members of a group
in a row) only a near certainty is worth a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlexpert.factory.leaks.association import Strength, across, within
from mlexpert.factory.leaks.columns import told
from mlexpert.factory.leaks.view import Target, View
from mlexpert.factory.records import Finding, Severity

WARN = {"auc": 0.4, "information": 0.25, "rank": 0.4}
REFUSE = {"auc": 0.7, "information": 0.6, "rank": 0.7}


def ids(view: View) -> Iterator[Finding]:
    """Ids whose number or whose words go with the answer, learned on train's own ids or on the test's."""
    train = (view.train or {}).get(view.task.id_column, ())
    for what, part in (("number in", number_in), ("words of", words_of)):
        mine = [part(id) for id in view.ids]
        if len(set(mine)) < 2:
            continue
        for target in view.targets:
            ways = [across([part(id) for id in train], mine, target), within(mine, target)]
            yield from found_in_order(view, target, f"the {what} the id", ways, view.task.id_column, "give new ids")


def rows(view: View) -> Iterator[Finding]:
    """Test rows sorted by their answers, or in blocks of equal ones."""
    if view.test is None:
        return
    position = [str(at) for at in range(len(view.ids))]
    for target in view.targets:
        yield from found_in_order(
            view, target, "the order of the test rows", [within(position, target)], "", "shuffle the rows"
        )


def found_in_order(
    view: View, target: Target, what: str, ways: Sequence[Strength | None], column: str, remedy: str
) -> Iterator[Finding]:
    found = max((way for way in ways if way is not None), key=lambda way: way.value, default=None)
    if found is None or not found.exceeds(WARN[found.measure]):
        return
    severity: Severity = "refuse" if found.value > REFUSE[found.measure] else "warn"
    if view.is_ordered:
        severity = "note"
    text = f"{what} tells {target.name!r} ({told(found)}): {remedy}"
    yield Finding("id_order", severity, text, column, found.value)


def number_in(name: str) -> str:
    """The last number in an id or a file name, "" without one."""
    found = re.findall(r"\d+", name)
    return str(int(found[-1])) if found and len(found[-1]) < 16 else ""


def words_of(name: str) -> str:
    """What is left of it without its digits."""
    return re.sub(r"\d+", "", name)
