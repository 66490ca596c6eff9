"""Named tensors on disk: read one at a time, written one shard at a time. Safetensors files of a Hugging Face folder.

Nothing is read before it is asked for, so a caller that hands each tensor on (to a device, to a leaf) never holds a
model twice. A folder is written beside its place and moved there when it is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import ml_dtypes  # makes numpy know bfloat16
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

FLOATS = ("F64", "F32", "F16", "BF16")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SHARD_BYTES = 2 << 30
INDEX = "model.safetensors.index.json"


class ModelFileError(ValueError):
    """A model's file is missing, damaged or of another kind; the message says which, what was expected, what to do."""


class Tensors(Protocol):
    """Tensors under their Hugging Face names."""

    where: str  # for messages

    def names(self) -> Collection[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def dtype(self, name: str) -> str:
        """As stored, in the words of safetensors: "F32", "BF16", ..."""
        ...

    def read(self, name: str, first: slice = slice(None)) -> np.ndarray:
        """The tensor, or the part `first` of its first axis."""
        ...


class Folder:
    """The safetensors files of a folder: those that its index names, else all of them."""

    def __init__(self, folder: Path):
        """Raises ModelFileError if a file is missing or damaged or if the index promises what no file has."""
        if not folder.is_dir():
            raise ModelFileError(f"{folder} is no folder; expected one with config.json and *.safetensors")
        self.where = str(folder)
        promised = _index(folder)
        paths = sorted({folder / file for file in promised.values()} or folder.glob("*.safetensors"))
        if not paths:
            raise ModelFileError(f"{folder} has no *.safetensors; files of other kinds (*.bin, *.pt) are not read")
        self._files = {name: file for path in paths for file in [_open(path)] for name in file.keys()}  # noqa: SIM118
        absent = sorted(promised.keys() - self._files.keys())
        if absent:
            raise ModelFileError(
                f"{folder / INDEX} names {absent[0]} in {promised[absent[0]]}, which has no such tensor"
            )

    def names(self) -> Collection[str]:
        return self._files.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._files[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        return self._files[name].get_slice(name).get_dtype()

    def read(self, name: str, first: slice = slice(None)) -> np.ndarray:
        file = self._files[name]
        return file.get_tensor(name) if first == slice(None) else file.get_slice(name)[first]


def _index(folder: Path) -> dict[str, str]:
    """Tensor name -> file name; empty without an index."""
    path = folder / INDEX
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(Path(file).name) for name, file in found.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelFileError(
            f"{path} is damaged ({error!r}): expected JSON with a weight_map; fetch it again"
        ) from error


def _open(path: Path) -> Any:
    if not path.is_file():
        raise ModelFileError(f"{path} does not exist, though the folder's {INDEX} names it; fetch it")
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size
        raise ModelFileError(
            f"{path} is damaged or cut short ({error}); it has {size:,} bytes{_expected_size(path)}; fetch it again"
        ) from error


def _expected_size(path: Path) -> str:
    """What the file's own header promises, as far as it can be read."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(min(length, 100 << 20)))
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
        return f", expected {8 + length + max(ends, default=0):,}"
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return ""


# ---------------------------------------------------------------- writing
@dataclass(frozen=True)
class Pending:
    """A tensor to be written, not made before its turn."""

    name: str
    n_bytes: int
    make: Callable[[], np.ndarray]


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A draft folder that becomes `folder` when the block ends well. Raises ModelFileError if `folder` exists."""
    if folder.exists():
        raise ModelFileError(f"{folder} exists already; choose another folder or remove it")
    draft = folder.with_name(f"{folder.name}.draft-{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write(folder: Path, tensors: Iterable[Pending], shard_bytes: int = SHARD_BYTES) -> None:
    """Writes model.safetensors, or shards of at most `shard_bytes` (one tensor at least) and their index."""
    shards = list(_shards(tensors, shard_bytes))
    where: dict[str, str] = {}
    for i, shard in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file({pending.name: pending.make() for pending in shard}, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)  # the library's own mode keeps an engine of another user out
        where |= {pending.name: file for pending in shard}
    if len(shards) > 1:
        total = sum(pending.n_bytes for shard in shards for pending in shard)
        (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=1))


def _shards(tensors: Iterable[Pending], shard_bytes: int) -> Iterator[list[Pending]]:
    shard: list[Pending] = []
    for pending in tensors:
        if shard and sum(other.n_bytes for other in shard) + pending.n_bytes > shard_bytes:
            yield shard
            shard = []
        shard.append(pending)
    if shard:
        yield shard
