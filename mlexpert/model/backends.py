"""Which kernels a training step runs, and why: attention over rows, and the grouped matmul of experts.

A backend that was asked for by name runs or is an error. One that is merely the device's usual one gives way to the
portable one where it cannot do a shape, and the reason is kept, to be said at the start of a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mlexpert.model import attention_splash, attention_triton, grouped
from mlexpert.model.attention import ATTENTION_BACKENDS, default_attention
from mlexpert.model.config import ModelConfig

HOMES = {"splash": ("tpu",), "triton": ("gpu", "cuda")}  # the only platforms of these kernels


class Choice(NamedTuple):
    name: str
    reason: str  # why it is not the device's usual one; "" if it is

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


def attention(asked: str, q_shape: tuple[int, ...], k_shape: tuple[int, ...], usual: str = "") -> Choice:
    """For queries [B, T, H, K] over keys [B, G, C, K]; `usual` is the device's own backend ("": this process's).

    Raises ValueError for an unknown name, or one that was asked for and cannot do these shapes.
    """
    usual = usual or default_attention()
    name = asked or usual
    if name not in ATTENTION_BACKENDS:
        raise ValueError(f"attention backend {name!r}: one of {', '.join(ATTENTION_BACKENDS)}")
    refused = _refusal(name, q_shape, k_shape)
    if refused and asked:
        raise ValueError(f"{name} attention: {refused}")
    if refused:
        return Choice("chunked", f"not {usual}: {refused}")
    return Choice(name, "" if name == usual else f"as asked, not {usual}")


def _refusal(name: str, q_shape: tuple[int, ...], k_shape: tuple[int, ...]) -> str:
    if name == "splash":
        return attention_splash.refusal(q_shape, k_shape)
    if name == "triton":
        return attention_triton.refusal(q_shape, k_shape)
    return ""  # chunks take any shape


def attention_of(config: ModelConfig, length: int, stretches: int = 1, asked: str = "", usual: str = "") -> Choice:
    """For rows of `length` tokens, each cut into `stretches` over devices. Raises as `attention`."""
    q_shape = (1, length // stretches, config.n_heads, config.head_dim)
    return attention(asked, q_shape, (1, config.n_kv_heads, length, config.head_dim), usual)


def grouped_matmul(asked: str, usual: str = "") -> Choice:
    """`usual` as for `attention`. An unknown name is an error where it is used."""
    usual = usual or grouped.default_backend()
    return Choice(asked or usual, "" if asked in ("", usual) else f"as asked, not {usual}")


def told(config: ModelConfig, attentions: Iterable[Choice], matmul: Choice) -> str:
    """`attention splash; grouped matmul ragged_dot`, a line for people. Models without experts have no such matmul."""
    line = "attention " + ", ".join(map(str, dict.fromkeys(attentions)))
    return f"{line}; grouped matmul {matmul}" if config.sparse else line
