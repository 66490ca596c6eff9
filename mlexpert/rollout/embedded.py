"""An engine inside the learner's process: continuous batching over the slots of one key-value cache.

1. A worker task repeats: apply a weight swap, give waiting requests their slots, prefill what is new in them, decode
   one chunk of at most `chunk` tokens in every active slot, hand out finished turns. Requests join and leave, and
   weights change, only between chunks.
2. Shapes are fixed: all slots are decoded together, a row without work has no effect; prefill comes in few sizes.
   So a handful of programs is compiled once, and the host waits for the device once a chunk.
3. Device work runs in one thread of its own. The cache is touched there and nowhere else. An exception in it ends the
   worker and reaches every waiter.
4. A request extends what its episode's slot holds, or starts the slot over and is counted (see slots.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from mlexpert.model.config import ModelConfig
from mlexpert.model.transformer import init_cache
from mlexpert.rollout.engine import EngineError, EngineStats, Fingerprint, Params, Request, check_request, checked
from mlexpert.rollout.programs import Drawn, Lanes, decode, forward_logprobs, prefill, served_logprobs
from mlexpert.rollout.slots import Piece, Slot, Slots, Ticket, finished
from mlexpert.rollout.weights import checksum
from mlexpert.types import Sample, Sampling

PREFILL_ROWS = (1, 4)  # sizes of a prefill: as many rows and columns as the work at hand needs, rounded up; more
PREFILL_WIDTHS = (16, 64)  # takes several rounds, which costs nothing as prefill time grows with tokens, not rounds
READ_STEP = 128  # decoding looks at the cache up to the longest active context, rounded up to this
PROBE_TOKENS = 24

T = TypeVar("T")


class Weights(NamedTuple):
    """A set of weights and its version travel together, so that no token can carry the other's number."""

    params: Params
    version: int


@dataclass(frozen=True)
class Order:
    """The device work between two visits of the worker: what to prefill, then one chunk for each kind of sampling."""

    weights: Weights
    extensions: tuple[tuple[int, int, np.ndarray], ...]  # slot, first position, ids
    chunks: tuple[tuple[Sampling, Lanes, int], ...]  # with the cached positions to look at


class EmbeddedEngine:
    """`Engine` on this process's own devices.

    `length` bounds a context with its turn; memory is slots * length. A slot idle for `patience_s` seconds may go to
    another episode: with more episodes than slots, keep it above the time of an execution.
    """

    def __init__(
        self,
        config: ModelConfig,
        params: Params,
        slots: int = 16,
        length: int = 512,
        chunk: int = 8,
        version: int = 0,
        patience_s: float = 2.0,
    ):
        self.config, self.length, self.chunk = config, length, chunk
        self._weights = Weights(jax.tree.map(jnp.copy, params), version)
        self._slots = Slots(slots, length, patience_s)
        self._cache = init_cache(config, slots, length)
        self._stats = EngineStats()
        self._waiting: list[Ticket] = []
        self._swaps: deque[tuple[Weights, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "engine")
        self._worker: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        if self._worker is not None:
            raise EngineError("the engine was started before; build a new one")
        self._worker = asyncio.create_task(self._serve(), name="engine")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._worker is not None
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)
        self._thread.shutdown()
        died = self._error
        self._fail(died or EngineError("the engine was closed"))
        if died is not None and exc_info[0] is None:
            raise EngineError("the engine's worker ended") from died

    @property
    def version(self) -> int:
        return self._weights.version

    @property
    def stats(self) -> EngineStats:
        self._stats.restarts, self._stats.evictions = self._slots.restarts, self._slots.evictions
        return self._stats

    async def sample(self, request: Request) -> Sample:
        self._require_worker()
        check_request(request, self.length, self.config.vocab_size)
        tickets = [slot.ticket for slot in self._slots.active()] + self._waiting
        if any(t and t.request.episode == request.episode and not t.answer.done() for t in tickets):
            raise ValueError(
                f"episode {request.episode} has a request under way; an episode samples one turn at a time"
            )
        limit = min(request.max_tokens, self.length - len(request.ids_P))
        ticket = Ticket(request, asyncio.get_running_loop().create_future(), limit)
        self._waiting.append(ticket)
        self._stats.requests += 1
        self._wake.set()
        return await ticket.answer

    def release(self, episode: str) -> None:
        self._slots.release(episode)
        self._wake.set()

    async def swap(self, params: Params, version: int) -> None:
        """Takes a copy of `params`, so the caller may donate them afterwards. Raises ValueError for another tree."""
        _check_same_tree(self._weights.params, params)
        weights = Weights(jax.tree.map(jnp.copy, params), version)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._swaps.append((weights, done))
        if self._worker is None:
            self._apply_swaps()
        else:
            self._require_worker()
        self._wake.set()
        await done

    def checksum(self) -> str:
        return checksum(self._weights.params)

    async def fingerprint(self) -> Fingerprint:
        return await asyncio.to_thread(self._fingerprint, self._weights.params, served_logprobs)

    def expected(self, params: Params) -> Fingerprint:
        return self._fingerprint(params, forward_logprobs)

    async def warm(self, samplings: Sequence[Sampling] = (Sampling(),)) -> None:
        """Compiles every program that requests with these samplings can need, without touching any slot."""
        await self._in_thread(self._warm, samplings)

    # ------------------------------------------------------------ the worker, on the event loop
    async def _serve(self) -> None:
        try:
            while True:
                self._apply_swaps()
                self._admit()
                if not self._slots.active():
                    await self._nap()
                    continue
                tickets = {slot.index: slot.ticket for slot in self._slots.active()}
                order = self._order()
                self._deliver(tickets, await self._in_thread(self._execute, order), order.weights.version)
        except Exception as error:
            self._fail(error)
            raise

    async def _nap(self) -> None:
        """Until something happens, or an idle slot may be given to who waits for one."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), self._slots.patience_s if self._waiting else None)

    def _apply_swaps(self) -> None:
        while self._swaps:
            self._weights, done = self._swaps.popleft()
            self._stats.swaps += 1
            if not done.done():
                done.set_result(None)

    def _admit(self) -> None:
        for slot in self._slots.active():
            if slot.ticket is not None and slot.ticket.answer.done():  # its waiter was cancelled
                self._slots.idle(slot)
        self._waiting = [ticket for ticket in self._waiting if not ticket.answer.done()]
        self._waiting = [ticket for ticket in self._waiting if not self._enter(ticket)]

    def _enter(self, ticket: Ticket) -> bool:
        """The ticket is in a slot. Episodes that hold one never queue behind those that wait for one."""
        slot = self._slots.assign(ticket)
        if slot is None:
            return False
        self._stats.reused_tokens += slot.cached
        return True

    def _order(self) -> Order:
        active = self._slots.active()
        extensions = tuple(
            (slot.index, slot.cached, slot.held_C[slot.cached : slot.known - 1].copy())
            for slot in active
            if slot.cached < slot.known - 1
        )
        groups: dict[Sampling, list[Slot]] = {}
        for slot in active:
            assert slot.ticket is not None
            groups.setdefault(slot.ticket.request.sampling, []).append(slot)
            slot.cached = slot.known - 1
        chunks = tuple((sampling, self._lanes(group), self._read(group)) for sampling, group in groups.items())
        return Order(self._weights, extensions, chunks)

    def _lanes(self, group: Sequence[Slot]) -> Lanes:
        n = len(self._slots.all)
        token_S, position_S, left_S, stop_S = (np.zeros(n, np.int32) for _ in range(4))
        seed_Sx2 = np.zeros((n, 2), np.uint32)
        for slot in group:
            s, ticket = slot.index, slot.ticket
            assert ticket is not None
            token_S[s], position_S[s] = slot.held_C[slot.known - 1], slot.known - 1
            left_S[s], stop_S[s] = ticket.limit - ticket.drawn, ticket.request.stop_id
            seed_Sx2[s] = divmod(ticket.request.seed, 2**32)
        return Lanes(*(jnp.asarray(array) for array in (token_S, position_S, left_S, stop_S, seed_Sx2)))

    def _read(self, group: Sequence[Slot]) -> int:
        longest = max(slot.known for slot in group) - 1 + self.chunk
        return min(-(-longest // READ_STEP) * READ_STEP, self.length)

    def _deliver(self, tickets: dict[int, Ticket | None], chunks: Sequence[Drawn], version: int) -> None:
        for drawn in chunks:
            for s in np.flatnonzero(drawn.counts_S):
                slot, n = self._slots.all[s], int(drawn.counts_S[s])
                self._stats.sampled_tokens += n
                if slot.ticket is None or slot.ticket is not tickets.get(slot.index):  # released meanwhile
                    continue
                support = None if drawn.support_NxSxK is None else np.array(drawn.support_NxSxK[:n, s])
                slot.append(
                    Piece(np.array(drawn.ids_NxS[:n, s]), np.array(drawn.logprobs_NxS[:n, s]), support, version)
                )
                sample = finished(slot.ticket)
                if sample is not None:
                    if not slot.ticket.answer.done():
                        slot.ticket.answer.set_result(checked(sample, slot.ticket.request))
                    self._slots.idle(slot)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        waiters = [slot.ticket.answer for slot in self._slots.active() if slot.ticket is not None]
        waiters += [ticket.answer for ticket in self._waiting] + [done for _, done in self._swaps]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(EngineError(f"the engine's worker ended: {error!r}"))

    def _require_worker(self) -> None:
        if self._error is not None:
            raise EngineError("the engine's worker ended") from self._error
        if self._worker is None:
            raise EngineError("the engine is not running; use `async with engine:`")

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    # ------------------------------------------------------------ device work, in the engine's thread
    def _execute(self, order: Order) -> list[Drawn]:
        begin = time.perf_counter()
        self._prefill(order.weights.params, list(order.extensions))
        chunks = []
        for sampling, lanes, read in order.chunks:
            drawn, self._cache = decode(
                order.weights.params, self.config, self._cache, lanes, sampling, self.chunk, read
            )
            chunks.append(drawn)
        chunks = jax.device_get(chunks)
        self._stats.steps += sum(int(drawn.steps) for drawn in chunks)
        self._stats.busy_s += time.perf_counter() - begin
        return chunks

    def _prefill(self, params: Params, extensions: list[tuple[int, int, np.ndarray]]) -> None:
        """In rounds: the longest extensions first, so that rows of one round have similar lengths."""
        while extensions:
            extensions.sort(key=lambda extension: -len(extension[2]))
            now = extensions[: min(PREFILL_ROWS[-1], len(self._slots.all))]
            rows = _fit(len(now), PREFILL_ROWS, len(self._slots.all))
            width = _fit(len(now[0][2]), PREFILL_WIDTHS, PREFILL_WIDTHS[-1])
            self._prefill_round(params, now, rows, width)
            rest = [(slot, start + width, ids[width:]) for slot, start, ids in now if len(ids) > width]
            extensions = rest + extensions[len(now) :]

    def _prefill_round(self, params: Params, now: Sequence[tuple[int, int, np.ndarray]], rows: int, width: int) -> None:
        taken = [slot for slot, _, _ in now]
        others = [slot.index for slot in self._slots.all if slot.index not in taken]
        tokens_RxP = np.zeros((rows, width), np.int32)
        starts_R, counts_R = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        slots_R = np.array((taken + others)[:rows], np.int32)
        for r, (_, start, ids) in enumerate(now):
            starts_R[r], counts_R[r] = start, min(len(ids), width)
            tokens_RxP[r, : counts_R[r]] = ids[:width]
        self._cache = prefill(params, self.config, self._cache, tokens_RxP, starts_R, counts_R, slots_R)
        self._stats.prompt_tokens += int(counts_R.sum())

    def _warm(self, samplings: Sequence[Sampling]) -> None:
        params = self._weights.params
        for rows in {_fit(n, PREFILL_ROWS, len(self._slots.all)) for n in PREFILL_ROWS}:
            for width in PREFILL_WIDTHS:
                self._prefill_round(params, [], rows, width)
        for sampling in samplings:
            for read in sorted({min(n, self.length) for n in range(READ_STEP, self.length + READ_STEP, READ_STEP)}):
                lanes = self._lanes([])
                _, self._cache = decode(params, self.config, self._cache, lanes, sampling, self.chunk, read)
        jax.block_until_ready(self._cache)

    def _fingerprint(self, params: Params, logprobs: Callable[..., jax.Array]) -> Fingerprint:
        ids_P = np.arange(PROBE_TOKENS, dtype=np.int32) * 7919 % self.config.vocab_size
        return Fingerprint(checksum(params), np.asarray(logprobs(params, self.config, ids_P)))


def _fit(n: int, sizes: Sequence[int], most: int) -> int:
    """The smallest of `sizes` that holds n, at most `most`."""
    return min(next((size for size in sizes if size >= n), most), most)


def _check_same_tree(old: Params, new: Params) -> None:
    old_shapes, new_shapes = (
        {
            jax.tree_util.keystr(path): (leaf.shape, leaf.dtype)
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        }
        for tree in (old, new)
    )
    if old_shapes != new_shapes:
        name = next(n for n in {**old_shapes, **new_shapes} if old_shapes.get(n) != new_shapes.get(n))
        raise ValueError(f"weight {name} is {new_shapes.get(name)}, the engine serves {old_shapes.get(name)}")
