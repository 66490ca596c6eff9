"""Side tables, and references of test rows into them that lead nowhere: rows that the split took away."""

from __future__ import annotations

from collections.abc import Iterator

from mlexpert.factory.leaks.view import View
from mlexpert.factory.records import Finding

SOLID = 0.95  # share of train's keys that a side table has when it is meant to have them all


def side_tables(view: View) -> Iterator[Finding]:
    """Keys that train rows find in a side table and test rows do not."""
    if view.train is None or view.test is None:
        return
    shared = [name for name in view.test if name in view.train]
    for place, table in view.tables.items():
        for name in (name for name in shared if name in table):
            known = set(table[name])
            trained, asked = (sum(cell in known for cell in cells) / len(cells) for cells in view.cells(name))
            if trained >= SOLID and asked < trained - (1 - SOLID):
                lost = sorted(set(view.test[name]) - known)
                text = (
                    f"{place} has the {name!r} of {trained:.0%} of the train rows but of {asked:.0%} of the test rows "
                    f"({', '.join(lost[:3])}, ...): keep the rows that test needs"
                )
                yield Finding("keys", "refuse", text, name, asked)
