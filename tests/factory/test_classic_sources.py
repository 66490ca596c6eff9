"""The sources themselves: what each one says about itself, and the functions that make raw files."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from mlexpert.factory.classic import house_prices, origin, series, tables, text
from mlexpert.factory.classic.source import TEXTS
from mlexpert.factory.records import Quarantine, from_json, to_json
from mlexpert.tasks.metrics import METRICS, bind
from tests.factory.wheelhouse import alone

SOURCES = list(origin.SOURCES.values())
PLANS = [source.plan for source in SOURCES]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.plan.id)
def test_a_source_says_what_a_person_has_to_know(source):
    plan, provenance = source.plan, source.provenance
    assert from_json(to_json(plan)) == plan
    assert provenance.licence and provenance.source_dataset
    assert all(pin.name in provenance.source for pin in source.pins)
    assert len(plan.title) > 8 and len(plan.text) > 80
    ends = {plan.target_columns[0], plan.target_columns[-1]}  # of a long row of targets, `first` to `last`
    assert all(f"`{column}`" in plan.text for column in (plan.target_columns if len(plan.target_columns) < 9 else ends))
    assert all(len(reason) > 10 for reason in plan.drop.values())
    if plan.group_column and plan.recipe in ("grouped", "source"):
        assert f"`{plan.group_column}`" in plan.text
    if plan.labels and len(plan.labels) <= 3 and plan.modality != "image" and plan.metric not in ("auc", "lrap"):
        assert any(f"`{label}`" in plan.text for label in plan.labels) or set(plan.labels) <= {"no", "yes", "No", "Yes"}


def test_ids_and_texts_are_there_once():
    ids = [plan.id for plan in PLANS]
    assert len(ids) == len(set(ids)) >= 40
    assert {path.stem for path in TEXTS.glob("*.md")} == set(ids)
    assert all(re.fullmatch(r"[a-z0-9-]+", id) for id in ids)


def test_every_kind_of_task_is_there():
    assert {"tabular", "text", "image", "series"} <= {plan.modality for plan in PLANS}
    assert {"ready", "random", "stratified", "grouped", "temporal", "source"} == {plan.recipe for plan in PLANS}
    assert sum(len(plan.target_columns) > 1 for plan in PLANS) >= 3
    assert {"ndcg", "map_at_k", "lrap", "multilabel_f", "concordance", "pinball"} <= {plan.metric for plan in PLANS}
    assert len({plan.metric for plan in PLANS}) >= 25
    assert all(bind(METRICS[plan.metric], plan.settings) for plan in PLANS if plan.metric in METRICS)


def test_the_same_data_have_the_same_source():
    by_id = {source.plan.id: source.provenance.source_dataset for source in SOURCES}
    assert by_id["movie-ratings"] == by_id["movie-genres"]
    assert by_id["loan-defaults"] == by_id["interest-rates"]
    files = [(source.provenance.source, source.provenance.source_dataset) for source in SOURCES]
    assert len({source for source, _ in files}) == len(set(files))


def test_a_pin_names_one_file():
    pins = {pin for source in SOURCES for pin in source.pins}
    assert all(re.fullmatch(r"[0-9a-f]{64}", pin.sha256) for pin in pins)
    assert len({pin.package for pin in pins}) == len(pins)


def test_a_lead_changes_with_pin_plan_and_code():
    source = SOURCES[0]
    leads = [
        origin._lead(source, "code"),
        origin._lead(source, "other code"),
        origin._lead(replace(source, plan=replace(source.plan, seed=9)), "code"),
        origin._lead(replace(source, pins=(replace(source.pins[0], sha256="0" * 64),)), "code"),
    ]
    assert len({lead.digest() for lead in leads}) == 4
    assert origin.leads()[0].digest() == origin.leads()[0].digest()


def test_an_unknown_task_is_named():
    with pytest.raises(Quarantine, match="'hous-prices'"):
        origin.origin(Path("nowhere"), ("hous-prices",))


def test_without_network_a_task_is_quarantined_with_advice(tmp_path, monkeypatch):
    alone(monkeypatch, tmp_path / "empty")
    found = origin.origin(tmp_path / "cache", ("titanic-survival",))
    (lead,) = found.discover()
    with pytest.raises(Quarantine, match="PIP_FIND_LINKS"):
        found.fetch(lead, tmp_path / "raw")


# ---------------------------------------------------------------- House Prices
def houses(*rows):
    """Rows of (area of the lot, price); every other key is 1."""
    return pd.DataFrame(
        [dict.fromkeys(house_prices.KEYS.values(), "1") | {"Lot.Area": lot, "price": price} for lot, price in rows]
    )


def competition(*rows):
    names = {full: name for name, full in house_prices.KEYS.items()} | {"price": "SalePrice"}
    return houses(*rows).rename(columns=names)


def test_prices_come_back_by_the_join_and_twins_do_not():
    known = house_prices.known_prices(houses(("100", "5"), ("200", "6"), ("200", "7"), ("300", "8")))
    assert sorted(known.values()) == ["5", "8"]


def test_a_gap_is_a_missing_basement_in_both_spellings():
    full, own = houses(("100", "5")), competition(("100.0", "5"))
    full["Total.Bsmt.SF"], own["TotalBsmtSF"] = "", "NA"
    house_prices.check(own, house_prices.known_prices(full))


@pytest.mark.parametrize("shown", ["6", "5.5"])
def test_a_join_that_gives_another_price_is_refused(shown):
    with pytest.raises(Quarantine, match="1 of them with another price"):
        house_prices.check(competition(("100", shown)), house_prices.known_prices(houses(("100", "5"))))


def test_a_join_that_finds_little_is_refused():
    with pytest.raises(Quarantine, match="finds 1, 0 of them"):
        house_prices.check(competition(("100", "5"), ("7", "5")), house_prices.known_prices(houses(("100", "5"))))


# ---------------------------------------------------------------- forms of files
def test_a_ts_file_is_read():
    found, classes = series.parse("# note\n@equalLength false\n@data\n1,2:3,4:b\n5:6:a\n\n")
    assert found == [[["1", "2"], ["3", "4"]], [["5"], ["6"]]] and classes == ["b", "a"]


def test_a_ts_file_without_data_is_refused():
    with pytest.raises(ValueError, match="@data"):
        series.parse("1,2:a")


def test_series_that_end_early_leave_empty_cells():
    assert tables.wide([["1", "2", "3"], ["4"]]).to_dict("list") == {"t0": ["1", "4"], "t1": ["2", ""], "t2": ["3", ""]}


def test_a_ragged_table_is_refused():
    with pytest.raises(ValueError, match="row 2 has 1 cells, the header 2"):
        tables.delimited(b"a,b\n1,2\n3\n")


def test_links_are_taken_out_of_tweets():
    assert text._without_links("Vote! https://t.co/x1 now") == "Vote!  now"
