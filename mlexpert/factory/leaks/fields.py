"""Fields that hold labels in the files of test items: keys of JSON, names in MATLAB and NumPy files, headers, tags.

Only places that belong to test are judged; in train a label is what one expects. Formats without a reader here are
searched for the target's name as bytes. Pickles are read as opcodes, never loaded.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from scipy.io import loadmat

from mlexpert.factory.leaks.archives import Entry, is_archive
from mlexpert.factory.leaks.view import View, Wanted
from mlexpert.factory.records import Finding
from mlexpert.tasks.task import DESCRIPTION, SAMPLE

CLEAR = {"label", "labels", "target", "targets", "answer", "answers", "groundtruth", "ytrue", "ytest", "gt"}
LIKELY = {"class", "classes", "classid", "category", "annotation", "annotations", "diagnosis", "y"}
MEDIA = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".wav", ".mp3", ".flac", ".ogg", ".mp4"}
TAGGED = {".xml", ".html", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".log", ".meta", ".arff"}
MAX_NODES = 20_000
_TEST = re.compile(r"(^|[^a-z])(test|eval|hidden|holdout|submission)", re.I)


def fields(view: View, entry: Entry, data: bytes, wanted: Wanted) -> Iterator[Finding]:
    """Findings in one file of the public folder or of an archive in it."""
    if entry.place in (SAMPLE, DESCRIPTION) or is_archive(entry.place) or not is_of_test(entry.place, wanted.ids):
        return
    targets = {_plain(name): name for name in view.task.target_columns}
    shown = {_plain(name): name for name in _names(entry, data, view.task.target_columns)}
    for plain, name in sorted(shown.items()):
        if plain in targets or plain in CLEAR:
            text = f"{entry.place} belongs to test and has a field {name!r}: remove it, with what it holds"
            yield Finding("archive_fields", "refuse", text, name)
        elif plain in LIKELY:
            yield Finding(
                "archive_fields", "warn", f"{entry.place} belongs to test and has a field {name!r}: look at it", name
            )


def is_of_test(place: str, test_ids: Collection[str]) -> bool:
    """Whether a path says that its file belongs to test: a folder or a name like "test", or a test id as its name."""
    name = PurePosixPath(place).name
    if "train" in place.lower() and not _TEST.search(place):
        return False  # items of train may be numbered like those of test
    return bool(_TEST.search(place)) or name.split(".")[0] in test_ids or PurePosixPath(name).stem in test_ids


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _names(entry: Entry, data: bytes, targets: Collection[str]) -> Iterator[str]:
    suffix = entry.suffix
    try:
        if suffix in (".json", ".jsonl", ".geojson"):
            yield from _json_keys(data)
        elif suffix == ".mat":
            yield from _mat_names(data, targets)
        elif suffix == ".npy":
            yield PurePosixPath(entry.place).stem  # in an .npz, the name of the array
            yield from np.load(io.BytesIO(data), allow_pickle=False).dtype.names or ()
        elif suffix in (".pkl", ".pickle"):
            yield from (value for _, value, _ in pickletools.genops(data) if isinstance(value, str))
        elif suffix in (".csv", ".tsv"):
            yield from re.split(r"[,;\t|]", data[:65536].decode("utf-8", "replace").splitlines()[0].replace('"', ""))
        elif suffix in TAGGED:
            text = data[: 2**20].decode("utf-8", "ignore" if len(data) > 2**20 else "strict")
            found = re.findall(r"([A-Za-z_]\w+)\"?\s*[:=]|<([A-Za-z_]\w+)", text)  # one letter is a coordinate there
            yield from (one or two for one, two in found)
        elif b"\0" in data[:4096]:
            yield from (name for name in targets if len(name) > 3 and name.encode() in data)
    except (ValueError, IndexError, EOFError, OSError, NotImplementedError, TypeError, KeyError):
        yield from (name for name in targets if len(name) > 3 and name.encode() in data)


def _json_keys(data: bytes) -> Iterator[str]:
    text = data.decode("utf-8", "replace")
    try:
        waiting: list[Any] = [json.loads(text)]
    except ValueError:
        waiting = [json.loads(line) for line in text.splitlines()[:50] if line.strip()]
    for _ in range(MAX_NODES):
        if not waiting:
            return
        node = waiting.pop()
        if isinstance(node, dict):
            yield from node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node[:20]


def _mat_names(data: bytes, targets: Collection[str]) -> Iterator[str]:
    """Variables and fields of structures. Version 7.3 is HDF5, whose names stand in the bytes as they are."""
    if data[:4] == b"\x89HDF" or b"MATLAB 7.3" in data[:128]:
        yield from (name for name in {*targets, "Labels", "labels", "Label", "label"} if name.encode() in data)
        return
    waiting: list[Any] = []
    for name, value in loadmat(io.BytesIO(data)).items():
        if not name.startswith("__"):
            yield name
            waiting.append(value)
    for _ in range(MAX_NODES):
        if not waiting:
            return
        node = waiting.pop()
        if isinstance(node, np.ndarray) and node.dtype.names:
            yield from node.dtype.names
            waiting += [item for name in node.dtype.names for item in node[name].ravel()[:20]]
        elif isinstance(node, np.ndarray) and node.dtype == object:
            waiting += list(node.ravel()[:20])
