"""Rows and files that stand on both sides of the split, so that looking up is enough.

Tables of few, coarse columns have equal rows by chance and honestly. A repeated row counts only if chance does not
explain it: with columns taken as independent, fewer than MAX_CHANCE rows of train would be expected to equal it.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from mlexpert.factory.leaks.archives import Entry
from mlexpert.factory.leaks.columns import is_counter
from mlexpert.factory.leaks.files import Items
from mlexpert.factory.leaks.view import View
from mlexpert.factory.records import Finding, Severity

MAX_CHANCE = 0.01
LONG = 24  # characters from which a text does not repeat by chance, however often train holds it
TINY = 64  # bytes of a file below which equality means nothing
WARN, REFUSE = 0.01, 0.2  # share of test rows that train answers


def rows(view: View) -> Iterator[Finding]:
    """Test rows whose features stand in train with the same answer."""
    cells = [view.cells(name) for name in view.features if not is_counter(*view.cells(name))]
    if not cells:
        return
    known: dict[int, list[int]] = defaultdict(list)  # by hash: rows of wide tables are not kept
    for at, row in enumerate(zip(*(train for train, _ in cells), strict=True)):
        known[hash(row)].append(at)
    rows = [(at, row) for at, row in enumerate(zip(*(test for _, test in cells), strict=True)) if hash(row) in known]
    is_odd = _surprising([train for train, _ in cells], [row for _, row in rows])
    looked_up = [at for (at, row), odd in zip(rows, is_odd, strict=True) if odd and _agrees(view, at, known[hash(row)])]
    if len(looked_up) >= 3:
        share = len(looked_up) / len(view.ids)
        text = (
            f"{len(looked_up)} of {len(view.ids)} test rows ({share:.1%}) stand in {view.task.train}, answer included: "
            "keep equal rows once, or on one side"
        )
        yield Finding("duplicate_rows", _severity(share), text, "", share)


def files(view: View, train: Items, test: Items) -> Iterator[Finding]:
    """Test items with a file of which a train item has the same bytes. Members of archives are not compared."""
    sizes = {entry.size for entries in train.values() for entry in entries}
    candidates = [(id, entry) for id, entries in test.items() for entry in entries if entry.size in sizes]
    wanted = {entry.size for _, entry in candidates if entry.size > TINY}
    known = {_sum(entry) for entries in train.values() for entry in entries if entry.size in wanted and entry.path}
    same = {id for id, entry in candidates if entry.path and entry.size > TINY and _sum(entry) in known}
    if len(same) >= 3:
        share = len(same) / len(test)
        text = f"{len(same)} of {len(test)} test items ({share:.1%}) share a file with train: keep them on one side"
        yield Finding("duplicate_rows", _severity(share), text, "", share)


def _severity(share: float) -> Severity:
    return "refuse" if share > REFUSE else "warn" if share >= WARN else "note"


def _surprising(train: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Whether rows that train has are more than chance; `train` holds columns, `rows` rows."""
    if not rows:
        return []
    n_train = len(train[0])
    seen = [Counter(cells) for cells in train]

    def chance(row: Sequence[str]) -> float:
        shares = (1e-6 if len(cell) >= LONG else count[cell] / n_train for cell, count in zip(row, seen, strict=True))
        return math.log(n_train) + sum(map(math.log, shares))

    return [chance(row) < math.log(MAX_CHANCE) for row in rows]


def _agrees(view: View, at: int, twins: Sequence[int]) -> bool:
    """Whether most of a row's twins in train have its answers."""
    train = view.train or {}
    names = [name for name in view.task.target_columns if name in train]
    same = sum(all(train[name][twin] == view.answers[name][at] for name in names) for twin in twins)
    return 2 * same > len(twins)


def _sum(entry: Entry) -> bytes:
    assert entry.path is not None
    with entry.path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()
