"""Hugging Face folders: weights in, leaf by leaf and sharded if asked, and weights out.

1. Every declared weight names where it is stored (sources.py). The whole folder is checked against the declaration
   before anything is read: missing and extra tensors, shapes, dtypes.
2. A leaf is made from the tensors of its layers and experts, one shard at a time: beside what is already on the
   devices the host holds at most one shard of one leaf.
3. Either layout of experts is read (one tensor an expert, or all in one), with or without the `language_model` prefix.
   The vision tower and the multi-token-prediction layers are left where they are: this project has no use for them.
4. Written is the layout of a text-only model with one tensor an expert, as `save_pretrained` does.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mlexpert.model import lora, sources
from mlexpert.model.config import ModelConfig
from mlexpert.model.hf_config import read_config, read_json, to_json
from mlexpert.model.params import declare
from mlexpert.model.sources import Source
from mlexpert.model.tensors import FLOATS, SHARD_BYTES, Folder, ModelFileError, Pending, Tensors, new_folder, write
from mlexpert.model.weights import Params, Weight

# Files that go with the weights from one folder to the next.
COMPANIONS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt"),
    *("added_tokens.json", "chat_template.jinja", "generation_config.json"),
)
TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
_LEFT_OUT = ("model.visual.", "visual.", "mtp.", "model.mtp.")
_PREFIX = "model.language_model."


def load(folder: Path, dtype: str = "", shardings: Params | None = None) -> tuple[ModelConfig, Params]:
    """The model in a folder, in its own dtype or in `dtype`; placed by a tree of shardings if one is given.

    Raises ModelFileError for a file that is missing, damaged or not what config.json says.
    """
    config = read_config(folder)
    config = replace(config, dtype=dtype) if dtype else config
    return config, load_params(config, Folder(folder), shardings)


def load_params(config: ModelConfig, tensors: Tensors, shardings: Params | None = None) -> Params:
    """The declared tree, read from `tensors`. Raises ModelFileError."""
    declared = declare(config)
    plan = _Plan(config, tensors, jax.tree.leaves(declared))
    if shardings is None:
        return jax.tree.map(lambda weight: jnp.asarray(plan.read(weight)), declared)
    return jax.tree.map(plan.place, declared, shardings)


class _Plan:
    """Which stored tensor serves what. Made, it has checked everything that can be checked without reading."""

    def __init__(self, config: ModelConfig, tensors: Tensors, weights: Collection[Weight]):
        self._tensors = tensors
        self._stored = _by_plain_name(tensors)
        used = {name for weight in weights for name in self._check(weight)}
        extra = sorted(self._stored.keys() - used)
        if config.tied_embedding and "lm_head.weight" in extra:
            self._check_tied()
            extra.remove("lm_head.weight")
        if extra:
            raise ModelFileError(
                f"{tensors.where} has {len(extra)} tensors that the {config.family} model of its config.json does not "
                f"have, the first is {self._stored[extra[0]]}; is config.json the one of these weights?"
            )

    def read(self, weight: Weight, index: tuple[slice, ...] = ()) -> np.ndarray:
        """The part `index` of a leaf, in the leaf's own dtype."""
        index = (*index, *[slice(None)] * (len(weight.shape) - len(index)))
        if not weight.layers:
            return np.ascontiguousarray(self._one(weight, 0, index), dtype=jnp.dtype(weight.dtype))
        layers = weight.layers[index[0]]
        shape = tuple(len(range(*cut.indices(size))) for cut, size in zip(index, weight.shape, strict=True))
        leaf = np.empty(shape, jnp.dtype(weight.dtype))
        for i, layer in enumerate(layers):
            self._fill(weight, layer, index[1:], leaf[i])
        return leaf

    def place(self, weight: Weight, sharding: jax.sharding.Sharding) -> jax.Array:
        """The leaf on its devices; devices that hold the same part share one reading."""
        parts: dict[str, tuple[tuple[slice, ...], list[Any]]] = {}
        for device, index in sharding.addressable_devices_indices_map(weight.shape).items():
            assert index is not None
            parts.setdefault(str(index), (index, []))[1].append(device)
        arrays = []
        for index, devices in parts.values():
            part = self.read(weight, index)
            arrays += [jax.device_put(part, device) for device in devices]
        return jax.make_array_from_single_device_arrays(weight.shape, sharding, arrays)

    def _fill(self, weight: Weight, layer: int, index: tuple[slice, ...], into: np.ndarray) -> None:
        source = self._source(weight, layer)
        if "{expert}" not in source.name:
            into[...] = self._one(weight, layer, index)
            return
        for i, expert in enumerate(range(weight.shape[1])[index[0]]):
            stored = self._tensors.read(self._stored[source.name.format(layer=layer, expert=expert)])
            into[i] = sources.read(source, weight.shape[2:], stored)[index[1:]]

    def _one(self, weight: Weight, layer: int, index: tuple[slice, ...]) -> np.ndarray:
        """A part of one layer (or of a weight outside the layers) that is stored in one tensor."""
        source, shape = self._source(weight, layer), weight.shape[1:] if weight.layers else weight.shape
        name = self._stored[source.name.format(layer=layer)]
        if "expert" in weight.axes[:2]:  # all experts in one tensor: read those asked for
            n = len(range(*index[0].indices(shape[0])))
            stored = self._tensors.read(name, index[0])
            source, shape, index = replace(source, stored=(n, *source.stored[1:])), (n, *shape[1:]), index[1:]
            return sources.read(source, shape, stored)[:, *index]
        return sources.read(source, shape, self._tensors.read(name))[index]

    def _source(self, weight: Weight, layer: int) -> Source:
        """The first of the weight's sources that is there; the first of all if none is, to be missed by name."""
        there = (s for s in weight.sources if s.name.format(layer=layer, expert=0) in self._stored)
        return next(there, weight.sources[0])

    def _check(self, weight: Weight) -> Iterator[str]:
        """The plain names of all tensors of a leaf."""
        first: tuple[str, str] | None = None
        for layer in weight.layers or (0,):
            source = self._source(weight, layer)
            experts = range(weight.shape[1]) if "{expert}" in source.name else (0,)
            for expert in experts:
                name = source.name.format(layer=layer, expert=expert)
                found = (name, self._check_tensor(name, source.stored))
                first = first or found
                if found[1] != first[1]:
                    raise ModelFileError(
                        f"{self._tensors.where}: {name} is {found[1]} but {first[0]} is {first[1]}; the same weight "
                        "must have one dtype in all layers: was the folder converted halfway?"
                    )
                yield name

    def _check_tensor(self, name: str, expected: tuple[int, ...]) -> str:
        """The tensor's dtype."""
        where, stored = self._tensors.where, self._stored.get(name)
        if stored is None:
            near = [other for other in self._stored if other.rsplit(".layers.", 1)[0] == name.rsplit(".layers.", 1)[0]]
            raise ModelFileError(
                f"{where}: tensor {name} of shape {list(expected)} is missing ({len(self._stored)} tensors are there"
                f"{', such as ' + near[0] if near else ''}); is a shard missing, or config.json of another model?"
            )
        shape, dtype = self._tensors.shape(stored), self._tensors.dtype(stored)
        if shape != expected:
            raise ModelFileError(
                f"{where}: {stored} has shape {list(shape)}, expected {list(expected)} by config.json; "
                "they are not of one model"
            )
        if dtype not in FLOATS:
            raise ModelFileError(
                f"{where}: {stored} is {dtype}, expected one of {', '.join(FLOATS)}; take the unquantised release"
            )
        return dtype

    def _check_tied(self) -> None:
        """A tied model may carry its unembedding, if it is the embedding."""
        embedding, unembedding = (self._stored[name] for name in ("model.embed_tokens.weight", "lm_head.weight"))
        if not np.array_equal(self._tensors.read(embedding), self._tensors.read(unembedding)):
            raise ModelFileError(
                f"{self._tensors.where}: {unembedding} differs from {embedding}, though config.json has "
                "tie_word_embeddings true; set it to false to use both"
            )


def _by_plain_name(tensors: Tensors) -> dict[str, str]:
    """Name without the `language_model` prefix -> name as stored, without what a text model has no use for."""
    found: dict[str, str] = {}
    for stored in tensors.names():
        if stored.startswith(_LEFT_OUT) or stored.endswith(".rotary_emb.inv_freq"):
            continue
        name = "model." + stored.removeprefix(_PREFIX) if stored.startswith(_PREFIX) else stored
        if name in found:
            raise ModelFileError(f"{tensors.where} has both {stored} and {found[name]}; one model has one of them")
        found[name] = stored
    return found


# ---------------------------------------------------------------- writing
@dataclass(frozen=True)
class Companions:
    """What goes with weights and config.json: ids of special tokens, and text files such as the tokenizer's."""

    token_ids: Mapping[str, Any]
    files: Mapping[str, str]


def companions(folder: Path) -> Companions:
    """Those of an existing folder."""
    raw = read_json(folder / "config.json")
    raw = {**raw, **(raw.get("text_config") or {})}
    files = {name: (folder / name).read_text(encoding="utf-8") for name in COMPANIONS if (folder / name).is_file()}
    return Companions({name: raw[name] for name in TOKEN_IDS if raw.get(name) is not None}, files)


def save(
    folder: Path,
    config: ModelConfig,
    params: Params,
    beside: Companions | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Writes a new folder that `load`, transformers and SGLang open. The weights keep their dtypes.

    Beside them the host holds one shard of the folder and one layer. All of `params` must lie on this process' devices.
    Adapters are merged.

    Raises ModelFileError if the folder exists or if its family's config.json cannot say the model.
    """
    if not all(leaf.is_fully_addressable for leaf in jax.tree.leaves(params)):
        raise ModelFileError(f"{folder}: parts of the weights are on other hosts' devices; gather them before saving")
    params, config = lora.merged(params, config)
    raw = to_json(config) | (dict(beside.token_ids) if beside else {})
    with new_folder(folder) as draft:
        write(draft, _pending(config, params), shard_bytes)
        for name, text in (beside.files if beside else {}).items():
            (draft / name).write_text(text, encoding="utf-8")
        (draft / "config.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Share:
    """What one leaf puts into a stored tensor."""

    source: Source
    dtype: np.dtype
    part: Callable[[], np.ndarray]


def _pending(config: ModelConfig, params: Params) -> Iterator[Pending]:
    """All tensors of the folder: those outside the layers, then layer by layer."""
    leaves = [
        (weight, _Layers(leaf)) for weight, leaf in zip(*map(jax.tree.leaves, (declare(config), params)), strict=True)
    ]
    shares: dict[str, list[_Share]] = {}
    for layer, (weight, layers) in itertools.product((None, *range(config.n_layers)), leaves):
        if layer in (weight.layers or (None,)):
            for name, share in _shares(weight, layers, layer):
                shares.setdefault(name, []).append(share)
    for name, parts in shares.items():
        n_bytes = int(np.prod(parts[0].source.stored)) * parts[0].dtype.itemsize
        yield Pending(name, n_bytes, partial(_assembled, parts))


def _shares(weight: Weight, layers: _Layers, layer: int | None) -> Iterator[tuple[str, _Share]]:
    source, dtype = weight.sources[0], layers.leaf.dtype
    if layer is None:
        yield source.name, _Share(source, dtype, lambda: np.asarray(layers.leaf))
        return
    place = weight.layers.index(layer)
    if "{expert}" not in source.name:
        yield source.name.format(layer=layer), _Share(source, dtype, lambda: layers[place])
        return
    for expert in range(weight.shape[1]):
        name = source.name.format(layer=layer, expert=expert)
        yield name, _Share(source, dtype, lambda expert=expert: layers[place][expert])


class _Layers:
    """One leaf, fetched to the host a layer at a time; the last one is kept, for all experts of it."""

    def __init__(self, leaf: jax.Array):
        self.leaf = leaf
        self._kept: tuple[int, np.ndarray] = -1, np.empty(0)

    def __getitem__(self, place: int) -> np.ndarray:
        if self._kept[0] != place:
            self._kept = place, self._fetch(place)
        return self._kept[1]

    def _fetch(self, place: int) -> np.ndarray:
        layer = np.empty(self.leaf.shape[1:], self.leaf.dtype)
        for shard in self.leaf.addressable_shards:
            first, end, _ = shard.index[0].indices(self.leaf.shape[0])
            if shard.replica_id == 0 and first <= place < end:
                layer[shard.index[1:]] = np.asarray(shard.data[place - first])
        return layer


def _assembled(shares: list[_Share]) -> np.ndarray:
    tensor = np.empty(shares[0].source.stored, shares[0].dtype)
    for share in shares:
        sources.write(share.source, share.part(), tensor)
    return tensor
