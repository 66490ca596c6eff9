"""What samples tokens, whoever runs it.

1. Tokens are born once: an engine is given ids and answers with ids; no text crosses this border.
2. Every sampled token comes with its log-prob under the distribution it was drawn from and with the weight version
   that drew it. One that misses either raises (`checked`): nothing is filled in.
3. New weights may arrive in the middle of a turn. The turn goes on, its later tokens carry the new version, and what
   was cached of earlier tokens stays as the older weights computed it.
4. An engine says what it serves: `fingerprint` is measured on the weights in use, never on a counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from mlexpert.types import Sample, Sampling

Params = dict[str, Any]  # nested, with arrays as leaves


class EngineError(RuntimeError):
    """The engine cannot answer, or answered with something that must not be trained on."""


@dataclass(frozen=True)
class Request:
    """One turn to sample. `ids_P` is the whole context of the episode's current segment, not only what is new.

    The draw depends on (seed, position in the context) alone, so a turn does not change with its neighbours.
    """

    episode: str
    ids_P: np.ndarray  # int32
    max_tokens: int
    stop_id: int
    sampling: Sampling
    seed: int  # 0 <= seed < 2**64


@dataclass(frozen=True)
class Fingerprint:
    """What a set of weights is and does: a checksum of all leaves, and the log-probs of a fixed probe text."""

    checksum: str
    logprobs_P: np.ndarray  # float32


@dataclass
class EngineStats:
    """Running totals since the engine was built. Tokens are counts, `busy_s` is seconds of accelerator work."""

    requests: int = 0
    prompt_tokens: int = 0  # run through the model
    reused_tokens: int = 0  # already in the cache
    sampled_tokens: int = 0
    steps: int = 0  # decode steps, each over all slots
    restarts: int = 0  # a request did not extend what its slot held
    evictions: int = 0  # an idle slot was given to another episode
    swaps: int = 0
    busy_s: float = 0.0


class Engine(Protocol):
    """Samples turns for many episodes at once; used as `async with engine:`, which runs and ends its worker."""

    @property
    def version(self) -> int:
        """Version of the weights that draw the next token."""
        ...

    @property
    def stats(self) -> EngineStats: ...

    async def sample(self, request: Request) -> Sample:
        """One turn. Raises ValueError for a request that cannot be served, EngineError if the engine failed."""
        ...

    def release(self, episode: str) -> None:
        """The episode is over (or starts a new segment): what is cached for it may go. Unknown names are no error."""
        ...

    async def swap(self, params: Params, version: int) -> None:
        """Serve `params` from the next token on. No request is lost; sampling goes on afterwards whatever happens."""
        ...

    def checksum(self) -> str:
        """Checksum of the weights in use."""
        ...

    async def fingerprint(self) -> Fingerprint:
        """Measured on the weights in use, by the code that serves them."""
        ...

    def expected(self, params: Params) -> Fingerprint:
        """What `fingerprint` must be once `params` are served, computed without the serving path."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...


def check_request(request: Request, length: int, vocab_size: int) -> None:
    """Raises ValueError when `request` can never be served by an engine with contexts of `length` tokens."""
    ids_P, sampling = request.ids_P, request.sampling
    who = f"episode {request.episode}"
    if ids_P.ndim != 1 or not np.issubdtype(ids_P.dtype, np.integer):
        raise ValueError(f"{who}: ids must be a vector of integers, got {ids_P.dtype}{ids_P.shape}")
    if not 0 < len(ids_P) < length:
        raise ValueError(
            f"{who}: a context of {len(ids_P)} tokens leaves no room in {length}; start a new segment before it fills, "
            "or build the engine with a larger length"
        )
    if ids_P.min() < 0 or ids_P.max() >= vocab_size:
        raise ValueError(f"{who}: ids outside the vocabulary of {vocab_size}: {ids_P.min()}..{ids_P.max()}")
    if request.max_tokens < 1:
        raise ValueError(f"{who}: max_tokens must be at least 1, got {request.max_tokens}")
    if not 0 <= request.seed < 2**64:
        raise ValueError(f"{who}: seed must lie in [0, 2**64), got {request.seed}")
    if sampling.temperature <= 0 or sampling.top_k < 0 or not 0 < sampling.top_p <= 1:
        raise ValueError(f"{who}: {sampling} is no distribution; for greedy decoding use top_k=1")


def checked(sample: Sample, request: Request) -> Sample:
    """`sample` itself. Raises EngineError when a token misses its log-prob or version, or lies outside its support."""
    n = len(sample.ids_N)
    who = f"episode {request.episode}"
    if n == 0 or sample.logprobs_N.shape != (n,) or sample.versions_N.shape != (n,):
        raise EngineError(
            f"{who}: {n} tokens with {sample.logprobs_N.size} log-probs and {sample.versions_N.size} versions"
        )
    if not np.isfinite(sample.logprobs_N).all():
        at = int(np.flatnonzero(~np.isfinite(sample.logprobs_N))[0])
        raise EngineError(
            f"{who}: log-prob of sampled token {at} is {sample.logprobs_N[at]} under weight version "
            f"{sample.versions_N[at]}; the weights or the logits are not finite"
        )
    if sample.support_NxK is not None and not (sample.support_NxK == sample.ids_N[:, None]).any(-1).all():
        raise EngineError(f"{who}: a sampled token lies outside its recorded support")
    return sample
