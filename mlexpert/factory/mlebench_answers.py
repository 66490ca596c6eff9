"""The private files of a prepared MLE-bench competition -> one table: id, target columns, columns named by role.

MLE-bench's graders take their answers in whatever shape their authors liked: one-hot, one row per box, JSON lines,
weights and groups that follow from ids. The rules for those are here, one short function per shape; whatever has the
columns that `mlebench_metrics` names is taken as it stands.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mlexpert.factory.mlebench_metrics import DIGITS, Grader
from mlexpert.factory.records import Quarantine
from mlexpert.tasks.metrics import METRICS, Needs
from mlexpert.tasks.tables import TaskError, columns, header

_NAMES = ("answers.csv", "test.csv", "test_orders.csv", "inklabels_rle.csv", "test_answer.csv")
_DIGITS = {"0.0": "0", "1.0": "1", "False": "0", "True": "1", "false": "0", "true": "1"}


@dataclass(frozen=True)
class Hidden:
    table: pd.DataFrame  # exact strings
    id_column: str
    targets: tuple[str, ...]
    labels: tuple[str, ...]  # () for a metric without; to be completed by those of the training table
    file: str  # that it came from


def hidden_of(grader: Grader, private: Path, sample_columns: Sequence[str]) -> Hidden:
    """`sample_columns`: the sample submission's, which name targets that the map leaves to the data.

    Raises Quarantine if no file of the folder holds the answers.
    """
    if grader.competition == "tensorflow2-question-answering":
        return _questions(grader, private / "test.jsonl")
    targets = _targets(grader, sample_columns)
    if grader.onehot:
        return _onehot(grader, private, [name for name in sample_columns if name != grader.id])
    needed = _NEEDED.get(grader.competition) or _columns(grader, targets)
    path = _file(private, needed)
    table = _read(path, needed)
    table = _SHAPES.get(grader.competition, _as_it_stands)(grader, table.rename(columns=dict(grader.renamed)), targets)
    return Hidden(*_cleaned(grader, table, targets), path.name)


def _targets(grader: Grader, sample_columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(grader.targets, str):  # a list in a module of the grader, which are the columns of its sample
        return tuple(name for name in sample_columns if name != grader.id)
    return grader.targets


def _columns(grader: Grader, targets: Sequence[str]) -> set[str]:
    old = {new: name for name, new in grader.renamed.items()}
    beside = () if grader.competition in _SHAPES else tuple(grader.beside.values())
    return {grader.id, *(old.get(name, name) for name in targets), *beside}


def _file(private: Path, needed: set[str]) -> Path:
    found = [private / name for name in _NAMES] + sorted(private.glob("*.csv"))
    found = [path for path in found if path.is_file()]
    for path in found:
        try:
            if needed <= set(header(path)):
                return path
        except TaskError:
            continue
    had = ", ".join(dict.fromkeys(path.name for path in found)) or "no CSV file"
    told = ", ".join(sorted(needed))
    raise Quarantine("fetch", f"no answers: no file in {private.name}/ has {told} (there is {had}); prepare it again")


def _read(path: Path, names: Iterable[str]) -> pd.DataFrame:
    """Some columns: beside them there may be the texts of the whole test set."""
    wanted = sorted(names)
    try:
        cells = columns(path, wanted)
    except TaskError as error:
        raise Quarantine("fetch", f"the answers cannot be read: {error}") from error
    return pd.DataFrame({name: np.array(column, object) for name, column in zip(wanted, cells, strict=True)})


def _cleaned(
    grader: Grader, table: pd.DataFrame, targets: tuple[str, ...]
) -> tuple[pd.DataFrame, str, tuple[str, ...], tuple[str, ...]]:
    """Labels in the map's spelling, and which there are."""
    needs = METRICS[grader.metric].answers
    labels: tuple[str, ...] = ()
    if needs is Needs.LABEL and grader.labels == DIGITS:
        table = table.assign(**{name: table[name].map(lambda cell: _DIGITS.get(cell, cell)) for name in targets})
        labels = DIGITS
    elif needs in (Needs.LABEL, Needs.LABELS):
        labels = in_order({label for name in targets for label in labels_of_cells(needs, table[name])})
    return table, grader.id, targets, labels


def labels_of_cells(needs: Needs, cells: Iterable[str]) -> set[str]:
    return {label for cell in cells for label in (cell.split() if needs is Needs.LABELS else [cell])} - {""}


def labels_of_table(path: Path, needs: Needs, targets: Sequence[str]) -> set[str]:
    """The labels in some columns of a training table, read row by row: such tables can be large. {} without them."""
    found: set[str] = set()
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        rows = csv.reader(file)
        names = next(rows, [])
        places = [names.index(name) for name in targets if name in names]
        for row in rows:
            if places and len(row) == len(names):
                found |= labels_of_cells(needs, [row[place] for place in places])
    return found


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Distinct labels, whole numbers by value and before texts."""
    whole = {label for label in labels if re.fullmatch(r"-?\d+", label)}
    return (*sorted(whole, key=int), *sorted(set(labels) - whole))


# ---------------------------------------------------------------- shapes
def _as_it_stands(grader: Grader, table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    kept = table[[grader.id, *targets]]
    return kept.assign(**{role: table[column] for role, column in grader.beside.items()})


def _onehot(grader: Grader, private: Path, labels: Sequence[str]) -> Hidden:
    path = _file(private, {grader.id, *labels})
    table = _read(path, {grader.id, *labels})
    truth = pd.DataFrame({grader.id: table[grader.id], grader.targets[0]: one_label(table, labels, path.name)})
    return Hidden(truth, grader.id, tuple(grader.targets), tuple(labels), path.name)


def one_label(table: pd.DataFrame, labels: Sequence[str], file: str) -> np.ndarray:
    """The label of every row, of one column per label with a single 1. Raises Quarantine naming the file."""
    try:
        shares_RxC = table[list(labels)].to_numpy(dtype=str).astype(float)
    except ValueError as error:
        raise Quarantine("fetch", f"{file}: a column of a label holds no number ({error}); prepare it again") from error
    if not ((shares_RxC == 1).sum(axis=1) == 1).all():
        raise Quarantine("fetch", f"{file}: a row has not one 1 among {list(labels)[:5]}; prepare it again")
    return np.array(labels, dtype=object)[shares_RxC.argmax(axis=1)]


def _keep(flags: Sequence[bool]) -> list[str]:
    return ["1" if flag else "0" for flag in flags]


def _toxic(grader: Grader, table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """Rows of -1 do not count."""
    scored = [all(float(cell) >= 0 for cell in row) for row in table[list(targets)].to_numpy()]
    return table[[grader.id, *targets]].assign(keep=_keep(scored))


_IDENTITIES = (
    "male", "female", "homosexual_gay_or_lesbian", "christian", "jewish", "muslim", "black", "white",
    "psychiatric_or_mental_illness",
)  # fmt: skip


def _identities(grader: Grader, table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """Annotators' shares, of which half counts as yes; an empty cell is no."""

    def half(column: str) -> list[str]:
        return _keep([float(cell or 0) >= 0.5 for cell in table[column]])

    roles = {f"identity:{name}": half(name) for name in _IDENTITIES}
    return pd.DataFrame({grader.id: table[grader.id], targets[0]: half(targets[0]), **roles})


def _fractures(grader: Grader, table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """`<study>_<vertebra or patient_overall>`; a miss of a fracture, and of the whole patient, weighs more."""
    study = [re.sub(r"_(patient_overall|C\d)$", "", id) for id in table[grader.id]]
    overall = np.array([id.endswith("patient_overall") for id in table[grader.id]])
    weight = np.where(overall, 7, 1) * (1 + (table[targets[0]].astype(float) == 1).to_numpy())
    return table[[grader.id, *targets]].assign(weight=[str(w) for w in weight.tolist()], group=study)


def _lungs(grader: Grader, table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """The last three measured weeks of each patient count; rows without a measurement are padding."""
    weeks = [int(id.rsplit("_", 1)[1]) for id in table[grader.id]]
    measured = table.assign(week=weeks).loc[table[targets[0]] != ""]
    last = measured.sort_values(by="week", kind="stable").groupby("Patient").tail(3).index
    return table[[grader.id, *targets]].assign(keep=_keep(table.index.isin(last).tolist()))


def _breaths(grader: Grader, table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """Only breathing in counts."""
    return table[[grader.id, *targets]].assign(keep=_keep([float(cell) == 0 for cell in table["u_out"]]))


def _characters(grader: Grader, table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """`label left top width height ...` becomes label, confidence and four borders."""

    def boxes(cell: str) -> str:
        parts = cell.split()
        marks = [parts[at : at + 5] for at in range(0, len(parts), 5)]
        return " ".join(f"{label} 1 {x} {y} {int(x) + int(w)} {int(y) + int(h)}" for label, x, y, w, h in marks)

    return pd.DataFrame({grader.id: table[grader.id], targets[0]: [boxes(cell) for cell in table[targets[0]]]})


def _chests(grader: Grader, table: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """One row per box becomes one per image."""
    boxes = (
        table["class_id"] + " 1 " + table["x_min"] + " " + table["y_min"] + " " + table["x_max"] + " " + table["y_max"]
    )
    joined = boxes.groupby(table[grader.id], sort=False).agg(" ".join)
    return pd.DataFrame({grader.id: joined.index.to_numpy(), targets[0]: joined.to_numpy()})


def _questions(grader: Grader, path: Path) -> Hidden:
    """Two rows for each question: the accepted long and short answers, separated by blanks."""
    if not path.is_file():
        raise Quarantine("fetch", f"no answers: there is no {path.name}; prepare it again")
    ids, cells = [], []
    with path.open(encoding="utf-8") as lines:
        for line in filter(str.strip, lines):
            question = json.loads(line)
            note = question["annotations"][0]
            spans = [f"{s['start_token']}:{s['end_token']}" for s in note["short_answers"]]
            yes_or_no = [note["yes_no_answer"]] if note["yes_no_answer"] != "NONE" else []
            long = note["long_answer"]
            ids += [f"{question['example_id']}_long", f"{question['example_id']}_short"]
            cells += [f"{long['start_token']}:{long['end_token']}" if long["start_token"] != -1 else ""]
            cells += [" ".join([*spans, *yes_or_no])]
    table = pd.DataFrame({grader.id: np.array(ids, object), grader.targets[0]: np.array(cells, object)})
    return Hidden(table, grader.id, tuple(grader.targets), (), path.name)


_SHAPES: Mapping[str, Callable[[Grader, pd.DataFrame, Sequence[str]], pd.DataFrame]] = {
    "jigsaw-toxic-comment-classification-challenge": _toxic,
    "jigsaw-unintended-bias-in-toxicity-classification": _identities,
    "rsna-2022-cervical-spine-fracture-detection": _fractures,
    "osic-pulmonary-fibrosis-progression": _lungs,
    "ventilator-pressure-prediction": _breaths,
    "kuzushiji-recognition": _characters,
    "vinbigdata-chest-xray-abnormalities-detection": _chests,
}
# Columns of the answers where they are not the id and the targets.
_NEEDED: Mapping[str, set[str]] = {
    "jigsaw-unintended-bias-in-toxicity-classification": {"id", "toxicity", *_IDENTITIES},
    "osic-pulmonary-fibrosis-progression": {"Patient_Week", "FVC", "Patient"},
    "ventilator-pressure-prediction": {"id", "pressure", "u_out"},
    "vinbigdata-chest-xray-abnormalities-detection": {"image_id", "class_id", "x_min", "y_min", "x_max", "y_max"},
}
