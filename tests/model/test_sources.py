"""Every element of every stored tensor is one element of ours, and the way there and back is the identity."""

from pathlib import Path

import jax
import numpy as np
import pytest

from mlexpert.model import sources
from mlexpert.model.hf_config import read_config
from mlexpert.model.params import declare
from mlexpert.model.sources import Source

FIXTURES = sorted(path for path in (Path(__file__).parent / "fixtures").iterdir() if path.is_dir())


def parts(weight):
    """(source, shape of what one stored tensor gives), for every way in which the weight may be stored."""
    for source in weight.sources:
        skip = (len(weight.layers) > 0) + ("{expert}" in source.name)
        yield source, weight.shape[skip:]


@pytest.mark.parametrize("folder", FIXTURES, ids=lambda path: path.name)
def test_each_stored_element_is_written_once_and_read_back(folder):
    written = {}
    for weight in jax.tree.leaves(declare(read_config(folder))):
        for source, shape in parts(weight):
            position = weight.layers[0] if weight.layers else 0
            count, stored = written.setdefault(
                (position, source.name), (np.zeros(source.stored, int), np.zeros(source.stored))
            )
            ours = np.random.default_rng(len(written)).normal(size=shape)
            sources.write(source, np.ones(shape, int), mark := np.zeros(source.stored, int))
            sources.write(source, ours, stored)
            count += mark
            np.testing.assert_array_equal(sources.read(source, shape, stored), ours)
    assert written and all((count == 1).all() for count, _ in written.values())


def test_projections_interleaved_by_key_head():
    """Two key heads with two value heads each: rows are q, k, v, v, z, z of a key head, then of the next."""
    (folder,) = (path for path in FIXTURES if path.name == "qwen3_next")
    delta = declare(read_config(folder))["blocks"][0]["deltanet"]
    rows = np.arange(96.0)[:, None] * np.ones((96, 32))  # per key head: 8 + 8 + 16 + 16
    got = {
        name: sources.read(delta[name].sources[0], delta[name].shape[1:], rows)
        for name in ("query", "key", "value", "gate")
    }
    assert got["query"][0].tolist() == [[*range(0, 8)], [*range(48, 56)]]
    assert got["key"][0].tolist() == [[*range(8, 16)], [*range(56, 64)]]
    assert got["value"][0].tolist() == [[*range(s, s + 8)] for s in (16, 24, 64, 72)]
    assert got["gate"][0].tolist() == [[*range(s, s + 8)] for s in (32, 40, 80, 88)]


def test_another_shape_is_refused_by_name():
    with pytest.raises(ValueError, match=r"a\.weight has shape \[3, 2\], expected \[2, 3\]"):
        sources.read(Source("a.weight", (2, 3), (1, 0)), (3, 2), np.zeros((3, 2)))
