"""Names of columns and domains. Invariant: a held-out name pair or domain never occurs in training material.

A column is `first_second`. Which split owns a pair is decided by a stable hash of the pair alone, so training
tasks, training documents and held-out tasks can be drawn independently and still never share a pair.
"""

from __future__ import annotations

import zlib
from typing import Literal

import numpy as np

Split = Literal["train", "held_out"]
SPLITS: tuple[Split, ...] = ("train", "held_out")
HELD_OUT_ONE_IN = 4

FIRST_WORDS = """
    soil wind rain crop barn seed leaf root pond river lake sand clay salt iron zinc coal wood pine oak
    glass steel brick pipe pump valve motor gear belt crane truck cargo dock ship hull sail port rail track train
    route stop bus road lane bridge tunnel gate wall roof floor room bed ward nurse dose pulse blood bone heart lung
    skin brain gene cell virus drug pill lab test score class tutor exam page book print ink shop shelf cart price
    order brand tax loan bank bond stock fund trade risk claim fee bill call voice radio mast node disk cache core
    chip fan coil cable fuse grid solar cloud storm snow ice heat fire smoke dust noise light lamp laser lens film
    game team goal race fish egg milk beef bean rice corn wheat
"""
SECOND_WORDS = """
    depth speed mass count width level rate age size load flow temp score index share reach gap tone force power
    length height weight area volume grade pitch delay price cost yield value
"""
FIRST = tuple(FIRST_WORDS.split())
NUMERIC_SECOND = tuple(SECOND_WORDS.split())
CATEGORY_SECOND = ("type", "brand", "zone", "team")
LEVELS = ("red", "blue", "north", "south", "old", "new", "hot", "cold", "left", "right")

DOMAINS: dict[Split, tuple[str, ...]] = {
    "train": (
        *("farming", "shipping", "hospital", "retail", "banking", "telecom", "railway", "mining", "forestry"),
        *("schools", "printing", "bakery", "energy", "housing", "insurance", "sports", "dairy", "chemistry"),
    ),
    "held_out": ("aviation", "fishery", "museum", "brewery", "astronomy", "postal", "tourism", "pottery"),
}


def split_of(name: str) -> Split:
    """The split that owns the column name `name`."""
    return "held_out" if zlib.crc32(name.encode()) % HELD_OUT_ONE_IN == 0 else "train"


def column(rng: np.random.Generator, split: Split, seconds: tuple[str, ...], taken: tuple[str, ...] = ()) -> str:
    """One name of `split` whose first word none of `taken` uses, so that a task's names cannot be confused."""
    used = {name.split("_")[0] for name in taken}
    while True:
        first, second = str(rng.choice(FIRST)), str(rng.choice(seconds))
        name = f"{first}_{second}"
        if first not in used and first != second and split_of(name) == split:
            return name
