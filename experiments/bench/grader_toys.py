"""Random well-formed answers and submissions for MLE-bench's graders, and the same as our metrics read them.

A toy holds what a grader is given (two tables, or the answers as a list) and what we are given: cells of the answers in
id order, and predictions as arrays. Submissions are shuffled where the grader aligns rows by id.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from mlexpert.factory.mlebench_metrics import DIGITS, Grader
from mlexpert.tasks.metrics import METRICS, Needs, read

ROWS = 24
WORDS = ("red", "green", "blue", "gold", "grey", "pink")


@dataclass(frozen=True)
class Toy:
    answers: Any  # what the grader is given
    submission: pd.DataFrame
    targets: Sequence[Sequence[str]]  # what we are given
    predictions: Any
    labels: tuple[str, ...] = ()
    beside: Mapping[str, Any] = field(default_factory=dict)


def listed(spec: tuple[str, ...] | str, package: str) -> tuple[str, ...]:
    """Names given, or as "module.NAME" of the grader's package."""
    if not isinstance(spec, str):
        return spec
    module, name = spec.split(".")
    return tuple(getattr(importlib.import_module(f"{package}.{module}"), name))


def ids(rows: int = ROWS) -> list[str]:
    return [f"id_{row:03d}" for row in range(rows)]


def cells(values: Any) -> list[str]:
    return [value if isinstance(value, str) else repr(value) for value in np.asarray(values, dtype=object).tolist()]


def frame(grader: Grader, columns: Mapping[str, Any], rows: int = ROWS) -> pd.DataFrame:
    return pd.DataFrame({grader.id: ids(rows), **columns})


# ---------------------------------------------------------------- labels and probabilities
def labelled(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    labels = listed(grader.labels, package)
    truth_R = rng.permutation(np.r_[np.arange(len(labels)), rng.integers(0, len(labels), ROWS - len(labels))])
    guess_R = np.where(rng.random(ROWS) < 0.5, truth_R, rng.integers(0, len(labels), ROWS))
    typed = [_typed(label) for label in labels]
    target = grader.targets[0]
    tables = [frame(grader, {target: [typed[code] for code in codes]}) for codes in (truth_R, guess_R)]
    return Toy(tables[0], tables[1], [[labels[code] for code in truth_R]], guess_R, labels)


def _typed(label: str) -> Any:
    return int(label) if label.isdecimal() else {"True": True, "False": False}.get(label, label)


def rated(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    low, high = grader.settings["low"], grader.settings["high"]
    truth_R = rng.permutation(np.r_[np.arange(low, high + 1), rng.integers(low, high + 1, ROWS - high + low - 1)])
    guess_R = np.clip(truth_R + rng.integers(-1, 2, ROWS), low, high)
    tables = [frame(grader, {grader.targets[0]: values}) for values in (truth_R, guess_R)]
    return Toy(tables[0], tables[1], [cells(truth_R)], guess_R.astype(float))


def scored(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    """Classes 0 and 1 in every target column, shares with ties as predictions."""
    names = listed(grader.targets, package)
    truth_RxT = np.stack([_two_classes(rng, ROWS) for _ in names], axis=1)
    shares_RxT = rng.integers(1, 40, truth_RxT.shape) / 40.0
    tables = [frame(grader, dict(zip(names, values.T, strict=True))) for values in (truth_RxT, shares_RxT)]
    predictions = shares_RxT[:, 0] if len(names) == 1 else shares_RxT
    return Toy(tables[0], tables[1], [cells(column) for column in truth_RxT.T], predictions, DIGITS)


def _two_classes(rng: np.random.Generator, rows: int) -> np.ndarray:
    return rng.permutation(np.r_[0, 1, rng.integers(0, 2, rows - 2)])


def shared_out(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    """Rows of probabilities, answers one hot."""
    if not grader.onehot:
        return scored(grader, package, rng)
    labels = listed(grader.labels, package)
    truth_R = rng.integers(0, len(labels), ROWS)
    shares_RxC = rng.dirichlet(np.ones(len(labels)), ROWS)
    onehot = frame(grader, dict(zip(labels, np.eye(len(labels), dtype=int)[truth_R].T, strict=True)))
    table = frame(grader, dict(zip(labels, shares_RxC.T, strict=True)))
    return Toy(onehot, table, [[labels[code] for code in truth_R]], shares_RxC, labels)


def voted(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    names = listed(grader.targets, package)
    votes_RxC = (
        rng.integers(0, 5, (ROWS, len(names))) + np.eye(len(names), dtype=int)[rng.integers(0, len(names), ROWS)]
    )
    shares_RxC = rng.dirichlet(np.ones(len(names)), ROWS)
    tables = [frame(grader, dict(zip(names, values.T, strict=True))) for values in (votes_RxC, shares_RxC)]
    return Toy(tables[0], tables[1], [cells(column) for column in votes_RxC.T], shares_RxC)


def with_padding(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    """Rows of -1 do not count."""
    toy = scored(grader, package, rng)
    keep_R = np.arange(ROWS) % 6 != 5
    while any(len(set(toy.answers.loc[keep_R, name])) < 2 for name in grader.targets):
        toy = scored(grader, package, rng)
    toy.answers.loc[~keep_R, list(grader.targets)] = -1
    targets = [cells(toy.answers[name]) for name in grader.targets]
    return Toy(toy.answers, toy.submission, targets, toy.predictions, DIGITS, {"keep": cells(keep_R)})


def fractures(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    kinds = ("patient_overall", "C1", "C2", "C3", "C4", "C5", "C6", "C7")
    studies = [f"study{at}" for at in range(4)]
    truth_R, shares_R = rng.integers(0, 2, 32), rng.integers(1, 40, 32) / 40.0
    weight_R = np.tile([7.0, *[1.0] * 7], 4) * (1 + truth_R)
    table = pd.DataFrame({"row_id": [f"{study}_{kind}" for study in studies for kind in kinds]})
    beside = {"weight": cells(weight_R), "group": [study for study in studies for _ in kinds]}
    return Toy(
        table.assign(fractured=truth_R), table.assign(fractured=shares_R), [cells(truth_R)], shares_R, DIGITS, beside
    )


def identities(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    """Predictions of 0 and 1 only: what is left of them after the grader's cut."""
    names = ("male", "female", "homosexual_gay_or_lesbian", "christian", "jewish", "muslim", "black", "white",
             "psychiatric_or_mental_illness")  # fmt: skip
    rows = 200
    truth_R, guess_R = rng.integers(0, 2, rows), rng.integers(0, 2, rows)
    inside_RxI = rng.integers(0, 2, (rows, len(names)))
    answers = frame(grader, {"toxicity": truth_R, **dict(zip(names, inside_RxI.T, strict=True))}, rows)
    beside = {"identity": [cells(column) for column in inside_RxI.T]}
    submission = frame(grader, {"prediction": guess_R.astype(float)}, rows)
    return Toy(answers, submission, [cells(truth_R)], guess_R.astype(float), DIGITS, beside)


# ---------------------------------------------------------------- numbers
def numbers(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    names = listed(grader.targets, package)
    low = 1.0 if grader.competition.startswith("petfinder") else -20.0
    truth_RxT = rng.uniform(max(low, 0.0) if grader.metric == "rmsle" else low, 100.0, (ROWS, len(names))).round(2)
    guess_RxT = rng.uniform(max(low, 0.0) if grader.metric == "rmsle" else low, 100.0, truth_RxT.shape).round(2)
    tables = [frame(grader, dict(zip(names, values.T, strict=True))) for values in (truth_RxT, guess_RxT)]
    predictions = guess_RxT[:, 0] if len(names) == 1 else guess_RxT
    return Toy(tables[0], tables[1], [cells(column) for column in truth_RxT.T], predictions)


def kept(column: str, counts: Any, stays: Any) -> Callable[..., Toy]:
    """Numbers of which those count where `column` is `counts`."""

    def make(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
        toy = numbers(grader, package, rng)
        keep_R = np.arange(ROWS) % 3 != 1
        answers = toy.answers.assign(**{column: np.where(keep_R, counts, stays)})
        submission = toy.submission.assign(deg_pH10=0.0, deg_50C=0.0)
        return Toy(answers, submission, toy.targets, toy.predictions, (), {"keep": cells(keep_R)})

    return make


def by_type(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    toy = numbers(grader, package, rng)
    types = [f"t{at % 3}" for at in range(ROWS)]
    return Toy(toy.answers.assign(type=types), toy.submission, toy.targets, toy.predictions, (), {"group": types})


def trips(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    trip = [f"trip{at // 8}" for at in range(ROWS)]
    truth_Rx2 = np.stack([rng.uniform(-60, 60, ROWS), rng.uniform(-170, 170, ROWS)], axis=1)
    guess_Rx2 = truth_Rx2 + rng.normal(0, 1e-4, truth_Rx2.shape)
    key = pd.DataFrame({"tripId": trip, "UnixTimeMillis": np.arange(ROWS)})
    tables = [key.assign(LatitudeDegrees=v[:, 0], LongitudeDegrees=v[:, 1]) for v in (truth_Rx2, guess_Rx2)]
    return Toy(tables[0], tables[1], [cells(column) for column in truth_Rx2.T], guess_Rx2, (), {"group": trip})


def lungs(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    patients = [f"p{at // 6}" for at in range(ROWS)]
    weeks = np.concatenate([rng.permutation(np.arange(-2, 100))[:6] for _ in range(ROWS // 6)])
    truth_R, guess_R = rng.uniform(1000, 4000, ROWS).round(), rng.uniform(1000, 4000, ROWS).round()
    spread_R = rng.uniform(0, 500, ROWS).round()
    table = pd.DataFrame({"Patient_Week": [f"{p}_{w}" for p, w in zip(patients, weeks, strict=True)]})
    keep = [bool(w >= sorted(weeks[at // 6 * 6 : at // 6 * 6 + 6])[-3]) for at, w in enumerate(weeks)]
    answers = table.assign(FVC=truth_R, Patient=patients)
    submission = table.assign(FVC=guess_R, Confidence=spread_R)
    return Toy(answers, submission, [cells(truth_R)], np.stack([guess_R, spread_R], axis=1), (), {"keep": cells(keep)})


# ---------------------------------------------------------------- lists and texts
def words(rng: np.random.Generator, least: int, most: int, repeat: bool = True) -> str:
    return " ".join(rng.choice(WORDS, int(rng.integers(least, most + 1)), replace=repeat))


def written(grader: Grader, rng: np.random.Generator, truth: list[str], guess: list[str]) -> Toy:
    target = grader.targets[0]
    kind = METRICS[grader.metric].needs
    codes = {label: code for code, label in enumerate(grader.labels)}
    tables = [frame(grader, {target: texts}, len(truth)) for texts in (truth, guess)]
    labels = grader.labels if isinstance(grader.labels, tuple) else ()
    return Toy(tables[0], tables[1], [truth], read(kind, guess, codes), labels)


def ranked(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    return written(grader, rng, [words(rng, 1, 4, False) for _ in range(ROWS)], [words(rng, 1, 8) for _ in range(ROWS)])


def ordered(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    truth = [words(rng, 2, 6, False) for _ in range(ROWS)]
    return written(grader, rng, truth, [" ".join(rng.permutation(text.split())) for text in truth])


def tagged(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    def tags(least: int) -> str:
        return " ".join(rng.choice(grader.labels, int(rng.integers(least, len(grader.labels))), replace=False))

    truth = [*grader.labels, *(tags(1) for _ in range(ROWS - len(grader.labels)))]
    return written(grader, rng, truth, [tags(0) for _ in range(ROWS)])


def texts(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    truth = [words(rng, 1, 5) for _ in range(ROWS)]
    guess = [text if rng.random() < 0.4 else words(rng, 1, 5).title() for text in truth]
    return written(grader, rng, truth, guess)


def gestures(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    def numbers_text() -> str:
        return " ".join(map(str, rng.integers(1, 21, int(rng.integers(1, 9)))))

    return written(grader, rng, [numbers_text() for _ in range(ROWS)], [numbers_text() for _ in range(ROWS)])


_ENDS = ("start_token", "end_token")


def spans(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    """Answers as JSON lines, two rows of a submission for each."""

    def span() -> tuple[int, int]:
        start = int(rng.integers(0, 3))
        return start, start + int(rng.integers(1, 3))

    answers, names, truth = [], [], []
    for example in range(ROWS):
        long, shorts = (span() if rng.random() < 0.7 else (-1, -1)), [span() for _ in range(int(rng.integers(0, 3)))]
        verdict = str(rng.choice(["YES", "NO", "NONE"]))
        note = {
            "yes_no_answer": verdict,
            "long_answer": dict(zip(_ENDS, long, strict=True)),
            "short_answers": [dict(zip(_ENDS, each, strict=True)) for each in shorts],
        }
        answers.append({"example_id": f"e{example}", "annotations": [note]})
        names += [f"e{example}_long", f"e{example}_short"]
        truth.append(f"{long[0]}:{long[1]}" if long[0] >= 0 else "")
        truth.append(" ".join([*(f"{a}:{b}" for a, b in shorts), *([verdict] if verdict != "NONE" else [])]))
    guess = [str(rng.choice([*(text.split() or [""]), "", "0:1"])) for text in truth]
    submission = pd.DataFrame({grader.id: names, grader.targets[0]: guess})
    return Toy(answers, submission, [truth], read(Needs.TEXT, guess))
