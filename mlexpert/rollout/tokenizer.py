"""Byte-level tokens for lines, and the file format in which a large model's own tokenizer drops in.

A script or a task description is made of a few hundred fixed lines and of column names that no training text contains
together. So a pre-token is a whole LINE with its newline, and what must be copied or varied is cut out of the line
first, always the same way, wherever it stands:

    X["|soil|_depth|"] = |1|0|(newline)

1. A lower-case name of two or more words between quotes or backticks becomes `word`, `_word`, ...: in the description
   as in the code, so that copying a name is copying tokens. The quotes stay with the fixed text around the name.
2. Digits are single tokens.
3. A pre-token that recurs is one token, at the price of one vocabulary entry. Plain BPE would learn it byte pair by
   byte pair: a line of 80 characters takes some 70 entries that no text uses. Merges, learnt from the distinct
   pre-tokens, only spell what is not such an entry (`ignore_merges` of the file format says so).
4. The chat and tool tags of Qwen3 are added tokens: <|...|> special, the others not. They are matched before any
   rule above, and no learnt token contains one.

Every byte is a token, so any text can be encoded, and `decode(encode(text)) == text`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

_LINE = r"[^\n]+\n|\n+"
_NAME_PART = r"""(?<=["'`])[a-z]+(?=(?:_[a-z]+)+["'`])|_[a-z]+(?=(?:_[a-z]+)*["'`])"""


class TokenizerError(ValueError):
    """A tokenizer file is missing, damaged or of another family; the message names it."""


@dataclass(frozen=True)
class Tokenizer:
    """A `tokenizers` model together with the ids that only the renderer may write."""

    core: tokenizers.Tokenizer
    reserved: Mapping[str, int]  # every added token (chat and tool tags, and whatever else the file adds) -> id
    vocab_size: int  # highest id + 1: what a model needs at least

    def encode(self, text: str) -> np.ndarray:
        """Text -> ids_P int32. Reserved tags in `text` become their reserved ids: escape untrusted text first."""
        return np.asarray(self.core.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, ids_P: np.ndarray | Sequence[int]) -> str:
        """Ids -> text, reserved tags included. Bytes that are no UTF-8 become U+FFFD."""
        return self.core.decode([int(i) for i in ids_P], skip_special_tokens=False)


def train(texts: Iterable[str], vocab_size: int, min_count: int = 8, spelling: float = 0.2) -> Tokenizer:
    """Learns a tokenizer of at most `vocab_size` tokens (fewer if `texts` hold fewer recurring pieces).

    Args:
      min_count: a pre-token found that often becomes one token, those first that save most.
      spelling: share of the learnt entries that is kept for merges; merges also get what whole pre-tokens leave.

    Raises:
      ValueError: `vocab_size` leaves no room beside the 256 bytes and the reserved tags.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learnt = vocab_size - len(SPECIAL + TAGS) - len(alphabet)
    if learnt < 0:
        raise ValueError(f"vocab_size {vocab_size} is too small: {len(alphabet)} bytes and the reserved tags must fit")
    splitter = _splitter()
    counts = Counter(piece for text in _untagged(texts) for piece, _ in splitter.pre_tokenize_str(text))
    recurring = [piece for piece, count in counts.items() if count >= min_count and len(piece) > 1]
    recurring.sort(key=lambda piece: (-counts[piece] * (len(piece) - 1), piece))
    whole = recurring[: int(learnt * (1 - spelling))]
    vocab, merges = _spell(sorted(counts), vocab_size - len(SPECIAL + TAGS) - len(whole))
    for piece in whole:
        vocab.setdefault(piece, len(vocab))
    core = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=True))
    core.pre_tokenizer = splitter
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    core.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    return _wrap(core, "the tokenizer just trained")


def _splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_LINE), "isolated"),
            pre_tokenizers.Split(Regex(_NAME_PART), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _spell(pieces: Sequence[str], vocab_size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a BPE on distinct pieces, each counted once: common parts, not common lines."""
    core = tokenizers.Tokenizer(models.BPE())
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=2, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(pieces, trainer)
    model = json.loads(core.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def save(tokenizer: Tokenizer, path: Path) -> None:
    """Writes `tokenizer.json`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.core.save(str(path))


def load(path: Path) -> Tokenizer:
    """Reads a `tokenizer.json`: one of ours or a Qwen3 model's.

    Raises TokenizerError if there is no such file, if it is damaged, or if it lacks one of the chat and tool tags.
    """
    if not path.is_file():
        raise TokenizerError(f"no tokenizer at {path}")
    try:
        core = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise TokenizerError(f"{path} cannot be read ({error}); remove it to have it made again") from error
    return _wrap(core, str(path))


def with_tags(core: tokenizers.Tokenizer, rows: int, source: str) -> Tokenizer:
    """A chat model's own tokenizer, for a model with `rows` embeddings.

    Tags that it lacks are added to it on the first rows without a token: in Qwen2.5, whose embedding is padded, those
    are Qwen3's rows for them, though never trained. Raises TokenizerError if rows or chat tokens are missing.
    """
    present = core.get_vocab(with_added_tokens=True)
    missing = [tag for tag in (*TAGS[2:], *TAGS[:2]) if tag not in present]  # as Qwen3 numbers them
    first_free = max(present.values(), default=-1) + 1
    if missing and (first_free + len(missing) > rows or first_free != len(present)):
        raise TokenizerError(
            f"{source} lacks the tokens {' '.join(missing)}, and its {rows} embeddings leave no room for them"
        )
    core.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in missing])
    return _wrap(core, source)


def _wrap(core: tokenizers.Tokenizer, source: str) -> Tokenizer:
    reserved = {added.content: index for index, added in core.get_added_tokens_decoder().items()}
    missing = [token for token in SPECIAL + TAGS if token not in reserved]
    if missing:
        raise TokenizerError(f"{source} lacks the tokens {' '.join(missing)}: use the tokenizer.json of a Qwen3 model")
    return Tokenizer(core, reserved, max(core.get_vocab(with_added_tokens=True).values()) + 1)


def _untagged(texts: Iterable[str]) -> Iterator[str]:
    """The pieces between reserved tags: training would otherwise learn merges that no encoding can reach."""
    tag = re.compile("|".join(map(re.escape, SPECIAL + TAGS)))
    for text in texts:
        yield from tag.split(text)
