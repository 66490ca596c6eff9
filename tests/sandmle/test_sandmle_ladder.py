"""Tables, ladder and gate."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from mlexpert.sandmle import gate, mle_developer, technical_writer
from mlexpert.sandmle.data_strategist import design
from mlexpert.sandmle.families import APPROACH, FAMILIES
from mlexpert.sandmle.mle_developer import BANDS, Ladder, lock
from mlexpert.tasks.task import Thresholds


def first_of(family, kind="tabular"):
    return next(spec for i in range(400) if (spec := design("train", 5, i, kind)).family == family and not spec.vague)


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.kind == "tabular"])
def test_every_family_makes_clean_tables(family):
    spec = first_of(family)
    data = mle_developer.tables(spec)
    ids = [*data.train["id"], *data.test["id"]]
    assert len(set(ids)) == spec.n_train + spec.n_test
    assert spec.target not in data.test and np.isfinite(data.answers[spec.target]).all()
    n_gaps = int(np.isnan(data.train[list(spec.numeric)].to_numpy()).sum())
    assert (n_gaps > 0) == spec.gaps
    if bool(spec.labels):
        assert set(data.answers[spec.target]) == {0, 1}
    else:
        assert np.all(data.train[spec.target].to_numpy() > 0)


def test_the_same_spec_gives_the_same_data_and_another_index_other_data():
    one, again, other = (mle_developer.tables(design("train", 1, index)) for index in (0, 0, 1))
    pd.testing.assert_frame_equal(one.train, again.train)
    assert list(one.test.columns) != list(other.test.columns)


@pytest.mark.parametrize("kind", ["series", "text", "image"])
def test_the_called_for_approach_is_the_best_rung_of_the_other_kinds(kind):
    spec = next(spec for i in range(20) if not (spec := design("train", 5, i, kind)).vague)
    scores = mle_developer.ladder(spec, mle_developer.tables(spec)).scores
    best = min if spec.metric in ("rmse", "mae") else max
    assert best(scores, key=lambda rung: scores[rung]) == f"{APPROACH[spec.family]}.0"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_thresholds_are_places_between_best_and_median_in_both_directions(sign):
    rungs = {name: sign * value for value, name in enumerate(mle_developer.GENERIC)} | {"ratio.0": sign * 13.0}
    limits = lock(rungs, lower_is_better=sign < 0)
    median = sign * (len(mle_developer.GENERIC) - 1) / 2
    expected = [sign * 13.0 + share * (median - sign * 13.0) for share in BANDS.values()]
    assert [limits.gold, limits.silver, limits.bronze] == pytest.approx(expected)
    assert (limits.median, limits.sample) == (median, 0.0)


LIMITS = Thresholds(gold=0.89, silver=0.87, bronze=0.84, median=0.7, sample=0.5)
GOOD = Ladder({"ratio.0": 0.9, "linear.0": 0.7, "constant": 0.5}, "ratio", LIMITS, lower_is_better=False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"thresholds": dataclasses.replace(LIMITS, silver=0.84)}, "ladder not monotone"),
        ({"thresholds": dataclasses.replace(LIMITS, sample=0.7)}, "sample not worse than median"),
        ({"scores": {**GOOD.scores, "ratio.0": 0.71}}, "spread too small"),
        ({"called_for": "linear"}, "note misleads"),
    ],
)
def test_the_gate_names_its_reason(change, reason):
    assert gate.reason(GOOD._replace(**change)) == reason


def test_the_direction_decides_what_is_monotone():
    assert gate.reason(GOOD._replace(lower_is_better=True)) == "ladder not monotone"


def test_the_description_tells_columns_and_target_and_nothing_of_the_rule():
    for index in range(30):
        spec = design("held_out", 2, index)
        text = technical_writer.describe(spec)
        assert 6 <= len(text.splitlines()) <= 7
        assert text.splitlines()[-1] == f"Target: `{spec.target}`"
        assert all(f"`{name}`" in text for name in spec.numeric)
        numbers = {word for word in text.replace(".", " ").replace("`", " ").split() if word.isdigit()}
        assert numbers <= {str(spec.period)}
        assert not spec.vague or not any(f"`{name}`" in spec.note for name in spec.numeric)
