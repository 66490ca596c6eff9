"""Windows or examples -> one fixed-shape `Batch`.

1. A span of a window becomes one sequence: its context, then its turns. Sampled tokens carry the window's index.
2. Sequences of one context segment where one's context extends the other are the SAME tokens: they become one sequence,
   so an append-only episode costs its row once, however many of its windows are in the batch.
3. Sequences are placed into rows of `row_length`, longest first, each where it leaves the least room; inside a row they
   differ by segment id (1, 2, ...; 0 is padding) and positions restart at 0.

A token is trained exactly once; where a context does NOT extend the earlier tokens, its window gets its own sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlexpert.types import Batch, Span, Window


@dataclass(frozen=True)
class _Sequence:
    """Tokens of one segment; `window_T` is -1 for tokens that were not sampled."""

    tokens_T: np.ndarray
    window_T: np.ndarray
    logprobs_T: np.ndarray
    support_TxK: np.ndarray | None


def pack_windows(windows: Sequence[Window], row_length: int, rows_multiple: int = 1) -> Batch:
    """Packs windows with their rewards as advantages; `window_BxT` indexes `windows` in the order given.

    The number of rows is the least that first-fit placement finds, rounded up to `rows_multiple` with empty rows.

    Raises:
      ValueError: a window is longer than a row, has no sampled token, comes twice, lacks a finite log-prob, or was
        drawn outside its own recorded support; or some windows record a support and others none.
    """
    if not windows:
        raise ValueError("no windows to pack")
    if len({window.id for window in windows}) < len(windows):
        raise ValueError("a window comes twice in one batch: its tokens would be trained twice")
    segments: dict[tuple[str, int], list[tuple[int, _Sequence]]] = {}
    for index, window in enumerate(windows):
        if window.n_sampled == 0:
            raise ValueError(f"window {window.id} holds no sampled token: it cannot be trained")
        for span in window.spans:
            sequence = _span_sequence(window.id, index, span)
            if len(sequence.tokens_T) > row_length:
                raise ValueError(
                    f"window {window.id} needs {len(sequence.tokens_T)} tokens in a row of {row_length}: "
                    "raise the row length to the sampler's context length"
                )
            segments.setdefault((window.episode, span.segment), []).append((len(span.context_ids_P), sequence))
    sequences = [sequence for spans in segments.values() for sequence in _share_prefixes(spans)]
    return _fill(
        sequences,
        row_length,
        rows_multiple,
        advantages_W=np.array([window.credit.reward for window in windows], np.float32),
        counts_W=np.array([window.n_sampled for window in windows], np.int32),
    )


def pack_examples(examples: Sequence[tuple[np.ndarray, np.ndarray]], row_length: int, rows_multiple: int = 1) -> Batch:
    """Packs (ids, loss mask) pairs as ONE window of advantage 1, so that 1 / N_m is the mean over all trained tokens.

    The first token of an example has nothing before it and is never trained, whatever its mask says.

    Raises:
      ValueError: no example, an example longer than a row, a mask of another length, or no trained token at all.
    """
    sequences = []
    for i, (ids, mask) in enumerate(examples):
        if len(ids) != len(mask):
            raise ValueError(f"example {i}: {len(ids)} ids but a loss mask of {len(mask)}")
        if not 0 < len(ids) <= row_length:
            raise ValueError(f"example {i} has {len(ids)} tokens: a row holds 1 to {row_length}")
        window_T = np.where(np.asarray(mask, bool), 0, -1).astype(np.int32)
        window_T[0] = -1
        sequences.append(_Sequence(np.asarray(ids, np.int32), window_T, np.zeros(len(ids), np.float32), None))
    trained = sum(int((sequence.window_T == 0).sum()) for sequence in sequences)
    if trained == 0:
        raise ValueError(f"{len(sequences)} examples without a single trained token: check their loss masks")
    return _fill(
        sequences,
        row_length,
        rows_multiple,
        advantages_W=np.ones(1, np.float32),
        counts_W=np.array([trained], np.int32),
    )


def _span_sequence(name: str, index: int, span: Span) -> _Sequence:
    context = np.asarray(span.context_ids_P, np.int32)
    tokens, window, logprobs = [context], [np.full(len(context), -1, np.int32)], [np.zeros(len(context), np.float32)]
    support: list[np.ndarray | None] = [None]
    for turn in span.turns:
        sample, prompt = turn.sample, np.asarray(turn.prompt_ids_P, np.int32)
        _check_sample(name, sample.ids_N, sample.logprobs_N, sample.support_NxK)
        tokens += [prompt, np.asarray(sample.ids_N, np.int32)]
        window += [np.full(len(prompt), -1, np.int32), np.full(len(sample.ids_N), index, np.int32)]
        logprobs += [np.zeros(len(prompt), np.float32), np.asarray(sample.logprobs_N, np.float32)]
        support += [None, sample.support_NxK]
    return _Sequence(
        np.concatenate(tokens), np.concatenate(window), np.concatenate(logprobs), _join_support(name, tokens, support)
    )


def _check_sample(name: str, ids_N: np.ndarray, logprobs_N: np.ndarray, support_NxK: np.ndarray | None) -> None:
    if len(ids_N) != len(logprobs_N) or not np.isfinite(logprobs_N).all():
        raise ValueError(
            f"window {name}: each of its {len(ids_N)} sampled tokens needs a finite log-prob of the sampler"
        )
    if support_NxK is not None and not (np.asarray(support_NxK) == np.asarray(ids_N)[:, None]).any(axis=1).all():
        raise ValueError(f"window {name}: a sampled token lies outside its recorded sampling support")


def _join_support(name: str, tokens: list[np.ndarray], support: list[np.ndarray | None]) -> np.ndarray | None:
    """[T, K] with -1 rows for tokens that were not sampled; the parts alternate with those of `tokens`."""
    drawn = [s for s in support if s is not None]
    if not drawn:
        return None
    if len(drawn) < (len(support) - 1) // 2:
        raise ValueError(f"window {name}: some turns record a sampling support and others none")
    width = max(s.shape[1] for s in drawn)
    parts = [np.full((len(ids), width), -1, np.int32) for ids in tokens]
    for part, s in zip(parts, support, strict=True):
        if s is not None:
            part[:, : s.shape[1]] = s
    return np.concatenate(parts)


def _share_prefixes(spans: list[tuple[int, _Sequence]]) -> list[_Sequence]:
    """Merges the sequences of one segment. Each comes with the length of its context: it may extend one only there."""
    chains: list[_Sequence] = []
    for n_context, sequence in sorted(spans, key=lambda item: (len(item[1].tokens_T), item[0])):
        i = next((i for i, chain in enumerate(chains) if _extends(sequence, n_context, chain)), None)
        if i is None:
            chains.append(sequence)
        else:
            chains[i] = _merge(chains[i], sequence)
    return chains


def _extends(sequence: _Sequence, n_context: int, chain: _Sequence) -> bool:
    n = len(chain.tokens_T)
    same_kind = (sequence.support_TxK is None) == (chain.support_TxK is None)
    return same_kind and n <= n_context and np.array_equal(sequence.tokens_T[:n], chain.tokens_T)


def _merge(chain: _Sequence, longer: _Sequence) -> _Sequence:
    """`longer`, with the sampled tokens of `chain` entered into its context."""
    n = len(chain.tokens_T)
    support_TxK = longer.support_TxK
    if support_TxK is not None and chain.support_TxK is not None:
        support_TxK = _widen(support_TxK, max(support_TxK.shape[1], chain.support_TxK.shape[1]))
        support_TxK[:n] = _widen(chain.support_TxK, support_TxK.shape[1])
    return _Sequence(
        longer.tokens_T,
        np.concatenate([chain.window_T, longer.window_T[n:]]),
        np.concatenate([chain.logprobs_T, longer.logprobs_T[n:]]),
        support_TxK,
    )


def _widen(support_TxK: np.ndarray, width: int) -> np.ndarray:
    return np.pad(support_TxK, ((0, 0), (0, width - support_TxK.shape[1])), constant_values=-1)


def _place(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Best-fit decreasing: indices of the sequences of each row."""
    rows: list[list[int]] = []
    room: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        fits = [row for row in range(len(rows)) if room[row] >= lengths[i]]
        if not fits:
            rows.append([])
            room.append(row_length)
            fits = [len(rows) - 1]
        row = min(fits, key=lambda row: room[row])
        rows[row].append(i)
        room[row] -= lengths[i]
    return rows


def _fill(
    sequences: Sequence[_Sequence],
    row_length: int,
    rows_multiple: int,
    advantages_W: np.ndarray,
    counts_W: np.ndarray,
) -> Batch:
    supports = [s.support_TxK for s in sequences if s.support_TxK is not None]
    if 0 < len(supports) < len(sequences):
        raise ValueError("some windows record a sampling support and others none: one batch has one way of sampling")
    rows = _place([len(s.tokens_T) for s in sequences], row_length)
    shape = (-(-len(rows) // rows_multiple) * rows_multiple, row_length)
    tokens, segments, positions = (np.zeros(shape, np.int32) for _ in range(3))
    window, logprobs = np.full(shape, -1, np.int32), np.zeros(shape, np.float32)
    support = np.full((*shape, max(s.shape[1] for s in supports)), -1, np.int32) if supports else None
    for row, members in enumerate(rows):
        start = 0
        for segment, member in enumerate(members, start=1):
            sequence = sequences[member]
            at = (row, slice(start, start + len(sequence.tokens_T)))
            tokens[at], window[at], logprobs[at] = sequence.tokens_T, sequence.window_T, sequence.logprobs_T
            segments[at], positions[at] = segment, np.arange(len(sequence.tokens_T))
            if support is not None and sequence.support_TxK is not None:
                support[at] = _widen(sequence.support_TxK, support.shape[-1])
            start += len(sequence.tokens_T)
    return Batch(tokens, segments, positions, window, logprobs, support, advantages_W, counts_W)
