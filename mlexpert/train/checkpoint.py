"""One checkpoint = one folder `step_00000012/` = arrays (Orbax on TensorStore) and books (JSON), all or nothing.

What to restore from, in this order:
  1. the newest complete checkpoint in the folder;
  2. nothing: `restore_latest` returns None and the run starts afresh.
A checkpoint is complete when it has its final name: it is written under `*.partial`, flushed to disk and renamed, so a
process killed at any moment leaves at worst a `*.partial` folder: reported, ignored and removed by the next save.
Arrays or books of another shape, dtype or format are an error, never a guess. One run writes a folder at a time; if it
has several processes, each calls `save` and writes its own arrays, and the first alone touches the rest.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

FORMAT = 1
_log = logging.getLogger(__name__)


class CheckpointError(RuntimeError):
    """A checkpoint exists but cannot be used; the message says which and what to do."""


def save(folder: Path, step: int, tree: Any, books: Mapping[str, Any], keep: int = 3) -> Path:
    """Writes `tree` (arrays) and `books` (JSON-able: buffer, data position, clocks) as one item; keeps the last `keep`.

    Returns once everything is on disk.

    Raises:
      CheckpointError: this step is already saved, or `books` cannot be JSON without loss (a NaN, an array, an object).
    """
    folder = Path(folder).absolute()
    final = folder / f"step_{step:08d}"
    if final.exists():
        raise CheckpointError(f"{final} exists: a run saves a step once (see `steps`)")
    text = _encode({"format": FORMAT, "step": step, "leaves": _leaves(tree), "books": books}, final)
    _all_here("looked")  # before the folder can change
    partial = folder / f"{final.name}.partial"
    if jax.process_index() == 0:
        _make_room(folder, partial)
    _all_here("made")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(partial / "arrays", tree)
        checkpointer.wait_until_finished()
    _all_here("wrote")
    if jax.process_index() == 0:
        _finish(folder, partial, final, text, keep)
    _all_here("done")
    return final


def _make_room(folder: Path, partial: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.partial"):
        shutil.rmtree(leftover)
    partial.mkdir()


def _finish(folder: Path, partial: Path, final: Path, text: str, keep: int) -> None:
    with open(partial / "books.json", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(final)
    _flush_folder(folder)
    for old in steps(folder)[:-keep]:
        _remove(folder / f"step_{old:08d}")


def _all_here(what: str) -> None:
    """Waits for the other processes of the run, if there are any."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(f"checkpoint {what}")


def steps(folder: Path) -> list[int]:
    """Steps of the complete checkpoints in `folder`, oldest first."""
    return sorted(int(path.name[5:]) for path in Path(folder).glob("step_" + "[0-9]" * 8))


def restore_latest(folder: Path, like: Any) -> tuple[int, Any, dict[str, Any]] | None:
    """(step, tree, books) of the newest complete checkpoint, or None if there is none.

    `like` is a tree of arrays or `jax.ShapeDtypeStruct`: shapes and dtypes must agree, and arrays come back on the
    shardings it names (default device where it names none).

    Raises:
      CheckpointError: the newest checkpoint was written in another format, for other shapes, or cannot be read.
    """
    folder = Path(folder).absolute()
    for partial in sorted(folder.glob("*.partial")):
        _log.warning("ignoring half-written checkpoint %s", partial)
    complete = steps(folder)
    if not complete:
        return None
    path = folder / f"step_{complete[-1]:08d}"
    record = _read(path)
    if record["format"] != FORMAT:
        raise CheckpointError(f"{path} has format {record['format']}, this program reads {FORMAT}: use another folder")
    _compare(path, record["leaves"], _leaves(like))
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            tree = checkpointer.restore(path / "arrays", jax.tree.map(_abstract, like))
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: arrays cannot be read ({error}): remove it to use the one before") from error
    return record["step"], tree, record["books"]


def _encode(record: dict[str, Any], path: Path) -> str:
    try:
        return json.dumps(record, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the books are not plain finite JSON ({error})") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads((path / "books.json").read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: books cannot be read ({error}): remove it to use the one before") from error


def _leaves(tree: Any) -> dict[str, list[Any]]:
    """Path -> [shape, dtype] of every array."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): [list(np.shape(leaf)), str(np.dtype(leaf.dtype))] for path, leaf in flat}


def _compare(path: Path, saved: dict[str, list[Any]], wanted: dict[str, list[Any]]) -> None:
    names = sorted(saved.keys() | wanted.keys())
    differences = [
        f"{name}: saved {saved.get(name, 'nothing')}, wanted {wanted.get(name, 'nothing')}"
        for name in names
        if saved.get(name) != wanted.get(name)
    ]
    if differences:
        shown = "; ".join(differences[:3])
        raise CheckpointError(
            f"{path} is of another model or optimizer ({len(differences)} of {len(names)} arrays differ: {shown}): "
            "restore with the configuration it was written with, or use another folder"
        )


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = getattr(leaf, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Renamed first: a kill in the middle of the removal must not leave a folder that looks complete."""
    doomed = path.with_name(f"{path.name}.partial")
    path.rename(doomed)
    shutil.rmtree(doomed)
