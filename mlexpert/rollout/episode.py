"""One episode: the policy's turns against an environment, cut into windows that are shipped while it still runs.

1. Context = opening, then sampled turn, extension, sampled turn, ...: append-only, and what the engine drew is kept.
2. A window is all that the policy wrote after one execution result up to the call that produced the next. It is shipped
   in the moment of that result. An infrastructure failure is no result: the open window fails and the next turn opens
   another. What is written after the last result is cancelled.
3. If the next turn might not fit into the context, a new segment starts from the opening and the environment's summary;
   the open window then has one span in each segment.
4. An episode is a fold over (turn, reply) pairs and lives in the journal alone: a turn is journaled as soon as it is
   drawn, its reply by the environment. Played again on the same journal, the episode goes on at its last turn, and
   windows that were closed by then are not shipped again.
5. A reply reaches the journal and its window gets its fate without an `await` between. Whoever saves the windows' books
   and the journals' lengths together, on the event loop, therefore loses no window and sees none twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Protocol

import numpy as np

from mlexpert.harness.environment import Environment
from mlexpert.harness.journal import JournalError
from mlexpert.harness.state import Reply
from mlexpert.rollout.engine import Engine, Request, checked
from mlexpert.rollout.renderer import Renderer
from mlexpert.types import Credit, CreditRule, Ending, Episode, Sample, Sampling, Span, Stop, Turn, Window


@dataclass(frozen=True)
class EpisodeLimits:
    """All in tokens. A turn is only started in a context with room for all of it."""

    turn_tokens: int  # sampled, per turn
    context_tokens: int  # per segment, prompt and sampled; at most the engine's length
    total_tokens: int  # sampled, per episode

    def __post_init__(self) -> None:
        if not 0 < self.turn_tokens < self.context_tokens or self.total_tokens < 1:
            raise ValueError(f"a turn must fit into a context and the total be positive: {self}")


class Windows(Protocol):
    """Who keeps the windows' books: `rollout.buffer.Buffer` in training, `Discard` in evaluation."""

    def opened(self, id: str) -> None:
        """Its first token is about to be drawn. Said again when the episode resumes with this window open."""
        ...

    def put(self, window: Window) -> None: ...

    def cancel(self, id: str) -> None: ...

    def fail(self, id: str) -> None: ...


class Discard:
    """Keeps no windows."""

    def opened(self, id: str) -> None:
        pass

    def put(self, window: Window) -> None:
        pass

    def cancel(self, id: str) -> None:
        pass

    def fail(self, id: str) -> None:
        pass


@dataclass(frozen=True)
class _Play:
    """What an episode is played with; the same from its first turn to its last."""

    id: str
    environment: Environment
    renderer: Renderer
    engine: Engine
    limits: EpisodeLimits
    sampling: Sampling
    credit: CreditRule
    windows: Windows
    seed: int


@dataclass(frozen=True)
class _Progress:
    """Where an episode stands between two turns, or between a turn and its reply."""

    context_ids_P: np.ndarray  # all tokens of the current segment
    segment: int = 0
    index: int = 0  # of the open window
    spans: tuple[Span, ...] = ()  # of the open window; empty until its first turn
    credits: tuple[Credit, ...] = ()
    n_turns: int = 0
    n_sampled: int = 0
    n_prompt: int = 0


@dataclass(frozen=True)
class _Prompt:
    """What is appended before the next turn, and to which segment."""

    segment: int
    ids_P: np.ndarray


async def run_episode(
    id: str,
    environment: Environment,
    renderer: Renderer,
    engine: Engine,
    limits: EpisodeLimits,
    sampling: Sampling,
    credit: CreditRule,
    windows: Windows,
    seed: int,
) -> Episode:
    """Plays the episode from wherever the environment's journal ends to its ending.

    What engine, sandbox or grader raise passes through, and so does cancellation: the open window then stays open.
    An episode whose journal is complete returns at once and touches no window.

    Raises:
      JournalError: the journal's turns and replies do not belong together.
    """
    play = _Play(id, environment, renderer, engine, limits, sampling, credit, windows, seed)
    try:
        progress, waiting = _replayed(play)
        following = None if waiting else _next(play, progress)
        if progress.spans and not isinstance(following, Ending):
            windows.opened(_window_id(play, progress))
        while not isinstance(following, Ending):
            if following is not None:
                progress = await _draw(play, progress, following)
            progress = await _answer(play, progress)
            following = _next(play, progress)
            if progress.spans and isinstance(following, Ending):
                windows.cancel(_window_id(play, progress))
        return _episode(play, progress, following)
    finally:
        engine.release(id)


# ---------------------------------------------------------------- one turn and its reply
def _next(play: _Play, progress: _Progress) -> _Prompt | Ending:
    """How the context goes on, or why it does not."""
    environment, renderer, limits = play.environment, play.renderer, play.limits
    if environment.ending is not None:
        return environment.ending
    if progress.n_sampled >= limits.total_tokens:
        return Ending.TOKENS
    if progress.n_turns == 0:
        prompt = _Prompt(0, _opening(play))
        return prompt if len(prompt.ids_P) + limits.turn_tokens <= limits.context_tokens else Ending.CONTEXT
    reply, closed = environment.replies[-1], progress.context_ids_P[-1] == renderer.stop_id
    extend = renderer.correction if reply.kind == "correction" else renderer.observation
    extension = _Prompt(progress.segment, extend(reply.text, bool(closed)))
    if len(progress.context_ids_P) + len(extension.ids_P) + limits.turn_tokens <= limits.context_tokens:
        return extension
    fresh = _Prompt(progress.segment + 1, _opening(play, f"\n{environment.summary()}"))
    return fresh if len(fresh.ids_P) + limits.turn_tokens <= limits.context_tokens else Ending.CONTEXT


def _opening(play: _Play, summary: str = "") -> np.ndarray:
    opening = play.environment.opening()
    return play.renderer.opening(opening.system, opening.tools, f"{opening.user}{summary}")


async def _draw(play: _Play, progress: _Progress, prompt: _Prompt) -> _Progress:
    """Samples one turn and journals it."""
    if not progress.spans:
        play.windows.opened(_window_id(play, progress))
    if prompt.segment != progress.segment:
        play.engine.release(play.id)
    context_ids_P = np.concatenate([_context(progress, prompt.segment), prompt.ids_P])
    request = Request(
        episode=play.id,
        ids_P=context_ids_P,
        max_tokens=min(play.limits.turn_tokens, play.limits.total_tokens - progress.n_sampled),
        stop_id=play.renderer.stop_id,
        sampling=play.sampling,
        # A new stream per turn: two segments may draw at the same positions.
        seed=int(np.random.SeedSequence([play.seed, progress.n_turns]).generate_state(1, np.uint64)[0]),
    )
    turn = Turn(prompt.ids_P, checked(await play.engine.sample(request), request))
    play.environment.journal.append(turn_to_event(turn, prompt.segment))
    return _with_turn(progress, turn, prompt.segment)


async def _answer(play: _Play, progress: _Progress) -> _Progress:
    """Lets the environment answer the last turn, and settles the window if that closed it."""
    action = play.renderer.parse(progress.spans[-1].turns[-1].sample.ids_N)
    reply = await play.environment.step(action)
    after = _with_reply(play, progress, reply, len(play.environment.results))
    if reply.infrastructure:
        play.windows.fail(_window_id(play, progress))
    elif reply.result is not None:
        play.windows.put(
            Window(
                id=_window_id(play, progress),
                episode=play.id,
                task=play.environment.task.id,
                index=progress.index,
                spans=progress.spans,
                credit=after.credits[-1],
            )
        )
    return after


# ---------------------------------------------------------------- the fold
def _context(progress: _Progress, segment: int) -> np.ndarray:
    return progress.context_ids_P if segment == progress.segment else np.zeros(0, np.int32)


def _with_turn(progress: _Progress, turn: Turn, segment: int) -> _Progress:
    context_ids_P = _context(progress, segment)
    spans = progress.spans
    if spans and spans[-1].segment == segment:
        spans = (*spans[:-1], replace(spans[-1], turns=(*spans[-1].turns, turn)))
    else:
        spans = (*spans, Span(segment, context_ids_P, (turn,)))
    return replace(
        progress,
        context_ids_P=np.concatenate([context_ids_P, turn.prompt_ids_P, turn.sample.ids_N]),
        segment=segment,
        spans=spans,
        n_turns=progress.n_turns + 1,
        n_sampled=progress.n_sampled + len(turn.sample.ids_N),
        n_prompt=progress.n_prompt + len(turn.prompt_ids_P),
    )


def _with_reply(play: _Play, progress: _Progress, reply: Reply, n_results: int) -> _Progress:
    """After a reply, `n_results` results into the episode."""
    if reply.infrastructure:
        return replace(progress, index=progress.index + 1, spans=())
    if reply.result is None:
        return progress
    credit = play.credit(play.environment.results[:n_results])
    return replace(progress, index=progress.index + 1, spans=(), credits=(*progress.credits, credit))


def _replayed(play: _Play) -> tuple[_Progress, bool]:
    """Where the journal ends, and whether its last turn still waits for its reply."""
    journal, replies = play.environment.journal, play.environment.replies
    turns = [event for event in journal.events() if event["event"] == "turn"]
    if len(turns) - len(replies) not in (0, 1):
        raise JournalError(
            f"{journal.path}: {len(turns)} turns do not go with {len(replies)} replies; remove the file to start anew"
        )
    progress = _Progress(np.zeros(0, np.int32))
    for event, reply in zip_longest(turns, replies):
        progress = _with_turn(progress, turn_from_event(event), event["segment"])
        if reply is not None:
            progress = _with_reply(play, progress, reply, len(progress.credits) + 1)
    return progress, len(turns) > len(replies)


def _window_id(play: _Play, progress: _Progress) -> str:
    return f"{play.id}/{progress.index}"


def _episode(play: _Play, progress: _Progress, ending: Ending) -> Episode:
    environment = play.environment
    return Episode(
        id=play.id,
        task=environment.task.id,
        ending=ending,
        answer=environment.answer(),
        results=environment.results,
        credits=progress.credits,
        n_turns=progress.n_turns,
        n_sampled=progress.n_sampled,
        n_prompt=progress.n_prompt,
        n_malformed=environment.n_malformed,
        n_segments=progress.segment + 1 if progress.n_turns else 0,
        wall_s=environment.elapsed_s,
    )


# ---------------------------------------------------------------- a turn in the journal
def turn_to_event(turn: Turn, segment: int) -> dict:
    """One turn as a journal event: plain lists, exact for float32."""
    sample = turn.sample
    return {
        "event": "turn",
        "segment": segment,
        "prompt": turn.prompt_ids_P.tolist(),
        "ids": sample.ids_N.tolist(),
        "logprobs": sample.logprobs_N.tolist(),
        "versions": sample.versions_N.tolist(),
        "stop": sample.stop.value,
        "support": None if sample.support_NxK is None else sample.support_NxK.tolist(),
    }


def turn_from_event(event: Mapping) -> Turn:
    support = event["support"]
    sample = Sample(
        ids_N=np.asarray(event["ids"], np.int32),
        logprobs_N=np.asarray(event["logprobs"], np.float32),
        versions_N=np.asarray(event["versions"], np.int32),
        stop=Stop(event["stop"]),
        support_NxK=None if support is None else np.asarray(support, np.int32),
    )
    return Turn(np.asarray(event["prompt"], np.int32), sample)
