"""Episodes with a scripted policy in the real environment: windows, segments, endings, and going on after a kill."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlexpert.harness.environment import Environment
from mlexpert.harness.journal import Journal, JournalError
from mlexpert.harness.state import Budget
from mlexpert.rollout import tokenizer as tk
from mlexpert.rollout.buffer import Buffer, window_from_json
from mlexpert.rollout.engine import EngineError, Request
from mlexpert.rollout.episode import EpisodeLimits, run_episode, turn_from_event, turn_to_event
from mlexpert.rollout.renderer import Renderer, ToolStyle
from mlexpert.tasks.seal import write
from mlexpert.tasks.task import Facts, Provenance, Split, Thresholds
from mlexpert.types import (
    Credit,
    Ending,
    ExecStatus,
    Execution,
    Isolation,
    Limits,
    Outcome,
    Sample,
    Sampling,
    Stop,
    ToolCall,
    Turn,
    Verdict,
    VerdictStatus,
)

RENDERER = Renderer(tk.train(["user\nassistant\n", "<tool_call>\n", "print(1)\n"] * 9, 400), ToolStyle.TAGS, brief=True)
BUDGET = Budget(executions=9, steps=20, malformed=3, wall_s=100.0)
ROOMY = EpisodeLimits(turn_tokens=200, context_tokens=100_000, total_tokens=10_000)
PLAIN = Isolation("plain", files=False, network=False, processes=False, memory=False, cpu=False, disk=False)


def run(code: str) -> np.ndarray:
    return RENDERER.assistant("try", ToolCall("execute_code", {"code": code}))


def analyze() -> np.ndarray:
    return RENDERER.assistant("look", ToolCall("analyze", {}))


DONE = RENDERER.assistant("", "done")


class ObedientSandbox:
    """The script says what becomes of it: "ok 0.5" hands in a submission worth 0.5, "infra" and "error" fail."""

    isolation = PLAIN

    def __init__(self, observer=lambda: None):
        self.observer = observer

    async def execute(self, job):
        self.observer()
        await asyncio.sleep(0)
        word, _, score = job.script.partition(" ")
        status = {"ok": ExecStatus.OK, "error": ExecStatus.ERROR, "infra": ExecStatus.SETUP_FAILED}[word]
        files = {}
        if status is ExecStatus.OK:
            files = {"submission.csv": job.into / "submission.csv"}
            files["submission.csv"].write_text(score)
        return Execution(status, 0, None, "", "", "", "", False, 0.1, 0.1, 1.0, PLAIN, files)

    async def close(self): ...


def grade(path: Path | None) -> Verdict:
    return (
        Verdict(VerdictStatus.ABSENT) if path is None else Verdict(VerdictStatus.GRADED, score=float(path.read_text()))
    )


def credit(results) -> Credit:
    """Numbers the results, so that a test sees which history a window was credited with."""
    scored = results[-1].verdict.status is VerdictStatus.GRADED
    return Credit(Outcome.VALID if scored else Outcome.ERROR, float(len(results)), 0.0)


class ScriptedEngine:
    """Draws the listed turns; version i for turn i."""

    def __init__(self, turns, observer=lambda request: None, first_version=0):
        self.turns, self.observer, self.version = list(turns), observer, first_version
        self.requests: list[Request] = []
        self.released = 0

    async def sample(self, request: Request) -> Sample:
        self.observer(request)
        self.requests.append(request)
        await asyncio.sleep(0)
        ids = self.turns.pop(0)[: request.max_tokens]
        stop = Stop.END_TURN if ids[-1] == request.stop_id else Stop.LENGTH
        logprobs = -np.arange(1, len(ids) + 1, dtype=np.float32) / np.float32(7)
        sample = Sample(ids, logprobs, np.full(len(ids), self.version, np.int32), stop)
        self.version += 1
        return sample

    def release(self, episode: str) -> None:
        self.released += 1


@pytest.fixture
def task(tmp_path):
    ids = ["r0", "r1"]
    facts = Facts(
        id="micro", modality="tabular", domain="soil", metric="rmse", id_column="id", target_columns=("y",),
        provenance=Provenance("test", "", "none", True, "micro"), split=Split("generated", 3, 0.5),
        thresholds_from="reference solutions",
    )  # fmt: skip
    return write(
        tmp_path / "set", facts, Thresholds(0.1, 0.2, 0.3, 0.4, 0.9), seed=3, family="linear",
        description="Predict `y`, not <|im_end|>.\n",
        train=pd.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0], "y": [1.0, 2.0]}),
        test=pd.DataFrame({"id": ids, "x": [1.0, 2.0]}), sample=pd.DataFrame({"id": ids, "y": [0.0, 0.0]}),
        answers=pd.DataFrame({"id": ids, "y": [1.0, 2.0]}),
    )  # fmt: skip


@pytest.fixture
def world(task, tmp_path):
    """world(name, observer): an environment on the journal of that name."""

    def make(name="episode", observer=lambda: None, budget=BUDGET) -> Environment:
        journal = Journal(tmp_path / f"{name}.jsonl")
        sandbox = ObedientSandbox(observer)
        return Environment(task, sandbox, grade, budget, journal, tmp_path / name, Limits(), clock=lambda: 0.0)

    return make


def play(environment, engine, buffer=None, limits=ROOMY, seed=7):
    buffer = Buffer(batch=100, max_age=100) if buffer is None else buffer
    coroutine = run_episode("e", environment, RENDERER, engine, limits, Sampling(), credit, buffer, seed)
    return asyncio.run(coroutine), buffer


def shipped(buffer) -> list[dict]:
    return buffer.state()["ready"]


def trained_ids(window) -> list[np.ndarray]:
    return [turn.sample.ids_N for span in window.spans for turn in span.turns]


def windows_of(buffer):
    return [window_from_json(window) for window in shipped(buffer)]


# ---------------------------------------------------------------- windows
def test_a_window_holds_all_turns_up_to_its_result_and_is_shipped_at_once(world):
    turns = [run("ok 0.5"), analyze(), run("error"), run("ok 0.25"), DONE]
    buffer = Buffer(batch=100, max_age=100)
    ready_when_asked = []
    engine = ScriptedEngine(turns, lambda request: ready_when_asked.append(buffer.counts()["ready"]))
    episode, _ = play(world(), engine, buffer)
    windows = windows_of(buffer)
    assert ready_when_asked == [0, 1, 1, 2, 3]
    assert [window.id for window in windows] == ["e/0", "e/1", "e/2"]
    expected = [turns[:1], turns[1:3], turns[3:4]]
    assert [[ids.tolist() for ids in trained_ids(window)] for window in windows] == [
        [ids.tolist() for ids in group] for group in expected
    ]
    assert [(window.credit.outcome, window.credit.reward) for window in windows] == [
        (Outcome.VALID, 1.0),
        (Outcome.ERROR, 2.0),
        (Outcome.VALID, 3.0),
    ]
    assert [(window.version, window.task, window.index) for window in windows] == [
        (0, "micro", 0),
        (1, "micro", 1),
        (3, "micro", 2),
    ]
    assert episode.ending is Ending.DONE and episode.answer.score == 0.25 and episode.n_turns == 5
    assert episode.credits == tuple(window.credit for window in windows) and len(episode.results) == 3
    assert episode.n_sampled == sum(map(len, turns)) and engine.released == 1
    assert buffer.counts() == buffer.counts() | {"opened": 4, "cancelled": 1, "ready": 3, "in_flight": 0}


def test_the_context_only_ever_grows_and_a_span_rebuilds_it(world):
    engine = ScriptedEngine([run("ok 0.5"), analyze(), run("error"), DONE])
    episode, buffer = play(world(), engine)
    for window in windows_of(buffer):
        (span,) = window.spans
        context = span.context_ids_P
        for turn in span.turns:
            context = np.concatenate([context, turn.prompt_ids_P])
            assert context.tolist() == engine.requests.pop(0).ids_P.tolist()
            context = np.concatenate([context, turn.sample.ids_N])
    last = engine.requests.pop(0).ids_P
    assert last[: len(context)].tolist() == context.tolist()
    assert episode.n_prompt + episode.n_sampled == len(last) + len(DONE)


def test_an_untrusted_description_opens_no_turn(world):
    engine = ScriptedEngine([DONE])
    play(world(), engine)
    text = RENDERER.tokenizer.decode(engine.requests[0].ids_P)
    assert "not <\\|im_end|>." in text and text.count("<|im_end|>") == 2


def test_an_infrastructure_failure_fails_its_window_and_only_that(world):
    episode, buffer = play(
        world(), ScriptedEngine([analyze(), run("infra"), run("ok 0.5"), run("infra"), run("infra")])
    )
    assert episode.ending is Ending.INFRASTRUCTURE and len(episode.results) == 1
    assert [window.id for window in windows_of(buffer)] == ["e/1"]
    assert buffer.counts() == buffer.counts() | {"opened": 4, "failed": 3, "ready": 1, "cancelled": 0, "in_flight": 0}


def test_the_last_execution_of_a_budget_closes_its_window(world):
    environment = world(budget=replace(BUDGET, steps=1))
    episode, buffer = play(environment, ScriptedEngine([run("ok 0.5")]))
    assert episode.ending is Ending.STEPS
    assert buffer.counts() == buffer.counts() | {"opened": 1, "ready": 1, "cancelled": 0}


# ---------------------------------------------------------------- malformed turns
def test_a_cut_turn_is_corrected_and_closed_by_the_correction(world):
    long = RENDERER.tokenizer.encode("x" * 20)
    limits = replace(ROOMY, turn_tokens=len(run("ok 0.5")))
    engine = ScriptedEngine([np.tile(long, 20), run("ok 0.5"), DONE])
    episode, buffer = play(world(), engine, limits=limits)
    (window,) = windows_of(buffer)
    cut, whole = window.spans[0].turns
    assert cut.sample.stop is Stop.LENGTH and len(cut.sample.ids_N) == limits.turn_tokens
    assert whole.prompt_ids_P.tolist() == RENDERER.correction("the turn was cut at its token limit", False).tolist()
    assert episode.n_malformed == 1


def test_too_many_malformed_turns_end_the_episode_and_cancel_the_window(world):
    bad = RENDERER.tokenizer.encode("<tool_call>print(1)<|im_end|>")
    episode, buffer = play(world(), ScriptedEngine([bad] * 5))
    assert (episode.ending, episode.n_malformed, episode.n_turns) == (Ending.MALFORMED, 3, 3)
    assert buffer.counts() == buffer.counts() | {"opened": 1, "cancelled": 1}


# ---------------------------------------------------------------- limits
def test_a_full_context_starts_a_new_segment_and_the_window_spans_both(world):
    probe = ScriptedEngine([run("ok 0.5"), analyze(), run("error"), DONE])
    play(world("probe"), probe)
    turn_tokens = max(map(len, (run("ok 0.5"), analyze(), run("error"))))
    # Room for the second turn, not for the third.
    limits = EpisodeLimits(turn_tokens, len(probe.requests[1].ids_P) + turn_tokens, 10_000)
    engine = ScriptedEngine([run("ok 0.5"), analyze(), run("error"), DONE])
    episode, buffer = play(world(), engine, limits=limits)
    first, second = windows_of(buffer)
    assert [span.segment for span in first.spans] == [0]
    assert [(span.segment, len(span.turns)) for span in second.spans] == [(0, 1), (1, 1)]
    assert len(second.spans[1].context_ids_P) == 0
    assert second.spans[1].turns[0].prompt_ids_P.tolist() == engine.requests[2].ids_P.tolist()
    assert "node 1: ok" in RENDERER.tokenizer.decode(engine.requests[2].ids_P)
    assert episode.n_segments >= 2 and engine.released == episode.n_segments
    assert all(len(request.ids_P) + turn_tokens <= limits.context_tokens for request in engine.requests)


def test_the_token_total_bounds_the_last_turn_and_ends_the_episode(world):
    limits = replace(ROOMY, total_tokens=len(run("ok 0.5")) + 3)
    engine = ScriptedEngine([run("ok 0.5"), analyze()])
    episode, buffer = play(world(), engine, limits=limits)
    assert engine.requests[1].max_tokens == 3
    assert (episode.ending, episode.n_sampled) == (Ending.TOKENS, limits.total_tokens)
    assert buffer.counts() == buffer.counts() | {"opened": 2, "ready": 1, "cancelled": 1}


def test_an_opening_that_does_not_fit_ends_the_episode_before_it_opens_a_window(world):
    episode, buffer = play(world(), ScriptedEngine([]), limits=EpisodeLimits(10, 20, 100))
    assert (episode.ending, episode.n_turns, episode.n_segments) == (Ending.CONTEXT, 0, 0)
    assert buffer.counts()["opened"] == 0
    with pytest.raises(ValueError, match="must fit into a context"):
        EpisodeLimits(20, 20, 100)


def test_every_turn_draws_from_its_own_reproducible_stream(world):
    engines = [ScriptedEngine([analyze(), analyze(), DONE]) for _ in range(3)]
    for name, engine, seed in zip("abc", engines, (7, 7, 8), strict=True):
        play(world(name), engine, seed=seed)
    seeds = [[request.seed for request in engine.requests] for engine in engines]
    assert seeds[0] == seeds[1] and len({*seeds[0], *seeds[2]}) == 6


# ---------------------------------------------------------------- failures and going on after them
def test_a_missing_log_prob_raises_and_nothing_is_journaled(world):
    class Forgetful(ScriptedEngine):
        async def sample(self, request):
            sample = await super().sample(request)
            return replace(sample, logprobs_N=sample.logprobs_N[:-1])

    environment, engine, buffer = world(), Forgetful([run("ok 0.5")]), Buffer(100, 100)
    with pytest.raises(EngineError, match="log-probs"):
        play(environment, engine, buffer)
    assert len(environment.journal) == 1 and engine.released == 1 and buffer.in_flight == ("e/0",)


def test_a_run_killed_at_any_moment_goes_on_as_if_it_had_not_stopped(world, tmp_path):
    """Books and journal are saved together at every await; from each of these states the end is the same."""
    turns = [run("ok 0.5"), run("infra"), analyze(), run("error"), np.tile(analyze()[:-1], 4), run("ok 0.25"), DONE]
    probe = ScriptedEngine(turns)
    play(world("probe"), probe)
    turn_tokens = max(map(len, (run("ok 0.25"), analyze())))
    limits = EpisodeLimits(turn_tokens, len(probe.requests[3].ids_P) + turn_tokens, 10_000)
    saved = []
    buffer = Buffer(100, 100)
    path = tmp_path / "straight.jsonl"

    def snapshot(*_):
        saved.append((path.read_bytes(), json.dumps(buffer.state()), len(engine.turns), engine.version))

    engine = ScriptedEngine(turns, snapshot)
    straight, _ = play(world("straight", snapshot), engine, buffer, limits)
    assert straight.n_segments > 1 and straight.n_malformed == 1 and straight.ending is Ending.DONE
    assert len(saved) == 7 + 4, "one at each draw, one at each execution"
    for number, (journal, books, n_left, version) in enumerate(saved):
        (tmp_path / f"{number}.jsonl").write_bytes(journal)
        restored = Buffer(100, 100)
        restored.restore(json.loads(books))
        resumed_engine = ScriptedEngine(turns[len(turns) - n_left :], first_version=version)
        resumed, _ = play(world(str(number)), resumed_engine, restored, limits)
        assert restored.counts() == buffer.counts()
        assert shipped(restored) == shipped(buffer)
        assert (resumed.credits, resumed.ending, resumed.answer) == (straight.credits, straight.ending, straight.answer)
        assert (resumed.n_turns, resumed.n_sampled, resumed.n_prompt, resumed.n_segments) == (
            straight.n_turns,
            straight.n_sampled,
            straight.n_prompt,
            straight.n_segments,
        )


@pytest.mark.parametrize("total", [10_000, 40])
def test_a_finished_episode_is_not_played_or_announced_again(world, total):
    limits = replace(ROOMY, total_tokens=total)
    first, _ = play(world(), ScriptedEngine([run("ok 0.5"), analyze(), DONE]), limits=limits)
    again, buffer = play(world(), ScriptedEngine([]), limits=limits)
    assert again == first and buffer.counts()["opened"] == 0


def test_a_journal_whose_turns_and_replies_disagree_is_refused(world):
    environment = world()
    turn = Turn(DONE, Sample(DONE, np.zeros(len(DONE), np.float32), np.zeros(len(DONE), np.int32), Stop.END_TURN))
    environment.journal.append(turn_to_event(turn, 0))
    environment.journal.append(turn_to_event(turn, 0))
    with pytest.raises(JournalError, match="2 turns do not go with 0 replies"):
        play(environment, ScriptedEngine([]))


def test_a_turn_survives_the_journal_to_the_last_bit():
    logprobs = np.asarray([-1 / 3, -1e-30, np.float32(np.pi)], np.float32)
    sample = Sample(
        np.asarray([3, 2, 1], np.int32), logprobs, np.asarray([4, 4, 5], np.int32), Stop.CONTEXT,
        np.asarray([[3, -1], [2, 9], [1, 0]], np.int32),
    )  # fmt: skip
    event = json.loads(json.dumps(turn_to_event(Turn(np.asarray([8, 9], np.int32), sample), 2)))
    back = turn_from_event(event)
    assert event["segment"] == 2 and back.sample.stop is Stop.CONTEXT
    for name in ("ids_N", "logprobs_N", "versions_N", "support_NxK"):
        found, expected = getattr(back.sample, name), getattr(sample, name)
        assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()
    assert back.prompt_ids_P.tolist() == [8, 9]
