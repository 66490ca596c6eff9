"""Tasks out of a MLE-Dojo data folder: <data>/<id>/data/{public,private}.

The metric comes from the first of these that says it:

    a map that the user writes (JSON: id -> {"metric", "settings", "id_column", "target_columns"})
    MLE-bench's map, where the competition is one of its and the answers have its columns
    the competition's metric.py, read as data (`mledojo_metric`)

Both human leaderboards lie beside the answers.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from mlexpert.factory.mlebench_answers import Hidden, hidden_of, in_order, labels_of_cells, one_label
from mlexpert.factory.mlebench_metrics import BY_NAME, DIGITS
from mlexpert.factory.mledojo_metric import Read, read_metric
from mlexpert.factory.prepared import (
    Prepared,
    competitions,
    heading,
    is_lfs_pointer,
    lay_out,
    lead_of,
    planned,
    sample_columns,
)
from mlexpert.factory.records import Lead, Origin, Quarantine, Raw, digest
from mlexpert.tasks.metrics import METRICS, Needs, number
from mlexpert.tasks.tables import TaskError, read_table
from mlexpert.tasks.task import SAMPLE

VERSION = "1"
_ANSWERS = "test_answer.csv"
_NOT_ADDITIVE = ("rmse", "rmsle", "rmspe", "medae")  # the mean over columns is not the value of all columns together


def origin(data: Path, checkout: Path | None = None, metrics: Path | None = None, only: Sequence[str] = ()) -> Origin:
    """One task for each competition in `data`; `checkout`: a working tree of MLE-Dojo, `metrics`: a map of metrics."""
    chosen = _chosen(metrics)

    def discover() -> list[Lead]:
        folders = competitions(data, only, "MLE-Dojo's preparation")
        return [lead_of("mle-dojo", folder, _home(folder) / "private") for folder in folders]

    def fetch(lead: Lead, folder: Path) -> Raw:
        return read_competition(Path(lead.where["folder"]), lead, folder, checkout, chosen)

    return Origin(discover, fetch, planned, f"{VERSION}:{digest(chosen)[:12]}")


def _chosen(metrics: Path | None) -> dict[str, Any]:
    if metrics is None:
        return {}
    try:
        chosen = json.loads(metrics.read_text(encoding="utf-8"))
        for name, entry in chosen.items():
            if entry["metric"] not in METRICS or entry.keys() - {"metric", "settings", "id_column", "target_columns"}:
                raise ValueError(f"{name!r} has an unknown metric or field")
        return chosen
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Quarantine("discover", f"{metrics} is no map of metrics ({error})") from error


def _home(folder: Path) -> Path:
    """Where public/ and private/ are: below `data`, as MLE-Dojo's preparation writes it, or in the folder itself."""
    return folder / "data" if (folder / "data").is_dir() else folder


def read_competition(source: Path, lead: Lead, folder: Path, checkout: Path | None, chosen: Mapping[str, Any]) -> Raw:
    """Raises Quarantine: not prepared, no answers, an open metric, or parts that do not fit together."""
    public, private = _home(source) / "public", _home(source) / "private"
    for path in (public / SAMPLE, private / _ANSWERS):
        if not path.is_file():
            raise Quarantine("fetch", f"{source.name} is not prepared: there is no {path.parent.name}/{path.name}; "
                             "run MLE-Dojo's preparation again")  # fmt: skip
    text = _text(source.name, public, checkout)
    asked = sample_columns(public / SAMPLE)
    hidden, metric, settings, onehot, told = _understood(source, private, asked, checkout, chosen)
    boards = {kind: _board(private / f"{kind}_leaderboard.csv") for kind in ("public", "private")}
    boards = {kind: scores for kind, scores in boards.items() if scores}
    title = heading(text, source.name)
    prepared = Prepared(
        source.name, title, public, public / SAMPLE, hidden, metric, settings, text, onehot, boards=boards
    )
    lay_out(prepared, folder / "files")
    teams = ", ".join(f"{kind} leaderboard of {len(scores)} teams" for kind, scores in boards.items())
    note = f"split by MLE-Dojo's own preparation; metric from {told}; {teams or 'no leaderboard'}"
    return Raw(lead.id, folder / "files", replace(lead.provenance, note=note), title, text)


def _text(name: str, public: Path, checkout: Path | None) -> str:
    places = [public / "description.txt", public / "description.md"]
    if checkout is not None:
        places.append(checkout / "mledojo" / "competitions" / name / "info" / "description.txt")
    for path in filter(Path.is_file, places):
        return path.read_text(encoding="utf-8-sig", errors="replace")
    raise Quarantine("fetch", f"{name} has no description.txt; prepare it again, or name a checkout of MLE-Dojo")


def _board(path: Path) -> list[str]:
    if not path.is_file() or is_lfs_pointer(path):
        return []
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [row["score"] for row in csv.DictReader(file) if math.isfinite(number(row.get("score") or ""))]


# ---------------------------------------------------------------- metric
Understood = tuple[Hidden, str, Mapping[str, Any], bool, str]


def _understood(
    source: Path, private: Path, sample: Sequence[str], checkout: Path | None, chosen: Mapping[str, Any]
) -> Understood:
    name = source.name
    if name in chosen:
        entry = chosen[name]
        read = Read(entry["metric"], entry.get("settings", {}))
        return _by_columns(read, private, sample, entry.get("id_column"), entry.get("target_columns"), "the map")
    if name in BY_NAME and not BY_NAME[name].refused:
        try:
            grader = BY_NAME[name]
            return hidden_of(grader, private, sample), grader.metric, grader.settings, grader.onehot, "MLE-bench's map"
        except Quarantine:
            pass  # its answers have other columns here, so it is another task
    return _by_columns(read_metric(_metric_source(source, checkout)), private, sample, None, None, "metric.py")


def _metric_source(source: Path, checkout: Path | None) -> str:
    places = [source / "utils" / "metric.py", source / "metric.py"]
    if checkout is not None:
        places.append(checkout / "mledojo" / "competitions" / source.name / "utils" / "metric.py")
    for path in filter(Path.is_file, places):
        return path.read_text(encoding="utf-8", errors="replace")
    raise Quarantine(
        "fetch", f"the metric of {source.name} is not known: name a checkout of MLE-Dojo, or a map of metrics"
    )


def _by_columns(
    read: Read, private: Path, sample: Sequence[str], id_column: str | None, targets: Sequence[str] | None, told: str
) -> Understood:
    """MLE-Dojo's own convention: the first column is the id, the named one or all others are targets."""
    try:
        table = read_table(private / _ANSWERS)
    except TaskError as error:
        raise Quarantine("fetch", f"the answers cannot be read: {error}") from error
    key = id_column or sample[0]
    others = [name for name in sample if name != key]
    wanted = list(targets or ([read.target] if read.target in others else others))
    if missing := [name for name in (key, *wanted) if name not in table]:
        raise Quarantine("fetch", f"{_ANSWERS} has no column {missing[0]!r}; it has {list(table)}")
    if len(wanted) > 1 and read.metric in _NOT_ADDITIVE and not (read.by_column or targets):
        raise Quarantine("fetch", f"metric.py leaves open whether {read.metric} is of each of the {len(wanted)} target "
                         "columns or of all values together; name the metric in the map of metrics")  # fmt: skip
    if read.metric == "logloss" and len(others) > 1 and set(others) <= set(table):
        wanted, labels = ["label"], tuple(others)
        truth = pd.DataFrame({key: table[key], "label": one_label(table, others, _ANSWERS)})
        hidden = Hidden(truth, key, ("label",), labels, _ANSWERS)
        return hidden, read.metric, read.settings, True, told
    kept, labels = _labelled(read.metric, table.loc[:, [key, *wanted]], wanted)
    hidden = Hidden(kept, key, tuple(wanted), labels, _ANSWERS)
    return hidden, read.metric, _completed(read, kept, wanted), False, told


def _labelled(metric: str, table: pd.DataFrame, targets: Sequence[str]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    needs = METRICS[metric].answers
    if needs not in (Needs.LABEL, Needs.LABELS):
        return table, ()
    found = {label for name in targets for label in labels_of_cells(needs, table[name])}
    if found <= {"0.0", "1.0", "0", "1"}:
        return table.assign(**{name: table[name].str.removesuffix(".0") for name in targets}), DIGITS
    return table, in_order(found)


def _completed(read: Read, table: pd.DataFrame, targets: Sequence[str]) -> Mapping[str, Any]:
    """The range of ratings, which metric.py leaves to the data, as the answers show it."""
    if read.metric != "qwk" or read.settings:
        return read.settings
    values = [float(cell) for cell in table[targets[0]]]
    return {"low": int(min(values)), "high": int(max(values)), "outside": "clip"}
