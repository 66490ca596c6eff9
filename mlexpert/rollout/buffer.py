"""Windows between the policy that wrote them and the learner that trains on them.

1. Every window that was opened has exactly one fate or none yet:
   opened == trained + expired + cancelled + failed + in flight + ready, after every call.
2. The bound on age acts on admission. A window opened now is trained after all that is ahead of it, one batch an
   update, so it is at most `max_age` versions old if fewer than (max_age + 1) * batch windows are ahead. While there
   are more, `room` is false and no new episode starts; what was started is finished and trained, oldest first.
3. The age of a window counts from its OLDEST token and includes the time in this buffer. A finished window expires, and
   is counted, only beyond `hard_age`: when episodes stall or yield far more windows than expected.
4. `state` is JSON and exact to the last bit, so that the buffer lives in the checkpoint with the weights.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from mlexpert.types import Credit, Fate, Outcome, Sample, Span, Stop, Turn, Window


class Buffer:
    """Admits, orders and hands out windows; holds no task and no thread."""

    def __init__(self, batch: int, max_age: int, hard_age: int | None = None):
        """`batch` windows an update; ages in weight versions. `hard_age` is 2 * max_age + 1 unless given."""
        if batch < 1 or max_age < 0:
            raise ValueError(f"batch must be at least 1 and max_age at least 0, got {batch} and {max_age}")
        self.batch = batch
        self.max_age = max_age
        self.hard_age = 2 * max_age + 1 if hard_age is None else hard_age
        if self.hard_age < max_age:
            raise ValueError(f"hard_age {self.hard_age} is below max_age {max_age}")
        self.version = 0
        self._in_flight: dict[str, None] = {}  # ordered set of window ids
        self._ready: list[Window] = []  # in order of arrival
        self._fates = dict.fromkeys(Fate, 0)
        self._n_opened = 0
        self._changed = asyncio.Event()

    # ------------------------------------------------------------ admission
    def room(self, in_flight: float) -> bool:
        """May a new episode start? `in_flight`: windows that the running episodes are expected to yield yet."""
        ahead = len(self._ready) + max(in_flight, len(self._in_flight))
        return ahead < (self.max_age + 1) * self.batch

    def opened(self, id: str) -> None:
        """A window has its first token. An episode that resumes at its last turn announces its open window again."""
        if id not in self._in_flight:
            self._in_flight[id] = None
            self._n_opened += 1

    def put(self, window: Window) -> None:
        """An execution closed the window. Raises KeyError if it was never opened or has its fate already."""
        self._close(window.id)
        self._ready.append(window)
        self._expire()
        self._changed.set()

    def cancel(self, id: str) -> None:
        """Its episode ended before an execution closed it. Raises KeyError as `put`."""
        self._close(id)
        self._fates[Fate.CANCELLED] += 1

    def fail(self, id: str) -> None:
        """Infrastructure failed under it: never an outcome, never trained. Raises KeyError as `put`."""
        self._close(id)
        self._fates[Fate.FAILED] += 1

    # ------------------------------------------------------------ the learner's side
    def advance(self, version: int) -> None:
        """Weights of `version` are published: windows that are now older than `hard_age` expire."""
        if version < self.version:
            raise ValueError(f"version went back from {self.version} to {version}")
        self.version = version
        self._expire()

    def ready(self) -> bool:
        """Is there a whole batch?"""
        return len(self._ready) >= self.batch

    async def wait(self) -> None:
        """Returns when there is a whole batch."""
        while not self.ready():
            self._changed.clear()
            await self._changed.wait()

    def take(self) -> list[Window]:
        """Exactly `batch` windows, oldest first (ties: first come). Raises LookupError if there are fewer."""
        if not self.ready():
            raise LookupError(f"{len(self._ready)} windows are ready, a batch needs {self.batch}; await wait() first")
        by_age = sorted(self._ready, key=lambda window: window.version)
        taken, left = by_age[: self.batch], {window.id for window in by_age[self.batch :]}
        self._ready = [window for window in self._ready if window.id in left]
        self._fates[Fate.TRAINED] += len(taken)
        return taken

    def age(self, window: Window) -> int:
        """Versions published since the window's oldest token was drawn."""
        return self.version - window.version

    # ------------------------------------------------------------ books
    @property
    def in_flight(self) -> tuple[str, ...]:
        """Ids of the windows that are open, in order of opening."""
        return tuple(self._in_flight)

    def counts(self) -> dict[str, int]:
        """`opened`, each fate, and the two kinds of pending windows: `in_flight` and `ready`."""
        fates = {fate.value: n for fate, n in self._fates.items()}
        return {"opened": self._n_opened, **fates, "in_flight": len(self._in_flight), "ready": len(self._ready)}

    def state(self) -> dict[str, Any]:
        """JSON-able and exact; `restore` takes it back."""
        return {
            "version": self.version,
            "opened": self._n_opened,
            "fates": {fate.value: n for fate, n in self._fates.items()},
            "in_flight": list(self._in_flight),
            "ready": [window_to_json(window) for window in self._ready],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes the books of a `state`. Raises ValueError when they do not add up.

        Open windows stay in flight: each belongs to an episode that resumes, or must be cancelled by the caller.
        """
        pending = len(state["in_flight"]) + len(state["ready"])
        if state["opened"] != sum(state["fates"].values()) + pending:
            raise ValueError(
                f"buffer state does not add up: opened {state['opened']}, {state['fates']}, {pending} pending"
            )
        self.version = state["version"]
        self._n_opened = state["opened"]
        self._fates = {fate: state["fates"][fate.value] for fate in Fate}
        self._in_flight = dict.fromkeys(state["in_flight"])
        self._ready = [window_from_json(window) for window in state["ready"]]
        self._changed.set()

    def _close(self, id: str) -> None:
        if id not in self._in_flight:
            raise KeyError(f"window {id} is not in flight: never opened, or closed before")
        del self._in_flight[id]

    def _expire(self) -> None:
        kept = [window for window in self._ready if self.age(window) <= self.hard_age]
        self._fates[Fate.EXPIRED] += len(self._ready) - len(kept)
        self._ready = kept


# ---------------------------------------------------------------- windows as JSON
def array_to_json(array: np.ndarray) -> dict[str, Any]:
    """Raw little-endian bytes: exact for every value, NaN included, and a third of the size of printed numbers."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "bytes": base64.b64encode(array.tobytes()).decode("ascii"),
    }


def array_from_json(data: Mapping[str, Any]) -> np.ndarray:
    dtype = np.dtype(data["dtype"])
    flat = np.frombuffer(base64.b64decode(data["bytes"]), dtype).reshape(data["shape"])
    return flat.astype(dtype.newbyteorder("="))


def window_to_json(window: Window) -> dict[str, Any]:
    return {
        "id": window.id,
        "episode": window.episode,
        "task": window.task,
        "index": window.index,
        "credit": asdict(window.credit),
        "spans": [
            {
                "segment": span.segment,
                "context": array_to_json(span.context_ids_P),
                "turns": [_turn_to_json(turn) for turn in span.turns],
            }
            for span in window.spans
        ],
    }


def window_from_json(data: Mapping[str, Any]) -> Window:
    credit = data["credit"]
    spans = tuple(
        Span(span["segment"], array_from_json(span["context"]), tuple(_turn_from_json(turn) for turn in span["turns"]))
        for span in data["spans"]
    )
    return Window(
        id=data["id"],
        episode=data["episode"],
        task=data["task"],
        index=data["index"],
        spans=spans,
        credit=Credit(Outcome(credit["outcome"]), credit["reward"], credit["trend"]),
    )


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    sample = turn.sample
    support = None if sample.support_NxK is None else array_to_json(sample.support_NxK)
    return {
        "prompt": array_to_json(turn.prompt_ids_P),
        "ids": array_to_json(sample.ids_N),
        "logprobs": array_to_json(sample.logprobs_N),
        "versions": array_to_json(sample.versions_N),
        "stop": sample.stop.value,
        "support": support,
    }


def _turn_from_json(data: Mapping[str, Any]) -> Turn:
    sample = Sample(
        ids_N=array_from_json(data["ids"]),
        logprobs_N=array_from_json(data["logprobs"]),
        versions_N=array_from_json(data["versions"]),
        stop=Stop(data["stop"]),
        support_NxK=None if data["support"] is None else array_from_json(data["support"]),
    )
    return Turn(array_from_json(data["prompt"]), sample)
