"""Hidden rules: label = f(z) + noise, one function per family.

Every rule takes a `Ground` (standard-normal latents and what the task's spec fixes) and returns the raw columns that
it dictates, in natural units, and its value. Columns that a rule does not dictate get an arbitrary scale and offset
later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

WORDS = "good bad fast slow clean broken quiet loud cheap late early warm cold soft hard light"
VOCABULARY = tuple(WORDS.split())


class Ground(NamedTuple):
    rng: np.random.Generator
    z: pd.DataFrame  # standard normal, one column per numeric name
    named: tuple[str, ...]  # the columns that matter most
    codes_N: np.ndarray  # category of each row, in 0..3
    period: int
    category: str = ""  # name of the category or text column, "" when there is none


class Draw(NamedTuple):
    raw: Mapping[str, np.ndarray]  # columns in natural units
    value_N: np.ndarray


def linear(on: Ground) -> Draw:
    """Many weak columns of about equal weight."""
    weights = on.rng.uniform(0.7, 1.3, on.z.shape[1]) * on.rng.choice([-1, 1], on.z.shape[1])
    return Draw({}, on.z.to_numpy() @ weights)


def product(on: Ground) -> Draw:
    """Two columns whose effects multiply; neither has an effect of its own."""
    a, b = on.named
    return Draw({}, on.z[a].to_numpy() * on.z[b].to_numpy() + minor(on, 0.15))


def ratio(on: Ground) -> Draw:
    """One positive column divided by another."""
    a, b = on.named
    top_N, bottom_N = np.exp(0.6 * on.z[a].to_numpy()), np.exp(0.6 * on.z[b].to_numpy())
    scale = 10 ** on.rng.uniform(0, 2, 2)
    value_N = top_N / bottom_N
    return Draw({a: scale[0] * top_N, b: scale[1] * bottom_N}, value_N / value_N.std() + minor(on, 0.15))


def cycle(on: Ground) -> Draw:
    """A wave along one column over several periods."""
    along_N = on.rng.uniform(0, 6 * on.period, len(on.z))
    phase = on.rng.uniform(0, 2 * np.pi)
    return Draw({on.named[0]: along_N}, np.sin(2 * np.pi * along_N / on.period + phase) + minor(on, 0.2))


def steps(on: Ground) -> Draw:
    """Sharp, axis-aligned thresholds: a random tree of depth two on two columns."""
    a, b = (on.z[name].to_numpy() for name in on.named)
    first, second, third = on.rng.uniform(-0.5, 0.5, 3)
    leaves = on.rng.permutation([-1.5, 1.0, -0.5, 1.8])
    inner_N = np.where(b > second, leaves[0], leaves[1])
    outer_N = np.where(b > third, leaves[2], leaves[3])
    return Draw({}, np.where(a > first, inner_N, outer_N) + minor(on, 0.1))


def bumps(on: Ground) -> Draw:
    """Local hills and hollows in the plane of two columns."""
    plane_Nx2 = on.z[list(on.named)].to_numpy()
    angles = on.rng.uniform(0, 2 * np.pi) + np.arange(5) * 2 * np.pi / 5
    centres_5x2 = 1.2 * np.stack([np.cos(angles), np.sin(angles)], 1)
    heights = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    squared_Nx5 = ((plane_Nx2[:, None] - centres_5x2) ** 2).sum(-1)
    return Draw({}, np.exp(-squared_Nx5 / 0.6) @ heights)


def growth(on: Ground) -> Draw:
    """Effects that multiply: the logarithm of the target is linear in the columns."""
    weights = on.rng.uniform(0.7, 1.3, on.z.shape[1]) * on.rng.choice([-1, 1], on.z.shape[1])
    log_N = on.z.to_numpy() @ weights
    noise_N = 0.25 * on.rng.standard_normal(len(on.z))  # multiplicative, like the effects
    return Draw({}, np.exp(1.1 * log_N / np.linalg.norm(weights) + noise_N))


def group(on: Ground) -> Draw:
    """The slope of one column depends on the category."""
    slopes = on.rng.permutation([-1.6, 1.5, -0.5, 0.6])
    return Draw({}, slopes[on.codes_N] * on.z[on.named[0]].to_numpy() + minor(on, 0.15))


def trend(on: Ground) -> Draw:
    """A forecast: rows are ordered along one column, the hidden ones come last; a rise and a wave go on."""
    along_N = np.arange(len(on.z), dtype=float)
    rise_N = on.rng.choice([-1, 1]) * on.rng.uniform(2.0, 4.0) * along_N / len(on.z)
    wave_N = np.sin(2 * np.pi * along_N / on.period + on.rng.uniform(0, 2 * np.pi))
    return Draw({on.named[0]: along_N}, rise_N + wave_N + minor(on, 0.15))


def text(on: Ground) -> Draw:
    """A column of short texts: some words raise the value, some lower it, most are filler."""
    weights = np.concatenate([[1.2, 1.0, 0.8, -0.8, -1.0, -1.2], np.zeros(len(VOCABULARY) - 6)])
    present_NxV = on.rng.random((len(on.z), len(VOCABULARY))) < 0.3
    meanings = on.rng.permutation(VOCABULARY)
    texts = [" ".join(on.rng.permutation(meanings[row])) or "none" for row in present_NxV]
    return Draw({on.category: np.array(texts)}, present_NxV @ weights + minor(on, 0.8))


def image(on: Ground) -> Draw:
    """Pixels of an 8 x 8 image as columns: one bright bar somewhere, standing or lying, in noise."""
    n = len(on.z)
    standing_N, place_N = on.rng.random(n) < 0.5, on.rng.integers(0, 8, n)
    images_Nx8x8 = on.z.to_numpy().reshape(n, 8, 8).copy()
    rows_N = np.arange(n)
    images_Nx8x8[rows_N[standing_N], :, place_N[standing_N]] += 1.4
    images_Nx8x8[rows_N[~standing_N], place_N[~standing_N], :] += 1.4
    pixels_NxC = images_Nx8x8.reshape(n, 64)
    return Draw(dict(zip(on.z.columns, pixels_NxC.T, strict=True)), standing_N.astype(float))


def minor(on: Ground, size: float) -> np.ndarray:
    """Small linear effects of the columns that are not named."""
    rest_NxC = on.z.drop(columns=list(on.named)).to_numpy()
    return rest_NxC @ (size * on.rng.choice([-1, 1], rest_NxC.shape[1]))


VOCABULARY = tuple(
    [
        "good",
        "bad",
        "fast",
        "slow",
        "clean",
        "broken",
        "quiet",
        "loud",
        "cheap",
        "late",
        "early",
        "warm",
        "cold",
        "soft",
        "hard",
        "light",
    ]
)
