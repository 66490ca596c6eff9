"""The forecasts that every forecast has to beat: the last value, the last season, and the mean of a few seasons.

A series is a group's rows in order of time. Its season is the one of `SEASONS` that would have forecast the
last training rows best. Rows to predict follow their series without a gap: the first one is one step ahead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

SEASONS = (1, 4, 5, 7, 12, 24, 48, 52, 96, 168, 336, 364, 8736)  # steps; the last two are 52 weeks of days and of hours
MEANT = 3  # seasons in the mean


def season(series: Sequence[np.ndarray], horizon: int) -> int:
    """The season that would have forecast the last `horizon` values (a third of a shorter series) with the least error.

    Only seasons that at least half of the series are long enough for are compared; mean absolute errors.
    """
    errors = {}
    for steps in SEASONS:
        misses = []
        for values_N in series:
            kept = len(values_N) - min(horizon, len(values_N) // 3)
            if steps <= kept < len(values_N):
                misses.append(np.abs(values_N[kept:] - ahead(values_N[:kept], steps, len(values_N) - kept)))
        if misses and len(misses) >= len(series) / 2:
            errors[steps] = float(np.concatenate(misses).mean())
    return min(errors, key=lambda steps: (errors[steps], steps), default=1)


def ahead(values_N: np.ndarray, steps: int, horizon: int, seasons: int = 1) -> np.ndarray:
    """`horizon` values that repeat the last season, or the mean of the last few."""
    if len(values_N) < steps:
        return np.full(horizon, values_N[-1])
    whole = min(seasons, len(values_N) // steps)
    pattern = values_N[len(values_N) - whole * steps :].reshape(whole, steps).mean(axis=0)
    return np.resize(pattern, horizon)


def forecasts(
    train: tuple[Sequence[str], np.ndarray, np.ndarray], test: tuple[Sequence[str], np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Solution -> one value per test row, for one target.

    Args:
      train: group, time and value of each training row.
      test: group and time of each test row. Groups that training does not know get the median of all values.
    """
    known, wanted = _in_order(*train[:2]), _in_order(*test)
    series = {group: train[2][rows] for group, rows in known.items()}
    steps = season(list(series.values()), int(np.median([len(rows) for rows in wanted.values()])))
    ways = {"last value": (1, 1), "seasonal": (steps, 1), "seasonal mean": (steps, MEANT)}
    middle = float(np.median(train[2]))
    found = {name: np.full(len(test[0]), middle) for name in ways}
    for group in wanted.keys() & series.keys():
        rows = wanted[group]
        for name, (length, seasons) in ways.items():
            found[name][rows] = ahead(series[group], length, len(rows), seasons)
    return found


def _in_order(groups: Sequence[str], times_R: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of each group, earliest first."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row in map(int, np.argsort(times_R, kind="stable")):
        rows[groups[row]].append(row)
    return {group: np.array(each) for group, each in rows.items()}
