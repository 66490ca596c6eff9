"""Recorded series, each with a class: one row per series, one column per step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.pins import Pin
from mlexpert.factory.classic.source import DATA, TEST, TRAIN, Make, Source, packaged
from mlexpert.factory.classic.tables import Frame

WINDOW = 100  # steps of the watch's recordings in one row: two seconds
EXERCISES = {
    "PEN": "pendulum", "ABD": "abduction", "FEL": "forward_elevation", "IR": "internal_rotation",
    "ER": "external_rotation", "TRAP": "trapezius_extension", "ROW": "upright_row",
}  # fmt: skip


def parse(text: str) -> tuple[list[list[list[str]]], list[str]]:
    """A .ts file: for every series its channels of values, and its class. Raises ValueError without an @data line."""
    lines = [line.strip() for line in text.splitlines()]
    starts = next((at for at, line in enumerate(lines) if line.lower() == "@data"), None)
    if starts is None:
        raise ValueError("no @data line: this is no .ts file")
    rows = [line.split(":") for line in lines[starts + 1 :] if line and not line.startswith("#")]
    return [[channel.split(",") for channel in row[:-1]] for row in rows], [row[-1] for row in rows]


def _recorded(pin: Pin, place: str, target: str, names: dict[str, str]) -> Make:
    """A source with train and test of its own; `place` names the file with TRAIN or TEST for `{}`."""

    def make(shelf, folder: Path) -> None:
        sides = [parse(wheels.read(shelf, pin, place.format(side)).decode()) for side in ("TRAIN", "TEST")]
        longest = max(len(channel) for series, _ in sides for each in series for channel in each)
        for (series, classes), path in zip(sides, (TRAIN, TEST), strict=True):
            channels = list(zip(*series, strict=True))
            prefixes = ["t"] if len(channels) == 1 else [f"c{at:02d}_t" for at in range(1, len(channels) + 1)]
            parts = [_padded(values, longest, prefix) for values, prefix in zip(channels, prefixes, strict=True)]
            target_column = pd.DataFrame({target: [names.get(name, name) for name in classes]})
            tables.write(pd.concat([*parts, target_column], axis=1), folder / path)

    return make


def _padded(values_NT, longest: int, prefix: str) -> Frame:
    return tables.wide([[*values, *[""] * (longest - len(values))] for values in values_NT], prefix)


def _watch(shelf, folder: Path) -> None:
    """Every second window of each recording; what is left at its end is dropped."""
    found = np.load(tables.unpickled(shelf, pins.SEGLEARN, "seglearn/data/watch_dataset.npy", ".npz"))
    labels = [str(found[f"y_labels.{at}"]) for at in range(len(EXERCISES))]
    axes = [str(found[f"X_labels.{at}"]) for at in range(6)]
    names = [f"{axis}_t{step:02d}" for step in range(WINDOW) for axis in axes]
    rows, who, what = [], [], []
    for at, (kind, subject) in enumerate(zip(found["y"], found["subject"], strict=True)):
        recording = found[f"X.{at}"]
        for start in range(0, len(recording) - WINDOW + 1, 2 * WINDOW):
            rows.append([f"{value:.4g}" for value in recording[start : start + WINDOW].ravel()])
            who.append(f"s{int(subject):02d}")
            what.append(EXERCISES[labels[int(kind)]])
    table = pd.DataFrame(rows, columns=pd.Index(names), dtype=object)
    tables.write(table.assign(subject=who, exercise=what), folder / DATA)


def _archive(name: str, target: str, names: dict[str, str], pin: Pin, package: str, **plan) -> Source:
    """A data set of the UCR and UEA archives."""
    return packaged(
        _recorded(pin, f"{package}/datasets/data/{name}/{name}_{{}}.ts", target, names),
        pin,
        source=f"{name} (UCR and UEA archives of time series)",
        url=f"https://www.timeseriesclassification.com/description.php?Dataset={name}",
        licence="BSD-3-Clause (the package); the archive asks to be cited",
        redistributable=True,
        train=TRAIN,
        test=TEST,
        recipe="ready",
        distinct=True,
        modality="series",
        target_columns=(target,),
        **plan,
    )


SOURCES = (
    _archive(
        "OSULeaf",
        "species",
        {
            "1": "acer_circinatum",
            "2": "acer_glabrum",
            "3": "acer_macrophyllum",
            "4": "acer_negundo",
            "5": "quercus_garryana",
            "6": "quercus_kelloggii",
        },
        pins.AEON,
        "aeon",
        source_dataset="osu-leaf",
        id="leaf-outlines",
        domain="botany",
        metric="macro_f1",
    ),
    _archive(
        "ItalyPowerDemand",
        "season",
        {"1": "october_to_march", "2": "april_to_september"},
        pins.AEON,
        "aeon",
        source_dataset="italy-power-demand",
        id="power-days",
        domain="energy",
        metric="accuracy",
    ),
    _archive(
        "JapaneseVowels",
        "speaker",
        {},
        pins.AEON,
        "aeon",
        source_dataset="japanese-vowels",
        id="vowel-speakers",
        domain="speech",
        metric="accuracy",
    ),
    _archive(
        "ACSF1",
        "appliance",
        {},
        pins.AEON,
        "aeon",
        source_dataset="acs-f1",
        id="appliance-signatures",
        domain="energy",
        metric="accuracy",
    ),
    _archive(
        "PLAID",
        "appliance",
        {},
        pins.SKTIME,
        "sktime",
        source_dataset="plaid",
        id="appliance-currents",
        domain="energy",
        metric="macro_f1",
    ),
    _archive(
        "ArrowHead",
        "kind",
        {"0": "avonlea", "1": "clovis", "2": "mix"},
        pins.AEON,
        "aeon",
        source_dataset="arrow-head",
        id="arrowheads",
        domain="archaeology",
        metric="accuracy",
    ),
    packaged(
        _watch,
        pins.SEGLEARN,
        source="watch_dataset (shoulder exercises)",
        url="https://github.com/dmbee/seglearn",
        licence="BSD-3-Clause",
        redistributable=True,
        source_dataset="seglearn-watch",
        id="watch-exercises",
        domain="health",
        modality="series",
        target_columns=("exercise",),
        metric="macro_f1",
        recipe="grouped",
        group_column="subject",
        test_share=0.3,
        seed=111,
    ),
)
