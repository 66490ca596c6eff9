"""Training examples of the policies before RL: (ids, loss mask) pairs, and rows of them as a function of the step.

Every piece of a conversation is encoded by the renderer that also encodes it in RL, so that both see the same tokens.
Loss falls on the policy's own turns only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import numpy as np

from mlexpert.corpus import documents as corpus
from mlexpert.corpus.episodes import Record
from mlexpert.harness import observation, prompts
from mlexpert.harness.observation import Left
from mlexpert.harness.prompts import Opening, ToolSpec
from mlexpert.rollout.renderer import Renderer
from mlexpert.train.packing import pack_examples
from mlexpert.types import Batch, Limits, ToolCall

DOCUMENTS_A_STEP = 1000  # numbers set aside for each step, so that no document comes twice

Example = tuple[np.ndarray, np.ndarray]  # ids_P, mask_P


def of_record(renderer: Renderer, record: Record) -> Example:
    """A teacher's episode, or what outcome-guided supervision left of it, as one sequence."""
    tools = [ToolSpec(**tool) for tool in record["opening"]["tools"]]
    pieces = [(renderer.opening(record["opening"]["system"], tools, record["opening"]["user"]), False)]
    for turn in record["turns"]:
        if turn["prompt"]["kind"] != "opening":
            extend = renderer.correction if turn["prompt"]["kind"] == "correction" else renderer.observation
            pieces.append((extend(turn["prompt"]["text"]), False))
        call = turn["call"]
        reply = ToolCall(call["name"], call["arguments"]) if call else turn["finish"]
        pieces.append((renderer.assistant(turn["think"], reply), True))
    return joined(pieces)


def of_document(renderer: Renderer, opening: Opening, think: str, call: ToolCall) -> Example:
    """One schema document: a task's opening and one turn."""
    asked = renderer.opening(opening.system, opening.tools, opening.user)
    return joined([(asked, False), (renderer.assistant(think, call), True)])


def joined(pieces: Sequence[tuple[np.ndarray, bool]]) -> Example:
    """Pieces of ids, each trained or not, as one example."""
    masks = [np.full(len(ids), trained) for ids, trained in pieces]
    return np.concatenate([ids for ids, _ in pieces]), np.concatenate(masks)


def documents(renderer: Renderer, seed: int, executions: int, step: int) -> Iterator[Example]:
    """Schema documents without end, those of this step only, under the opening that an episode would have."""
    budget = observation.budget_line(Left(executions, steps=0, hours=0.0), observation.SHORT)
    for i in count():
        document = corpus.document(seed, step * DOCUMENTS_A_STEP + i)
        opening = prompts.opening(document.user, budget, Limits(), full=False, blind=True)
        yield of_document(renderer, opening, document.think, document.call)


def filled(stream: Iterable[Example], rows: int, row_length: int) -> Batch:
    """A batch of exactly `rows` rows, about 95 % full; what is longer than a row is passed over."""
    taken: list[Example] = []
    room = int(0.95 * rows * row_length)
    for example in stream:
        if len(example[0]) > row_length:
            continue
        if len(example[0]) > room and taken:
            break
        taken.append(example)
        room -= len(example[0])
    while len((batch := pack_examples(taken, row_length, rows)).tokens_BxT) > rows:
        taken.pop()
    return batch


class Rows:
    """Episodes packed into batches: epoch after epoch, each shuffled anew; `batch(step)` depends on nothing else."""

    def __init__(self, examples: Sequence[Example], rows: int, row_length: int, seed: int):
        """Raises ValueError when no example fits into a row."""
        self._examples = [example for example in examples if len(example[0]) <= row_length]
        if not self._examples:
            raise ValueError(
                f"none of {len(examples)} episodes fits into a row of {row_length} tokens: raise row_length"
            )
        self.too_long = len(examples) - len(self._examples)
        self._rows, self._row_length, self._seed = rows, row_length, seed
        self._starts: list[tuple[int, int]] = [(0, 0)]  # of each step: epoch and place in it

    def batch(self, step: int) -> Batch:
        while len(self._starts) <= step + 1:
            self._starts.append(self._advance(*self._starts[-1]))
        return pack_examples(self._taken(*self._starts[step]), self._row_length, self._rows)

    def _taken(self, epoch: int, place: int) -> list[Example]:
        """As many of the next examples as fill the rows; an epoch's last batch may be filled from its beginning."""
        order = np.random.default_rng((self._seed, epoch)).permutation(len(self._examples))
        taken: list[Example] = []
        room = int(0.9 * self._rows * self._row_length)
        for i in np.concatenate([order[place:], order[:place]]):
            if len(self._examples[i][0]) > room and taken:
                break
            taken.append(self._examples[i])
            room -= len(self._examples[i][0])
        while len(pack_examples(taken, self._row_length, self._rows).tokens_BxT) > self._rows:
            taken.pop()
        return taken

    def _advance(self, epoch: int, place: int) -> tuple[int, int]:
        after = place + len(self._taken(epoch, place))
        return (epoch, after) if after < len(self._examples) else (epoch + 1, 0)
