"""The files of train and test items: what their names, sizes, times, types and absence tell.

An item's files are those that its row names in a column of kind "file", or whose name without suffix is its id; they
may lie in archives.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from mlexpert.factory.leaks import order
from mlexpert.factory.leaks.archives import Entry
from mlexpert.factory.leaks.association import MIN_ROWS, Strength, across, within
from mlexpert.factory.leaks.columns import LABEL_LENGTH, REFUSE, spelled, told
from mlexpert.factory.leaks.view import Table, Target, View, n_rows
from mlexpert.factory.records import Finding
from mlexpert.tasks.task import DESCRIPTION, SAMPLE

Items = Mapping[str, Sequence[Entry]]  # id of an item -> its files
_HIDDEN = re.compile(
    r"(answers?|solutions?|private|ground[-_ ]?truth)|((test|hidden|private)[-_ ]?(labels?|targets?|answers?))", re.I
)


def items(view: View, entries: Sequence[Entry]) -> tuple[Items, Items]:
    """Files of train items and of test items; {} for a side without any."""
    tables = {view.task.train, view.task.test, SAMPLE, DESCRIPTION}
    files = [entry for entry in entries if entry.place not in tables]
    by_stem: dict[str, list[Entry]] = defaultdict(list)
    for entry in files:
        for stem in {entry.name.split(".")[0], PurePosixPath(entry.name).stem}:
            by_stem[stem].append(entry)
    known = _items(view, view.train, ids_of(view, view.train), files, by_stem)
    asked = _items(view, view.test, view.ids, files, by_stem)
    return _own(known, "test"), _own(asked, "train")


def _own(side: Items, other: str) -> Items:
    """Items of both sides may be numbered alike: files of the other side's folder go if that leaves any."""
    kept = {id: [entry for entry in files if other not in entry.place.lower()] for id, files in side.items()}
    return {id: kept[id] or files for id, files in side.items()}


def ids_of(view: View, table: Table | None) -> Sequence[str]:
    """The ids in a table, or row numbers as such."""
    if table is None:
        return []
    return table.get(view.task.id_column, [f"row {at}" for at in range(n_rows(table))])


def _items(
    view: View,
    table: Table | None,
    ids: Sequence[str],
    files: Sequence[Entry],
    by_stem: Mapping[str, list[Entry]],
) -> Items:
    named = [name for name, kind in view.task.columns.items() if kind == "file" and table is not None and name in table]
    if not named or table is None:
        return {id: by_stem[id] for id in ids if id in by_stem}
    places = {entry.place: entry for entry in files} | {entry.name: entry for entry in files}
    found: dict[str, list[Entry]] = defaultdict(list)
    for name in named:
        for id, cell in zip(ids, table[name], strict=True):
            if entry := places.get(cell) or places.get(PurePosixPath(cell).name):
                found[id].append(entry)
    return dict(found)


# ---------------------------------------------------------------- names
def names(view: View, train: Items, test: Items) -> Iterator[Finding]:
    """Folders, words and numbers of a path that go with the answer; labels written into it."""
    if len(test) < MIN_ROWS:
        return
    for what, part in (("folder", _folder), ("words", _words), ("number", _number)):
        for target in view.targets:
            ways = [_within(view, test, part, target), _across(view, train, test, part, target)]
            found = max((way for way in ways if way), key=lambda way: way.value, default=None)
            if found is not None and found.value > REFUSE[found.measure]:
                text = (
                    f"the {what} in the names of the test files tells {target.name!r} ({told(found)}): name files anew"
                )
                yield Finding("file_names", "refuse", text, "", found.value)
    for target in view.targets:
        yield from _spelled(view, test, target)


def _spelled(view: View, test: Items, target: Target) -> Iterator[Finding]:
    """Files named after their label."""
    answers = zip(view.ids, view.answers[target.name], strict=True)
    rows = [(test[id][0].place.lower(), answer.lower()) for id, answer in answers if id in test][:2000]
    labels = {answer for _, answer in rows if len(answer) >= LABEL_LENGTH and not answer.isdigit()}
    if not target.is_class or not 2 <= len(labels) <= 200:
        return
    share = spelled(rows, labels)
    if share > 0.5:
        text = f"{share:.0%} of the test files are named after their {target.name!r}: name files anew"
        yield Finding("file_names", "refuse", text, "", share)


def _folder(files: Sequence[Entry]) -> str:
    return str(PurePosixPath(files[0].place).parent)


def _words(files: Sequence[Entry]) -> str:
    return order.words_of(files[0].name)


def _number(files: Sequence[Entry]) -> str:
    return order.number_in(PurePosixPath(files[0].name).stem)


# ---------------------------------------------------------------- sizes and times
def sizes(view: View, train: Items, test: Items) -> Iterator[Finding]:
    """Sizes of files that give the answer away: classes that were stored in different ways."""
    for target in view.targets:
        found = _across(view, train, test, _size, target) if len(test) >= MIN_ROWS else None
        if found is not None and found.value > REFUSE[found.measure]:
            text = f"the size of a row's files tells {target.name!r} ({told(found)}): were classes stored in two ways?"
            yield Finding("file_sizes", "warn", text, "", found.value)


def times(view: View, train: Items, test: Items) -> Iterator[Finding]:
    """Times of files, or of members of archives, that go with the answer."""
    known = [test[id][0].moment if id in test else np.nan for id in view.ids]
    if not test or np.isfinite(known).mean() < 0.9 or np.nanmax(known) == np.nanmin(known):
        return
    for target in view.targets:
        ways = [_within(view, test, _moment, target), _across(view, train, test, _moment, target)]
        yield from order.found_in_order(view, target, "the time of the test files", ways, "", "set all times alike")


def _size(files: Sequence[Entry]) -> str:
    return str(sum(entry.size for entry in files))


def _moment(files: Sequence[Entry]) -> str:
    return repr(files[0].moment)


def _within(view: View, test: Items, part: Callable[[Sequence[Entry]], str], target: Target) -> Strength | None:
    return within([part(test[id]) if id in test else "" for id in view.ids], target)


def _across(
    view: View, train: Items, test: Items, part: Callable[[Sequence[Entry]], str], target: Target
) -> Strength | None:
    if not train:
        return None
    known = [part(train[id]) if id in train else "" for id in ids_of(view, view.train)]
    return across(known, [part(test[id]) if id in test else "" for id in view.ids], target)


# ---------------------------------------------------------------- types, and files that are not there
def types(view: View, train: Items, test: Items) -> Iterator[Finding]:
    """Types of files that test items have and train items do not."""
    if not train:
        return
    for suffix in sorted(_suffixes(test).keys() - _suffixes(train).keys()):
        share = _suffixes(test)[suffix] / len(test)
        text = f"{share:.0%} of the test items have a {suffix or 'nameless'} file, no train item has: remove it"
        yield Finding("file_types", "warn", text, suffix, share)


def foreign(test: Items, original_test: Collection[str]) -> Iterator[Finding]:
    """Types of files that the source's own test set did not give."""
    if not original_test:
        return
    given = {PurePosixPath(name).suffix.lower() for name in original_test}
    for suffix, count in sorted(_suffixes(test).items()):
        if suffix not in given:
            text = (
                f"{count} test items have a {suffix or 'nameless'} file, the source's own test set has none: remove it"
            )
            yield Finding("file_types", "refuse", text, suffix, float(count))


def _suffixes(side: Items) -> Counter[str]:
    return Counter(suffix for files in side.values() for suffix in {entry.suffix for entry in files})


def missing(view: View, train: Items, test: Items) -> Iterator[Finding]:
    """Test rows without their file."""
    named = [name for name, kind in view.task.columns.items() if kind == "file"]
    rows = len(view.ids)
    if (named or len(test) >= rows / 2) and len(test) < rows:
        lost = [id for id in view.ids if id not in test]
        text = f"{len(lost)} of {rows} test rows have no file ({', '.join(lost[:3])}, ...): put the files back"
        yield Finding("keys", "refuse", text, named[0] if named else "", len(test) / rows)


def private(view: View) -> Iterator[Finding]:
    """Public files that are private ones, by their bytes or by their names, and links that may lead anywhere."""
    hidden = {path.read_bytes() for path in sorted(view.task.private.iterdir()) if path.is_file()}
    sizes = {len(data) for data in hidden}
    for path in sorted(view.task.public.rglob("*")):
        place = path.relative_to(view.task.public).as_posix()
        if path.is_symlink():
            yield Finding("links", "refuse", f"public/{place} is a link: put the file itself there")
        elif path.is_file() and path.stat().st_size in sizes and path.read_bytes() in hidden:
            yield Finding("private_files", "refuse", f"public/{place} has the bytes of a private file: remove it")
        elif path.is_file() and _HIDDEN.fullmatch(Path(path.name.split(".")[0]).name):
            yield Finding("private_files", "refuse", f"public/{place} is named like hidden answers: remove it")
