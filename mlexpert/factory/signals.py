"""Files as short rows of numbers: pictures as grey squares, sound as energies by frequency, arrays as they are.

.png .jpg .jpeg .bmp .gif .tif .tiff .pgm .ppm    SIDE x SIDE grey values of the picture squeezed into a square
.wav                                              mean and spread over time of the log energies in BANDS bands
.npy                                              the array, flattened; longer ones are averaged down to LENGTH
"""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

SIDE, BANDS, LENGTH = 16, 40, 256
WINDOW = 256  # samples of sound that one spectrum is taken of
PICTURES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm"})
SUFFIXES = PICTURES | {".wav", ".npy"}


class UnreadableSignal(Exception):
    """A file that should be a picture, a sound or an array and is not; the message names it."""


def signals(paths: Sequence[Path]) -> np.ndarray:
    """NxF, one row per file. Raises UnreadableSignal."""
    rows = []
    for path in paths:
        try:
            rows.append(_signal(path))
        except (OSError, ValueError, EOFError, wave.Error) as error:
            raise UnreadableSignal(f"{path.name}: {error}") from error
    return np.stack(rows) if rows else np.empty((0, 0))


def _signal(path: Path) -> np.ndarray:
    suffix = path.suffix.lower()
    if suffix == ".wav":
        return _sound(path)
    return _array(path) if suffix == ".npy" else _picture(path)


def _picture(path: Path) -> np.ndarray:
    from PIL import Image  # only tasks with pictures need it

    with Image.open(path) as image:
        return np.asarray(image.convert("L").resize((SIDE, SIDE)), dtype=np.float64).ravel() / 255.0


def _sound(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        width, channels = file.getsampwidth(), file.getnchannels()
        data = file.readframes(file.getnframes())
    if width not in (1, 2, 4):
        raise ValueError(f"{8 * width}-bit samples")
    samples_N = np.frombuffer(data, dtype={1: np.uint8, 2: np.int16, 4: np.int32}[width]).astype(np.float64)
    samples_N = (samples_N - 128.0 if width == 1 else samples_N)[::channels] / float(2 ** (8 * width - 1))
    padded_N = np.pad(samples_N, (0, -len(samples_N) % WINDOW or (WINDOW if not len(samples_N) else 0)))
    spectra_WxF = np.abs(np.fft.rfft(padded_N.reshape(-1, WINDOW) * np.hanning(WINDOW), axis=1)) ** 2
    bands_WxB = np.stack([band.mean(axis=1) for band in np.array_split(spectra_WxF, BANDS, axis=1)], axis=1)
    energies_WxB = np.log(bands_WxB + 1e-10)
    return np.concatenate([energies_WxB.mean(axis=0), energies_WxB.std(axis=0)])


def _array(path: Path) -> np.ndarray:
    values_N = np.asarray(np.load(path, allow_pickle=False), dtype=np.float64).ravel()
    parts = np.array_split(values_N, LENGTH) if len(values_N) else [np.zeros(1)] * LENGTH
    return np.array([part.mean() if len(part) else 0.0 for part in parts])
