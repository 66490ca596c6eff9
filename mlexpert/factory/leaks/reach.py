"""Answers that public bytes give: under a name of their own, beside the id, in the order of the rows, or in the sample.

Every text file is read as a stream of words. Where an id of test stands, the words around it are compared with its
answer; a place (so many words before or after the id) that is right nearly always gives the answers away. This finds
tables under any delimiter, JSON, logs and renamed columns alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from mlexpert.factory.leaks.archives import Entry
from mlexpert.factory.leaks.association import within
from mlexpert.factory.leaks.columns import REFUSE, told
from mlexpert.factory.leaks.view import Table, View, Wanted, n_rows, take
from mlexpert.factory.records import Finding
from mlexpert.tasks.metrics import number
from mlexpert.tasks.tables import header, read_cells
from mlexpert.tasks.task import SAMPLE

MAX_BYTES = 2**24  # of one file that is read as text
MIN_IDS, MAX_IDS = 20, 5000
NEAR = 40  # words on either side of an id
RIGHT = 0.98
FIRST = 50
_APART = re.compile(r"""[,;\t|:=\s"'{}\[\]<>()]+""")


def target_columns(view: View) -> Iterator[Finding]:
    """A target column in the test table, or beside test ids in another public table."""
    task = view.task
    ids = set(view.ids)
    if task.test.endswith(".csv"):
        for name in sorted(set(header(task.public / task.test)) & set(task.target_columns)):
            yield Finding("target_column", "refuse", f"{task.test} holds the target {name!r}: remove the column", name)
    for place, table in view.tables.items():
        for name in sorted(set(table) & set(task.target_columns)):
            if any(not ids.isdisjoint(table[other]) for other in table if other != name):
                yield Finding(
                    "target_column", "refuse", f"{place} holds the target {name!r} beside test ids: remove it", name
                )


def near_ids(view: View, entry: Entry, data: bytes, wanted: Wanted) -> Iterator[Finding]:
    """Answers that stand at one distance from their ids in a public file. The sample has a probe of its own."""
    if entry.place == SAMPLE or b"\0" in data[:4096]:
        return
    words = _words(data[:MAX_BYTES].decode("utf-8", errors="replace"))
    if wanted.ids.isdisjoint(words):
        return
    for target, answers in wanted.answers.items():
        if (found := _distance(words, answers)) is not None:
            distance, share = found
            side = "after" if distance > 0 else "before"
            where = f"{abs(distance)} words {side} them"
            text = f"{entry.place} has the {target!r} of {share:.0%} of the test ids in it, {where}: remove it"
            yield Finding("answers", "refuse", text, "", share)


def _words(text: str) -> list[str]:
    for _ in range(2):  # an empty cell is a word too, or the words after it would stand one place off
        text = text.replace(",,", ",\ue000,").replace("\t\t", "\t\ue000\t").replace(";;", ";\ue000;")
    return _APART.split(text)


def _distance(words: Sequence[str], answers: Mapping[str, str]) -> tuple[int, float] | None:
    """The distance at which answers stand, and the share of ids for which it is right."""
    places = [at for at, word in enumerate(words) if word in answers][:MAX_IDS]
    told = [answers[words[at]] for at in places]
    if len(places) < MIN_IDS or Counter(told).most_common(1)[0][1] > RIGHT * len(told):
        return None
    best = (0, 0.0)
    for distance in (*range(1, NEAR), *range(-1, -NEAR, -1)):
        inside = [
            (at + distance, answer) for at, answer in zip(places, told, strict=True) if 0 <= at + distance < len(words)
        ]
        right = sum(_same(words[at], answer) for at, answer in inside)
        if right / len(places) > best[1]:
            best = (distance, right / len(places))
    return best if best[1] >= RIGHT else None


def _right(mine: Sequence[str], true: Sequence[str]) -> float:
    """Share of equal cells; of columns that differ early only the first rows are compared."""
    first = sum(map(_same, mine[:FIRST], true[:FIRST])) / len(true[:FIRST])
    return first if first < RIGHT / 2 else sum(map(_same, mine, true)) / len(true)


def _same(word: str, answer: str) -> bool:
    if word == answer:
        return True
    mine, true = number(word), number(answer)
    return abs(mine - true) <= 1e-6 * abs(true)


def whole_answers(view: View, entry: Entry, data: bytes, wanted: Wanted) -> Iterator[Finding]:
    """Long answers that stand as they are in a public file."""
    for target, cells in wanted.long.items():
        share = sum(cell in data for cell in cells) / max(1, len(cells))
        if len(cells) >= MIN_IDS and share > 0.5:
            text = f"{entry.place} holds {share:.0%} of the answers of {target!r} word for word: remove it"
            yield Finding("answers", "refuse", text, "", share)


def columns(view: View) -> Iterator[Finding]:
    """A column of the test table, or of another public one, that is the target under another name.

    Rows belong together by a column of ids, or by their order in a table that is as long as test.
    """
    own = [] if view.test is None else [(view.task.test, view.test)]
    for place, table in [*own, *view.tables.items()]:
        rows = _rows(view, table)
        if rows is None or len(rows) < MIN_IDS:
            continue
        for target in view.task.target_columns:
            true = [answer for answer, row in zip(view.answers[target], rows, strict=True) if row >= 0]
            if Counter(true).most_common(1)[0][1] > RIGHT * len(true):
                continue
            for name in table:
                mine = [table[name][row] for row in rows if row >= 0]
                if (share := _right(mine, true)) >= RIGHT:
                    text = f"column {name!r} of {place} is {target!r} in {share:.0%} of the test rows: remove it"
                    yield Finding("answers", "refuse", text, name, share)


def _rows(view: View, table: Table) -> Sequence[int] | None:
    """For every answer the row of `table` that belongs to it, -1 where there is none; None if nothing belongs."""
    for cells in table.values():
        place = {cell: row for row, cell in enumerate(cells)}
        rows = [place.get(id, -1) for id in view.ids]
        if sum(row >= 0 for row in rows) > len(rows) / 2:
            return rows
    return range(len(view.ids)) if n_rows(table) == len(view.ids) else None


def sample(view: View) -> Iterator[Finding]:
    """A sample submission whose values go with the answers."""
    table: Table = read_cells(view.task.public / SAMPLE)
    place = {id: row for row, id in enumerate(table[view.task.id_column])}
    table = take(table, [place[id] for id in view.ids])
    for name, cells in table.items():
        if len(set(cells)) < 2:
            continue
        for target in view.targets:
            found = within(cells, target)
            if found is not None and found.value > REFUSE[found.measure]:
                text = f"column {name!r} of {SAMPLE} tells {target.name!r} ({told(found)}): fill it with a constant"
                yield Finding("sample", "refuse", text, name, found.value)
