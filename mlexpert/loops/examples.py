"""Training examples of the policies before RL: (ids, loss mask) pairs, and rows of them as a function of the step.

Every piece of a conversation is encoded by the renderer that also encodes it in RL, so that both see the same tokens.
Loss falls on the policy's own turns only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """Batches of `n` examples, epoch after epoch, each shuffled anew; `batch(step)` depends on the step alone.

    `example(i, epoch)` makes example i as it is shown in that epoch; what is longer than a row is passed over.
    """

    def __init__(self, n: int, example: Callable[[int, int], Example], rows: int, row_length: int, seed: int):
        """Raises ValueError when there is no example."""
        if n == 0:
            raise ValueError("no episode is worth imitating: lower corpus.eta or collect more episodes")
        self._n, self._example, self._seed = n, example, seed
        self._rows, self._row_length = rows, row_length
        self._next, self._epoch, self._place = 0, 0, 0  # where step `_next` begins

    def batch(self, step: int) -> Batch:
        if step < self._next:
            self._next, self._epoch, self._place = 0, 0, 0
        while self._next < step:
            self._take()
        return pack_examples(self._take(), self._row_length, self._rows)

    def _take(self) -> list[Example]:
        """The examples of step `_next`; the last batch of an epoch may be filled from its beginning."""
        order = np.random.default_rng((self._seed, self._epoch)).permutation(self._n)
        taken: list[Example] = []
        passed = 0
        room = int(0.9 * self._rows * self._row_length)
        for i in np.roll(order, -self._place):
            example = self._example(int(i), self._epoch)
            if len(example[0]) > room and taken:
                break
            passed += 1
            if len(example[0]) <= self._row_length:
                taken.append(example)
                room -= len(example[0])
        if not taken:
            raise ValueError(f"no example fits into a row of {self._row_length} tokens: raise row_length")
        while len(pack_examples(taken, self._row_length, self._rows).tokens_BxT) > self._rows:
            taken.pop()
            passed -= 1
        self._next, self._place = self._next + 1, self._place + passed
        if self._place >= self._n:
            self._epoch, self._place = self._epoch + 1, 0
        return taken
