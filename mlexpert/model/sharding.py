"""The mesh, and which of its axes split which axes of weights and tokens.

Mesh axes, slowest links first:
    data      tokens; weights are whole on each side of it
    fsdp      tokens and weights; a layer's weights are gathered when its turn comes
    sequence  tokens, each row cut into stretches, and weights
    expert    tokens, weights, and the experts: rows travel to theirs in every sparse layer (expert_parallel.py)

So every axis splits tokens, and all but `data` split weights and optimizer state. One table says which logical axis of
a weight goes to which mesh axes; a weight that would use a mesh axis twice is an error, as is a size that does not come
out even. What has no entry is whole everywhere, and so are vectors, too small to be worth a gather.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mlexpert.model.config import ModelConfig
from mlexpert.model.parallel import Parallel
from mlexpert.model.params import declare
from mlexpert.model.weights import Params, Weight

AXES = ("data", "fsdp", "sequence", "expert")
ROWS = ("data", "fsdp", "expert")  # of a batch; its positions are split over "sequence"

# An expert's matrices are split over experts first; all others have that axis free for their rows.
TABLE: Mapping[str, tuple[str, ...]] = {"model": ("fsdp", "expert", "sequence")}
EXPERT_TABLE: Mapping[str, tuple[str, ...]] = {"expert": ("expert",), "model": ("fsdp", "sequence")}


class MeshError(ValueError):
    """A mesh does not suit the devices, the model or the batch; the message says what would."""


@dataclass(frozen=True)
class MeshShape:
    """Devices along each axis; their product is the number of devices."""

    data: int = 1
    fsdp: int = 1
    sequence: int = 1
    expert: int = 1

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.data, self.fsdp, self.sequence, self.expert)

    @property
    def devices(self) -> int:
        return math.prod(self.sizes)

    @property
    def row_holders(self) -> int:
        """Devices that hold different rows of a batch."""
        return math.prod(getattr(self, axis) for axis in ROWS)

    def __str__(self) -> str:
        return " ".join(f"{axis}={n}" for axis, n in zip(AXES, self.sizes, strict=True) if n > 1) or "one device"


def make_mesh(shape: MeshShape, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh of the given devices, or of all there are. Raises MeshError when their number differs."""
    devices = jax.devices() if devices is None else devices
    if len(devices) != shape.devices:
        raise MeshError(f"mesh {shape} needs {shape.devices} devices, there are {len(devices)}")
    return Mesh(np.asarray(devices).reshape(shape.sizes), AXES)


def shape_of(mesh: Mesh) -> MeshShape:
    return MeshShape(**{axis: mesh.shape[axis] for axis in AXES})


def parallel(config: ModelConfig, shape: MeshShape, **choices: Any) -> Parallel:
    """What a device of the mesh has to know; `choices` are fields of `Parallel`. Raises MeshError."""
    wide = [axis for axis in AXES if getattr(shape, axis) > 1]
    return Parallel(
        tokens=tuple(wide),
        sequence="sequence" if "sequence" in wide else "",
        expert="expert" if "expert" in wide and config.sparse else "",
        gathers=_gathers(config, shape),
        **choices,
    )


def specs(config: ModelConfig, shape: MeshShape) -> Params:
    """Tree like the parameters: how each weight is split. Raises MeshError naming the weight that does not come out."""
    paths, tree = jax.tree_util.tree_flatten_with_path(declare(config))
    return jax.tree_util.tree_unflatten(tree, [spec(w, shape, jax.tree_util.keystr(path)) for path, w in paths])


def _gathers(config: ModelConfig, shape: MeshShape) -> Params:
    """As `specs`, but experts stay where they are."""

    def but_experts(weight: Weight, split: PartitionSpec) -> PartitionSpec:
        kept = (None if axis == "expert" else entry for axis, entry in zip(weight.axes, split, strict=True))
        return PartitionSpec(*kept)

    return jax.tree.map(but_experts, declare(config), specs(config, shape))


def spec(weight: Weight, shape: MeshShape, name: str) -> PartitionSpec:
    """How one weight is split; axes of one device are left out."""
    if len([axis for axis in weight.axes if axis != "layer"]) < 2:
        return PartitionSpec(*[None] * len(weight.axes))
    table = EXPERT_TABLE if "expert" in weight.axes else TABLE
    entries: list[Any] = []
    for size, logical in zip(weight.shape, weight.axes, strict=True):
        axes = tuple(axis for axis in table.get(logical, ()) if getattr(shape, axis) > 1)
        n = math.prod(getattr(shape, axis) for axis in axes)
        if size % n:
            raise MeshError(
                f"{name}: its {logical!r} axis of {size} does not divide by {n} ({' x '.join(axes)}): choose a mesh "
                f"whose {', '.join(axes)} multiply to a divisor of {size}"
            )
        entries.append(axes[0] if len(axes) == 1 else axes or None)
    return _without_double_use(PartitionSpec(*entries), name)


def axes_of(spec: PartitionSpec) -> list[str]:
    """The mesh axes that split an array, dimension after dimension."""
    return [axis for entry in spec if entry for axis in ((entry,) if isinstance(entry, str) else entry)]


def _without_double_use(found: PartitionSpec, name: str) -> PartitionSpec:
    used = axes_of(found)
    doubled = sorted({axis for axis in used if used.count(axis) > 1})
    if doubled:
        raise MeshError(f"{name} would be split twice over mesh axis {doubled[0]!r}: {found}; change the table")
    return found


def shardings(config: ModelConfig, mesh: Mesh) -> Params:
    """Tree like the parameters, of `NamedSharding`."""
    return jax.tree.map(lambda each: NamedSharding(mesh, each), specs(config, shape_of(mesh)))


def check_rows(shape: MeshShape, rows: int, length: int) -> None:
    """Raises MeshError when rows or positions of a batch do not come out even."""
    n = shape.row_holders
    if rows % n or length % shape.sequence:
        raise MeshError(
            f"mesh {shape} splits rows over {n} and positions over {shape.sequence}: "
            f"{rows} rows of {length} positions do not divide; take rows in multiples of {n} (rows, rows_per_micro), "
            f"positions in multiples of {shape.sequence} (seq_len, row_length)"
        )
