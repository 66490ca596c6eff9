"""A blueprint crosses processes as JSON, checked field by field."""

import json
from dataclasses import replace

import pytest
from sources import PROVENANCE, plan

from mlexpert.factory.records import Lead, Quarantine, from_json, to_json

FULL = plan(
    labels=("no", "yes"), columns={"a": "number"}, drop={"b": "leaks"}, settings={"k": 3}, roles={"weight": "w"},
    hidden=("w",), merge_labels={"maybe": "no"}, distinct=True, test_share=0.25, recipe="grouped", group_column="g",
)  # fmt: skip


def test_json_round_trip():
    assert from_json(to_json(FULL)) == FULL and from_json(to_json(plan())) == plan()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": 3}, "metric is 3, not a string"),
        ({"target_columns": "y"}, "target_columns is 'y', not a list"),
        ({"target_columns": []}, "at least one"),
        ({"target_columns": ["y", "y"]}, "distinct"),
        ({"test_share": 1.0}, "test_share"),
        ({"test_share": "half"}, "test_share is 'half', not a number"),
        ({"seed": True}, "seed is True, not a whole number"),
        ({"columns": {"a": "float"}}, "'a': 'float'"),
        ({"recipe": "lucky"}, "recipe 'lucky' is unknown"),
        ({"recipe": "grouped", "group_column": ""}, "needs `group_column`"),
        ({"recipe": "temporal"}, "needs `time_column`"),
        ({"recipe": "ready"}, "needs `test`"),
        ({"train": ""}, "train names no table"),
        ({"train": "../../secret.csv"}, "leaves the folder"),
        ({"answers": "/etc/passwd"}, "leaves the folder"),
        ({"id": "a/b"}, "the id may hold"),
        ({"drop": {"y": "why"}}, "drop names 'y'"),
        ({"max_rows": -1}, "max_rows"),
        ({"surprise": 1}, "no field 'surprise'"),
    ],
)
def test_a_wrong_field_is_named(change, message):
    with pytest.raises(Quarantine, match=message):
        from_json(json.dumps(json.loads(to_json(FULL)) | change))


@pytest.mark.parametrize("text", ["", "[]", "null", '{"id": "a"}'])
def test_what_is_no_blueprint_is_refused(text):
    with pytest.raises(Quarantine, match="plan: the blueprint"):
        from_json(text)


def test_digests_follow_the_content():
    lead = Lead("a", "A", PROVENANCE, {"x": [1, 2]})
    assert lead.digest() == Lead("a", "A", PROVENANCE, {"x": [1, 2]}).digest() != replace(lead, title="B").digest()
    assert plan(seed=1).digest() != plan(seed=2).digest() == plan(seed=2).digest()
