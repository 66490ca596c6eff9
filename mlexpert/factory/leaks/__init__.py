"""Leaks: what a task gives away about its hidden answers, found without training a model.

    findings(task)    every probe's findings, the worst first

A probe is a function of a look at the task (`view`), or of what lies in its public folder, that yields Findings. Each
is made for one kind of leak that competitions have really had, and is measured against honest data: `association` has
the borders' meaning, `columns` and `order` their values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from mlexpert.factory.leaks import archives, columns, duplicates, fields, files, keys, order, promises, reach
from mlexpert.factory.leaks.archives import Entry, Purse
from mlexpert.factory.leaks.view import View, look, thin, wanted_of
from mlexpert.factory.records import Finding
from mlexpert.tasks.task import Task

SEVERITIES = ("refuse", "warn", "note")
MAX_ALIKE = 10
PER_FILE = ("archive_fields", "answers", "private_files", "links")  # kinds with a finding a file, which may be many
TABLES = (
    columns.single, columns.presence, columns.words, order.ids, order.rows, duplicates.rows, keys.side_tables,
    promises.labels, promises.groups, promises.time_order, reach.target_columns, reach.columns, reach.sample,
    files.private,
)  # fmt: skip
FILES = (files.names, files.sizes, files.times, files.types, files.missing, duplicates.files)
CONTENTS = (fields.fields, reach.near_ids, reach.whole_answers)


def findings(task: Task, original_test: Collection[str] = ()) -> list[Finding]:
    """All leaks that the probes see, the worst first; [] for a task that seems fair.

    `original_test`: names of the files in the source's own test set, if it had one; types of files that it lacks and
    our test items have are leaks. Raises TaskError if a table of the task cannot be read.
    """
    whole = look(task)
    view, purse = thin(whole), Purse()
    entries, found = _contents(whole, purse)
    found += chain.from_iterable(probe(whole if probe in WHOLE else view) for probe in TABLES)
    sides = files.items(whole, entries)
    for probe in FILES:
        found += probe(whole, *sides)
    found += files.foreign(sides[1], original_test)
    found += [Finding("unread", "note", f"not looked into: {what}") for what in purse.unread[:MAX_ALIKE]]
    return _in_order(_few(found))


# Those that count what both sides share, or read single columns only, see all rows; the others a sample.
WHOLE = (
    duplicates.rows, promises.labels, promises.groups, promises.time_order, keys.side_tables, reach.target_columns,
    reach.columns,
)  # fmt: skip


def _contents(view: View, purse: Purse) -> tuple[list[Entry], list[Finding]]:
    """Everything in the public folder, and what the probes of contents see in it: not in media, and not in train and
    test, for which there are the probes of tables."""
    wanted, own = wanted_of(view), (view.task.train, view.task.test)
    entries: list[Entry] = []
    found: list[Finding] = []
    for entry, read in archives.walk(view.task.public, purse):
        entries.append(entry)
        if entry.suffix not in fields.MEDIA and entry.place not in own:
            data = read()
            found += chain.from_iterable(probe(view, entry, data, wanted) for probe in CONTENTS)
    return entries, found


def _few(found: list[Finding]) -> Iterator[Finding]:
    """Of kinds that may come once a file, the first ones and how many more there are."""
    seen: dict[tuple[str, str], int] = {}
    for one in found:
        if one.kind not in PER_FILE:
            yield one
            continue
        key = (one.kind, one.severity)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= MAX_ALIKE:
            yield one
    for (kind, severity), count in seen.items():
        if count > MAX_ALIKE:
            yield Finding(kind, severity, f"and {count - MAX_ALIKE} more of this kind")  # type: ignore[arg-type]


def _in_order(found: Iterator[Finding]) -> list[Finding]:
    return sorted(found, key=lambda one: SEVERITIES.index(one.severity))
