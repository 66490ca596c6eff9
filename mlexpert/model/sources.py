"""Where a weight lies in a Hugging Face folder, and the way from there to our layout and back, as data.

One stored tensor holds one layer (one expert, if its name has `{expert}`) of one or several of our weights. Reading:

    stored tensor  -> seen as `view`  -> `part` of axis `axis`  -> unfolded  -> axes in `order`  = ours

Every step is a reshape, a slice or a transposition, so the way back exists and needs no second description: each weight
that shares a tensor fills its own part of it. Ours: input axes first, heads unfolded; theirs: [out, in], heads folded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Source:
    """`name` may hold {layer} and {expert}; `order[i]` is the place in the stored tensor of our axis i."""

    name: str
    stored: tuple[int, ...]  # shape on disk
    order: tuple[int, ...]
    view: tuple[int, ...] = ()  # empty: as stored
    axis: int = 0
    part: tuple[int, int] | None = None  # first and last + 1 along `axis`; None: all of it


def read(source: Source, shape: tuple[int, ...], stored: np.ndarray) -> np.ndarray:
    """Our array of `shape` (one layer, and one expert where the name has one) out of a stored tensor; a view of it
    wherever numpy can. Raises ValueError for another shape than the declared one."""
    if stored.shape != source.stored:
        raise ValueError(f"{source.name} has shape {list(stored.shape)}, expected {list(source.stored)}")
    return _select(source, stored).reshape(_unfolded(source, shape)).transpose(source.order)


def write(source: Source, ours: np.ndarray, into: np.ndarray) -> None:
    """Puts our array (one layer, one expert) where it belongs in a tensor of the stored shape; other parts are left."""
    part = _select(source, into)
    part[...] = ours.transpose(np.argsort(source.order)).reshape(part.shape)


def _select(source: Source, stored: np.ndarray) -> np.ndarray:
    seen = stored.reshape(source.view or source.stored)
    index = slice(None) if source.part is None else slice(*source.part)
    return seen[(slice(None),) * source.axis + (index,)]


def _unfolded(source: Source, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[i] for i in np.argsort(source.order))
