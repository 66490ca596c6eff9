"""Single columns that tell too much: by their values, by being filled or empty, or by spelling the label.

Real columns may be strong. The borders are those beyond which a task is about finding the column: AUC 0.98, nine tenths
of the entropy of the classes, rank correlation 0.995 (from 0.98 a person should look: a price per weight is honest).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from mlexpert.factory.leaks.association import MIN_ROWS, Strength, across_codes, binned
from mlexpert.factory.leaks.view import View
from mlexpert.factory.records import Finding

REFUSE = {"auc": 0.96, "information": 0.9, "rank": 0.995}  # an AUC of 0.98 lies 0.96 of the way from chance to certain
WARN = {"auc": 0.96, "information": 0.9, "rank": 0.98}
COUNTER = {"auc": 0.4, "information": 0.3, "rank": 0.5}  # a number that only counts rows should tell nothing at all
LABEL_LENGTH = 3  # shorter labels stand in texts by chance


def single(view: View) -> Iterator[Finding]:
    """Columns whose values, learned on train, give the answers of test away."""
    for name in view.features:
        train, test = view.cells(name)
        counts, codes = is_counter(train, test), binned(train, test)
        for target in view.targets:
            found = across_codes(codes, target)
            if found is None:
                continue
            if counts and found.exceeds(COUNTER[found.measure]):
                text = f"column {name!r} only counts rows and still tells {target.name!r} ({told(found)}): drop it"
                yield Finding("single_column", "refuse", text, name, found.value)
            elif found.value > WARN[found.measure]:
                severity = "refuse" if found.value > REFUSE[found.measure] else "warn"
                text = f"column {name!r} alone tells {target.name!r} of the test rows ({told(found)}): drop it"
                yield Finding("single_column", severity, text, name, found.value)


def presence(view: View) -> Iterator[Finding]:
    """Columns that are filled for one answer and empty for another."""
    for name in view.features:
        train, test = (["filled" if cell else "empty" for cell in cells] for cells in view.cells(name))
        if len(set(train)) < 2:
            continue
        codes = binned(train, test)
        for target in view.targets:
            found = across_codes(codes, target)
            if found is not None and found.value > REFUSE["information" if found.measure == "information" else "auc"]:
                text = f"whether {name!r} is empty tells {target.name!r} ({told(found)}): drop the column"
                yield Finding("presence", "refuse", text, name, found.value)


def words(view: View) -> Iterator[Finding]:
    """Text columns in which the row's own label stands, and no other row's."""
    for target in view.targets:
        answers = view.answers[target.name]
        labels = sorted({cell for cell in answers if len(cell) >= LABEL_LENGTH and not cell.replace(".", "").isdigit()})
        if not target.is_class or len(labels) < 2:
            continue
        for name in view.features:
            rows = list(zip(view.cells(name)[1], answers, strict=True))
            if len(rows) >= MIN_ROWS and (share := spelled(rows, labels)) > 0.98:
                text = f"column {name!r} spells the row's own label in {share:.0%} of the test rows: cut it out"
                yield Finding("single_column", "refuse", text, name, share)


def spelled(rows: Sequence[tuple[str, str]], labels: Collection[str]) -> float:
    """Share of rows (text, label) whose text holds their label and no other one; 0 where labels are too many to try."""
    if len(labels) > 200:
        return 0.0
    looked_at = rows[:2000]
    hits = sum([label for label in labels if label in text] == [answer] for text, answer in looked_at)
    return hits / len(looked_at)


def is_counter(train: Sequence[str], test: Sequence[str]) -> bool:
    """Whole numbers, no two alike, not spread wider than a few times the rows: a row number under another name."""
    cells = [*train, *test]
    if (
        len(cells) < MIN_ROWS
        or len(set(cells)) < len(cells)
        or not all(cell.isascii() and cell.isdigit() for cell in cells)
    ):
        return False
    values = [int(cell) for cell in cells]
    return max(values) - min(values) < 20 * len(values)


def told(found: Strength) -> str:
    """The measure in the words of people who read reviews."""
    if found.measure == "auc":
        return f"AUC {(1 + found.value) / 2:.3f}"
    if found.measure == "information":
        return f"{found.value:.0%} of the entropy of the classes"
    return f"rank correlation {found.value:.3f}"
