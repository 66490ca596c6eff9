"""The records that cross rooms: frozen, small, and free of any logic that a reader would have to trace.

Arrays are numpy until they enter `train`. Shape letters, here and in every file that uses them:

    B  rows of a batch             T  positions in a row         W  windows in a batch
    N  sampled tokens of a turn    P  prompt (unsampled) tokens  K  size of the sampling support
    S  slots of an engine          L  layers                     V  vocabulary      D  model width

A token's log-prob is always the one of algorithms' single definition: log-softmax of logits / temperature in
float32, restricted to the recorded sampling support and renormalised over it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


# ---------------------------------------------------------------- what the engine returns
class Stop(enum.StrEnum):
    END_TURN = "end_turn"  # the policy closed its turn
    LENGTH = "length"  # the turn reached its token limit
    CONTEXT = "context"  # the context has no room for one more token


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. `top_k` 0 and `top_p` 1 mean no truncation."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class Sample:
    """One turn of the policy as the engine drew it: tokens are born here and never re-encoded."""

    ids_N: np.ndarray  # int32, the closing token included
    logprobs_N: np.ndarray  # float32, under the distribution each token was drawn from
    versions_N: np.ndarray  # int32, weight version that drew each token
    stop: Stop
    support_NxK: np.ndarray | None = None  # int32, -1 padded; None when nothing was truncated


@dataclass(frozen=True)
class Turn:
    """What was appended to the context before sampling, then what was sampled."""

    prompt_ids_P: np.ndarray  # int32
    sample: Sample


# ---------------------------------------------------------------- what the policy asks for
@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: Mapping[str, str]
    think: str = ""


@dataclass(frozen=True)
class Malformed:
    """A turn that is neither a tool call nor an ending; `reason` may be shown to the policy."""

    reason: str
    think: str = ""


@dataclass(frozen=True)
class Finish:
    """A turn without a tool call: the policy declares itself done."""

    text: str
    think: str = ""


Action = ToolCall | Malformed | Finish


# ---------------------------------------------------------------- what the sandbox returns
class ExecStatus(enum.StrEnum):
    OK = "ok"
    ERROR = "error"  # exit code other than 0, or an uncaught exception
    TIMEOUT = "timeout"
    OOM = "oom"
    KILLED = "killed"  # ended by a signal
    PIDS = "pids"
    DISK = "disk"
    SETUP_FAILED = "setup_failed"  # infrastructure: never an outcome, never a reward


@dataclass(frozen=True)
class Limits:
    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_mb: int = 1024
    pids: int = 64
    disk_mb: int = 64
    output_kb: int = 64
    open_files: int = 256


@dataclass(frozen=True)
class Isolation:
    """What is really enforced, and one line on what is not and why."""

    kind: str  # "docker", "namespaces", "user", "landlock", "plain"
    files: bool
    network: bool
    processes: bool
    memory: bool
    cpu: bool
    disk: bool
    note: str = ""


@dataclass(frozen=True)
class Execution:
    status: ExecStatus
    exit_code: int | None
    signal: int | None
    exception: str  # class name, "" if none
    message: str  # the exception's message, "" if none
    stdout: str  # head and tail of what a terminal would show, capped while streaming
    stderr: str
    truncated: bool
    wall_s: float
    cpu_s: float
    peak_mb: float
    isolation: Isolation
    files: Mapping[str, Path] = field(default_factory=dict)  # collected file name -> host copy
    reason: str = ""  # one line: why it did not end ok, or what went wrong although it did; of SETUP_FAILED, the fault
    oom_kills: int = 0  # processes killed for memory; with status OK a child died and the script went on
    stdout_bytes: int = 0  # received, whatever is shown of them
    stderr_bytes: int = 0
    queued_s: float = 0.0  # waiting for a slot, not part of wall_s


# ---------------------------------------------------------------- what an answer is worth
class VerdictStatus(enum.StrEnum):
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    INVALID = "invalid"
    GRADED = "graded"


class Medal(enum.IntEnum):
    NONE = 0
    BRONZE = 1
    SILVER = 2
    GOLD = 3


@dataclass(frozen=True)
class Verdict:
    """`reason` is derived from the sample submission alone, so the policy may read it; nothing else here is for it."""

    status: VerdictStatus
    reason: str = ""
    score: float | None = None  # hidden test score, full precision
    medal: Medal = Medal.NONE
    above_median: bool = False
    lower_is_better: bool = False
    quality: float = 0.0  # place of the score between the sample submission (0) and gold (1), clipped


@dataclass(frozen=True)
class Result:
    """One execution and what its submission was worth."""

    execution: Execution
    verdict: Verdict


# ---------------------------------------------------------------- the unit of credit
class Outcome(enum.StrEnum):
    ERROR = "error"
    NO_SUBMISSION = "no_submission"
    VALID = "valid"
    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


@dataclass(frozen=True)
class Credit:
    outcome: Outcome
    reward: float
    trend: float


# Credit of the last result, given all results of the episode so far. An infrastructure failure is not a result.
CreditRule = Callable[[Sequence[Result]], Credit]


class Fate(enum.StrEnum):
    TRAINED = "trained"
    EXPIRED = "expired"  # older than the hard bound when its turn came
    CANCELLED = "cancelled"  # its episode ended before an execution closed it
    FAILED = "failed"  # infrastructure


@dataclass(frozen=True)
class Span:
    """The turns of one window inside one context segment; `context_ids_P` is all of the segment before them."""

    segment: int
    context_ids_P: np.ndarray
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Window:
    """All tokens the policy wrote between two execution results, with the outcome they share."""

    id: str  # "<episode>/<index>"
    episode: str
    task: str
    index: int
    spans: tuple[Span, ...]
    credit: Credit

    @property
    def version(self) -> int:
        """Weight version of the window's OLDEST token: age counts from here."""
        return min(int(turn.sample.versions_N.min()) for span in self.spans for turn in span.turns)

    @property
    def n_sampled(self) -> int:
        return sum(len(turn.sample.ids_N) for span in self.spans for turn in span.turns)


class Ending(enum.StrEnum):
    DONE = "done"  # the policy finished
    STEPS = "steps"
    TOKENS = "tokens"
    WALL = "wall"
    MALFORMED = "malformed"  # too many malformed turns in a row
    CONTEXT = "context"  # not even a fresh segment fits
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class Episode:
    id: str
    task: str
    ending: Ending
    answer: Verdict  # of the answer node, graded on the hidden labels
    results: tuple[Result, ...]
    credits: tuple[Credit, ...]
    n_turns: int
    n_sampled: int
    n_prompt: int
    n_malformed: int
    n_segments: int
    wall_s: float


# ---------------------------------------------------------------- what the learner eats
@dataclass(frozen=True)
class Batch:
    """Fixed-shape packed rows. Entry t of a per-token array speaks of token t given those before it."""

    tokens_BxT: np.ndarray  # int32
    segments_BxT: np.ndarray  # int32, 0 is padding
    positions_BxT: np.ndarray  # int32, restart at 0 in every segment
    window_BxT: np.ndarray  # int32 index into W for sampled tokens, -1 elsewhere
    logprobs_BxT: np.ndarray  # float32, the sampler's; 0 where window is -1
    support_BxTxK: np.ndarray | None  # int32, -1 padded
    advantages_W: np.ndarray  # float32
    counts_W: np.ndarray  # int32, all sampled tokens of the window
