"""Which episode holds which rows of the engine's cache, and what lies in them. Host books only: no device array here.

A slot stays with its episode between turns, so a turn prefills only what was appended since: the last sampled token
and the observation. When the ids of a request do not extend what the slot holds, the slot starts over.

When no slot is free a request waits, since episodes end and give slots back. But it never waits for an episode that
may not come: a slot that has been idle for `patience_s` is given away (longest idle first), and its episode starts
over when it returns.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import numpy as np

from mlexpert.rollout.engine import Request
from mlexpert.types import Sample, Stop


@dataclass(frozen=True)
class Piece:
    """Tokens that one request received from one decode chunk."""

    ids_N: np.ndarray
    logprobs_N: np.ndarray
    support_NxK: np.ndarray | None
    version: int


@dataclass
class Ticket:
    """A request on its way, and where its answer goes."""

    request: Request
    answer: asyncio.Future[Sample]
    limit: int  # most tokens it may draw: its own limit or the room left in the context
    pieces: list[Piece] = field(default_factory=list)

    @property
    def drawn(self) -> int:
        return sum(len(piece.ids_N) for piece in self.pieces)


@dataclass
class Slot:
    index: int
    held_C: np.ndarray  # int32; the first `cached` ids are in the cache, the first `known` belong to the context
    episode: str | None = None
    ticket: Ticket | None = None
    cached: int = 0
    known: int = 0
    idle_since: float = 0.0  # monotonic seconds

    def load(self, ticket: Ticket) -> bool:
        """Takes a request; False when what the slot held was of no use to it. The last id is left to the decoder."""
        ids_P = ticket.request.ids_P
        extends = self.cached < len(ids_P) and np.array_equal(ids_P[: self.cached], self.held_C[: self.cached])
        self.cached = self.cached if extends else 0
        self.known = len(ids_P)
        self.held_C[: self.known] = ids_P
        self.ticket = ticket
        return extends

    def append(self, piece: Piece) -> None:
        """What a chunk drew: every token but the newest has been fed back, so it is cached."""
        assert self.ticket is not None
        self.ticket.pieces.append(piece)
        self.held_C[self.known : self.known + len(piece.ids_N)] = piece.ids_N
        self.known += len(piece.ids_N)
        self.cached = self.known - 1


class Slots:
    """All slots of an engine. Invariants: an episode has at most one slot, a ticket lies in at most one."""

    def __init__(self, n_slots: int, length: int, patience_s: float):
        self.all = [Slot(index, np.zeros(length, np.int32)) for index in range(n_slots)]
        self.patience_s = patience_s
        self._of: dict[str, Slot] = {}
        self.restarts = 0
        self.evictions = 0

    def active(self) -> list[Slot]:
        return [slot for slot in self.all if slot.ticket is not None]

    def assign(self, ticket: Ticket) -> Slot | None:
        """Puts the ticket into its episode's slot, a free one or one to give away; None when it must wait."""
        slot = self._of.get(ticket.request.episode) or self._vacate()
        if slot is None:
            return None
        if slot.episode is None:
            slot.episode, slot.cached = ticket.request.episode, 0
            self._of[ticket.request.episode] = slot
        self.restarts += not slot.load(ticket)
        return slot

    def idle(self, slot: Slot) -> None:
        """The slot's request is answered or given up; the episode keeps the slot."""
        slot.ticket, slot.idle_since = None, time.monotonic()

    def release(self, episode: str) -> None:
        """The slot becomes free. A request still in it is cancelled."""
        slot = self._of.pop(episode, None)
        if slot is None:
            return
        if slot.ticket is not None:
            slot.ticket.answer.cancel()
        slot.episode, slot.ticket, slot.cached = None, None, 0

    def _vacate(self) -> Slot | None:
        free = next((slot for slot in self.all if slot.episode is None), None)
        if free is not None:
            return free
        idle = [slot for slot in self.all if slot.ticket is None]
        slot = min(idle, key=lambda slot: slot.idle_since, default=None)
        if slot is None or time.monotonic() - slot.idle_since < self.patience_s:
            return None
        assert slot.episode is not None
        self.release(slot.episode)
        self.evictions += 1
        return slot


def finished(ticket: Ticket) -> Sample | None:
    """The turn, once its newest token closed it or reached its limit."""
    last = ticket.pieces[-1].ids_N[-1] if ticket.pieces else None
    request = ticket.request
    if last == request.stop_id:
        stop = Stop.END_TURN
    elif ticket.drawn < ticket.limit:
        return None
    else:
        stop = Stop.LENGTH if ticket.limit == request.max_tokens else Stop.CONTEXT
    pieces = ticket.pieces
    supports = [piece.support_NxK for piece in pieces if piece.support_NxK is not None]
    return Sample(
        ids_N=np.concatenate([piece.ids_N for piece in pieces]),
        logprobs_N=np.concatenate([piece.logprobs_N for piece in pieces]),
        versions_N=np.concatenate([np.full(len(piece.ids_N), piece.version, np.int32) for piece in pieces]),
        stop=stop,
        support_NxK=np.concatenate(supports) if supports else None,
    )
