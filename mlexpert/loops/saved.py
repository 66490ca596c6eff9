"""Training states in checkpoints: what training changes is written, and nothing else.

Without adapters that is everything. With them (model/lora.py) it is the adapters and their optimizer state; the weights
that they adapt stay where they came from, a base policy's checkpoint or a model's own files, and the checkpoint knows
their checksum, so that adapters never meet other weights than those they were trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlexpert.model import lora
from mlexpert.rollout.weights import checksum
from mlexpert.train import checkpoint
from mlexpert.train.checkpoint import CheckpointError
from mlexpert.train.step import TrainState

FROZEN = "frozen"  # the entry of the books


def save(folder: Path, step: int, state: TrainState, books: Mapping[str, Any], keep: int = 3) -> None:
    """Raises CheckpointError as `checkpoint.save`."""
    trained, stays = lora.split(state.params)
    known = {FROZEN: checksum(stays)} if stays else {}
    checkpoint.save(folder, step, replace(state, params=trained), {**books, **known}, keep)


def restore(folder: Path, like: TrainState) -> tuple[int, TrainState, dict[str, Any]] | None:
    """(step, state, books) of the newest checkpoint, or None. Frozen weights are those of `like`, the very arrays; what
    is trained may be shapes.

    Raises CheckpointError as `checkpoint.restore_latest`, or if the adapters were trained on other weights.
    """
    trained, stays = lora.split(like.params)
    found = checkpoint.restore_latest(folder, replace(like, params=trained))
    if found is None:
        return None
    step, state, books = found
    if stays and books.pop(FROZEN) != checksum(stays):
        raise CheckpointError(
            f"{folder} holds adapters of other weights than these: restore with the model.load or the base policy that "
            "they were trained on, or use another folder"
        )
    return step, replace(state, params=lora.join(state.params, stays)), books
