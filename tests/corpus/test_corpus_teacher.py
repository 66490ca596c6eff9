"""The teacher's habits, on replies as the environment words them; documents; outcome-guided prefixes."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlexpert.corpus import documents, episodes, facts, outcome, scripts, teacher
from mlexpert.harness.prompts import SHORT_SYSTEM, SHORT_TOOLS, Opening
from mlexpert.harness.state import Reply
from mlexpert.sandmle import names, technical_writer
from mlexpert.sandmle.data_strategist import design
from mlexpert.sandmle.families import APPROACH, FAMILIES
from mlexpert.types import Ending, Finish, Medal, ToolCall, Verdict, VerdictStatus

FACTS = facts.read(
    "# Mining\nNumeric: `soil_depth`, `wind_speed`, `iron_age` with gaps.\nCategory: `rock_type`.\n"
    "Metric: rmse, lower is better.\nNote: The ratio of `wind_speed` to `iron_age` matters.\nTarget: `coal_yield`\n"
)


def reply(number, text, left=3):
    return f"node {number}: {text}\n{left} executions left"


def play(style, seed, answers):
    past = []
    for answer in answers:
        move = teacher.act(FACTS, style, seed, past)
        past.append(teacher.Past(move, answer))
    return [turn.move for turn in past]


def test_facts_of_a_description():
    assert FACTS.named == ("wind_speed", "iron_age") and FACTS.called_for == "ratio"
    assert FACTS.gaps and FACTS.category == "rock_type" and FACTS.target == "coal_yield"


def test_every_clear_note_is_read_as_its_approach():
    for kind in {family.kind for family in FAMILIES.values()}:
        for index in range(40):
            spec = design("train", 9, index, kind)
            read = facts.read(technical_writer.describe(spec))
            assert read.called_for == ("" if spec.vague else APPROACH[spec.family])
            assert read.classification == spec.classification and read.category == spec.category


def test_the_first_script_follows_the_note_as_often_as_the_style_says():
    style = teacher.Style(follows_note=0.3)
    plans = [teacher.act(FACTS, style, seed, []).plan for seed in range(600)]
    share = np.mean([plan is not None and plan.approach == "ratio" for plan in plans])
    assert abs(share - 0.3) < 0.06
    assert {plan.approach for plan in plans if plan} == set(scripts.applicable(FACTS))


def test_a_hand_feature_uses_the_named_columns_and_the_thought_says_so():
    move = teacher.act(FACTS, teacher.Style(follows_note=1.0, bug=0.0), 0, [])
    assert move.think == "ratio, divide `wind_speed` by `iron_age`"
    assert isinstance(move.action, ToolCall)
    assert 'X["f"] = X["wind_speed"] / X["iron_age"]' in move.action.arguments["code"]


def test_the_first_words_of_thoughts_tell_the_approaches_apart():
    rng = np.random.default_rng(0)
    firsts = [teacher.thought(scripts.plan(rng, FACTS, approach)).split()[0] for approach in scripts.applicable(FACTS)]
    assert len(set(firsts)) == len(firsts)


def test_a_bug_is_repaired_with_the_same_plan():
    style = teacher.Style(bug=1.0, repairs=1.0)
    for seed in range(20):
        first, second = play(style, seed, [reply(1, "error\nKeyError: 'target'\nno submission"), ""])
        assert first.bug and not second.bug and second.plan == first.plan
        assert isinstance(second.action, ToolCall) and second.plan is not None
        assert second.action.arguments["code"].splitlines() == scripts.write(FACTS, second.plan)


def test_the_best_cv_is_named_in_the_metrics_direction():
    style = teacher.Style(goals=(0.0, 1.0), updates=1.0, analyzes=0.0, invalidates=0.0, bug=0.0)
    moves = play(style, 4, [reply(1, "ok\ncv 2.5\nsubmission valid"), reply(2, "ok\ncv 3.5\nsubmission valid"), "", ""])
    assert isinstance(moves[2].action, ToolCall)
    assert (moves[2].action.name, moves[2].action.arguments) == ("update_answer", {"node": "1"})
    assert moves[3].action == Finish("Done.")


def test_it_ends_when_no_execution_is_left():
    style = teacher.Style(goals=(0.0, 0.0, 1.0), updates=0.0, analyzes=0.0, invalidates=0.0)
    moves = play(style, 1, [reply(1, "ok\ncv 2.5\nsubmission valid", left=0), ""])
    assert isinstance(moves[1].action, Finish)


def test_documents_are_reproducible_and_hold_train_names_only():
    for index in range(40):
        one = documents.document(5, index)
        assert one == documents.document(5, index)
        code = one.call.arguments["code"]
        read = facts.read(one.user)
        assert f'"{read.target}"' in code
        assert all(names.split_of(name) == "train" for name in (*read.numeric, read.target))


@pytest.mark.parametrize(
    ("qualities", "keep"),
    [
        ([], 0),
        ([None, None], 0),
        ([0.39], 0),
        ([0.4], 1),
        ([None, 0.6], 2),
        ([0.6, 0.56], 2),  # fell by less than delta
        ([0.6, 0.5], 1),
        ([0.6, 0.5, 0.59], 3),  # the last one recovered
        ([0.6, None], 1),
        ([0.6, 0.6, 0.2], 1),  # the first of equal peaks
        ([0.2, 0.9, 0.3, None], 2),
    ],
)
def test_the_useful_prefix(qualities, keep):
    assert outcome.executions_to_keep(qualities) == keep


class FakeEnvironment:
    """Valid scripts of falling worth; ends by the teacher's own ending."""

    def __init__(self, description):
        self.ending, self.count, self.description = None, 0, description

    def opening(self):
        return Opening(SHORT_SYSTEM, SHORT_TOOLS, self.description)

    def answer(self):
        return Verdict(VerdictStatus.GRADED, medal=Medal.GOLD)

    async def step(self, action):
        if isinstance(action, Finish):
            self.ending = Ending.DONE
            return Reply("", "end", ending=Ending.DONE)
        if action.name != "execute_code":
            return Reply("answer: node 1", "observation")
        self.count += 1
        verdict = Verdict(VerdictStatus.GRADED, quality=1.0 / self.count)
        text = reply(self.count, f"ok\ncv {self.count}.5\nsubmission valid", left=4 - self.count)
        result: Any = SimpleNamespace(verdict=verdict)
        return Reply(text, "observation", result)


def test_records_hold_prompts_and_answers_in_turn_and_are_cut_after_the_peak(tmp_path):
    (tmp_path / "public").mkdir()
    text = technical_writer.describe(design("train", 1, 0))
    (tmp_path / "public" / "description.md").write_text(text)
    task: Any = SimpleNamespace(id="t", public=tmp_path / "public")
    style = teacher.Style(goals=(0.0, 0.0, 1.0), updates=1.0, analyzes=0.0, invalidates=0.0)
    done = []

    def make(task, id) -> Any:
        return FakeEnvironment(text)

    collection = asyncio.run(episodes.collect([task], 3, make, 0, 2, style, done.append))
    assert done == [1, 2, 3] and collection.spoilt == 0
    record = collection.records[0]
    assert record["qualities"] == [1.0, 0.5, 1 / 3] and record["executed"] == [0, 1, 2]
    assert [turn["prompt"]["kind"] for turn in record["turns"]] == ["opening"] + ["observation"] * 4
    assert record["turns"][-1]["finish"] == "Done." and record["turns"][-2]["call"]["name"] == "update_answer"
    cut = episodes.worth_imitating(record)
    assert cut is not None and cut["turns"] == record["turns"][:1] and cut["qualities"] == [1.0]
    episodes.save(tmp_path / "records.jsonl", collection.records)
    assert episodes.load(tmp_path / "records.jsonl") == collection.records
