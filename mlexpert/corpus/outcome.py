"""Outcome-guided supervision (MLExpert): which part of a teacher's episode is worth imitating.

Keep the prefix that ends at the best-scored execution if its quality is at least eta; what follows the peak is cut
when performance fell by more than delta, judged by the last scored execution after the peak (a tail of failures
alone counts as a fall). Quality is the place of a score between the sample submission (0) and gold (1).
"""

from __future__ import annotations

from collections.abc import Sequence

ETA = 0.4
DELTA = 0.05


def executions_to_keep(qualities: Sequence[float | None], eta: float = ETA, delta: float = DELTA) -> int:
    """How many executions to keep: 0 drops the episode, `len(qualities)` keeps all of it.

    `qualities` has one entry per execution; None is an execution without a scored submission.
    """
    scored = [(quality, at) for at, quality in enumerate(qualities) if quality is not None]
    if not scored:
        return 0
    best, peak = max(scored, key=lambda pair: (pair[0], -pair[1]))  # the first of equals
    if best < eta:
        return 0
    after = qualities[peak + 1 :]
    if not after:
        return len(qualities)
    last = next((quality for quality in reversed(after) if quality is not None), None)
    return peak + 1 if last is None or best - last > delta else len(qualities)
