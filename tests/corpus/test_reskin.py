import re

import numpy as np

from mlexpert.corpus import facts as reading
from mlexpert.corpus.reskin import renamed, reskin
from mlexpert.sandmle import data_strategist, names, technical_writer

NAME = re.compile(r"\b[a-z]+_[a-z]+\b")


def record(index):
    user = technical_writer.describe(data_strategist.design("train", 3, index))
    facts = reading.read(user)
    code = f't = "{facts.target}"\nX["f"] = X["{facts.numeric[0]}"] * X["{facts.numeric[1]}"]'
    call = {"name": "execute_code", "arguments": {"code": code}}
    turn = {
        "prompt": {"kind": "opening", "text": ""},
        "think": f"look at `{facts.numeric[0]}`",
        "call": call,
        "finish": "",
    }
    return {"opening": {"system": "", "tools": [], "user": user}, "turns": [turn], "qualities": [0.7]}


def test_every_name_changes_and_every_use_of_it_alike():
    for index in range(20):
        old = record(index)
        new = reskin(old, np.random.default_rng(index))
        before, after = reading.read(old["opening"]["user"]), reading.read(new["opening"]["user"])
        code = new["turns"][0]["call"]["arguments"]["code"]
        assert f't = "{after.target}"' in code
        assert f'X["{after.numeric[0]}"] * X["{after.numeric[1]}"]' in code
        assert new["turns"][0]["think"] == f"look at `{after.numeric[0]}`"
        assert (after.metric, after.called_for, after.period) == (before.metric, before.called_for, before.period)
        assert len(set(after.numeric)) == len(before.numeric)


def test_fresh_names_belong_to_the_train_split():
    new = reskin(record(1), np.random.default_rng(0))
    facts = reading.read(new["opening"]["user"])
    assert {names.split_of(name) for name in (*facts.numeric, facts.target)} == {"train"}


def test_names_are_swapped_at_once_and_not_inside_other_words():
    swapped = renamed('"a_b", "b_c", "aa_b", "a_bc", a_b_x', {"a_b": "b_c", "b_c": "a_b"})
    assert swapped == '"b_c", "a_b", "aa_b", "a_bc", b_c_x'
