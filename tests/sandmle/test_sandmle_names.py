"""Held-out names never occur in training material."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlexpert.sandmle import names
from mlexpert.sandmle.data_strategist import design


def columns(spec):
    return {*spec.numeric, spec.target, *([spec.category] if spec.category else [])}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**4))
def test_every_name_of_a_task_belongs_to_its_split(seed, index):
    for split in names.SPLITS:
        spec = design(split, seed, index)
        assert all(names.split_of(name) == split for name in columns(spec))
        assert spec.domain in names.DOMAINS[split]


def test_domains_are_disjoint():
    assert not set(names.DOMAINS["train"]) & set(names.DOMAINS["held_out"])


def test_first_words_within_a_task_differ():
    for index in range(50):
        firsts = [name.split("_")[0] for name in columns(design("train", 3, index))]
        assert len(set(firsts)) == len(firsts)


def test_both_splits_own_many_pairs():
    pairs = [f"{first}_{second}" for first in names.FIRST for second in names.NUMERIC_SECOND]
    held_out = sum(names.split_of(pair) == "held_out" for pair in pairs)
    assert 0.2 < held_out / len(pairs) < 0.3


def test_a_column_avoids_taken_first_words():
    rng = np.random.default_rng(0)
    taken = tuple(f"{first}_depth" for first in names.FIRST[:-2])
    name = names.column(rng, "train", names.NUMERIC_SECOND, taken)
    assert name.split("_")[0] in names.FIRST[-2:]
