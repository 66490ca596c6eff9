"""One episode of one task: actions in, texts and results out.

The policy reads status, its own printed output and format errors (blind protocol). What a submission is worth on the
hidden labels goes into `Reply.result`, for the reward, and into the journal; no text is made from it unless
`feedback` is "score" (SandMLE's protocol), which the journal records.
Every step appends exactly one event: an environment made on a journal with events is the one that wrote them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from mlexpert.harness import observation, prompts, tools
from mlexpert.harness import tree as trees
from mlexpert.harness.journal import Journal, JournalError, result_to_json
from mlexpert.harness.observation import SHORT, ObservationStyle
from mlexpert.harness.state import (
    Budget,
    Reply,
    State,
    advance,
    ending_of,
    left,
    reply_from_json,
    reply_to_json,
)
from mlexpert.harness.tree import Tree
from mlexpert.sandbox.api import Job, Sandbox
from mlexpert.tasks.grader_process import GraderError
from mlexpert.tasks.task import Task, description
from mlexpert.types import (
    Action,
    Ending,
    ExecStatus,
    Execution,
    Finish,
    Limits,
    Malformed,
    Result,
    ToolCall,
    Verdict,
    VerdictStatus,
)

SUBMISSION = "submission.csv"
Feedback = Literal["blind", "score"]


class Environment:
    """An episode on `task`. One step at a time; everything it knows follows from its journal.

    Args:
      grade: worth of a submission file on the hidden labels, `None` for no file; runs outside any sandbox. One that
        raises GraderError twice is a failure of the infrastructure, like a sandbox that could not run the script.
      journal: empty for a new episode; with events of the same episode it goes on where they end.
      workdir: folder for collected submissions, outside every folder that a sandbox can see.
      feedback: "blind", or "score" to show the hidden score after each valid submission.
      limits: of one execution; its wall time is also bounded by what is left of the budget's.
      clock: seconds, for the wall budget only; time in which no process held the episode, and time spent waiting for
        a free sandbox, does not count.

    Raises:
      JournalError: the journal belongs to another episode or was written under other settings.
    """

    def __init__(
        self,
        task: Task,
        sandbox: Sandbox,
        grade: Callable[[Path | None], Verdict],
        budget: Budget,
        journal: Journal,
        workdir: Path,
        limits: Limits,
        feedback: Feedback = "blind",
        seed: int = 0,
        style: ObservationStyle = SHORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if feedback not in ("blind", "score"):
            raise ValueError(f'feedback is "blind" or "score", not {feedback!r}')
        self.task, self.budget, self.journal, self.style = task, budget, journal, style
        self._sandbox, self._grade, self._workdir, self._limits = sandbox, grade, Path(workdir), limits
        self._feedback, self._seed, self._clock = feedback, seed, clock
        self._state = self._rebuilt()
        self._started = clock() - self._state.elapsed_s

    # ------------------------------------------------------------ what the runner may ask
    @property
    def tree(self) -> Tree:
        return self._state.tree

    @property
    def results(self) -> tuple[Result, ...]:
        """All counted executions with their hidden verdicts: for the credit rule, never for the policy."""
        return self._state.results

    @property
    def replies(self) -> tuple[Reply, ...]:
        """One per step, those rebuilt from the journal included."""
        return self._state.replies

    @property
    def ending(self) -> Ending | None:
        return ending_of(self._state, self.budget)

    @property
    def n_malformed(self) -> int:
        return self._state.malformed

    @property
    def n_infrastructure(self) -> int:
        return self._state.infrastructure

    @property
    def elapsed_s(self) -> float:
        return self._state.elapsed_s

    def opening(self) -> prompts.Opening:
        """The same for every context segment of the episode: it tells of the whole budget."""
        budget = observation.budget_line(left(State(), self.budget), self.style)
        blind = self._feedback == "blind"
        return prompts.opening(description(self.task), budget, self._limits, self.style.full_prompt, blind)

    def summary(self) -> str:
        """What a fresh context segment needs beside the opening."""
        remaining = left(self._state, self.budget)
        return observation.summary_text(self.tree, remaining, self.style, self.task.lower_is_better)

    def answer_node(self) -> int | None:
        return trees.answer(self.tree)

    def answer(self) -> Verdict:
        """Worth of the episode's answer: the node last named, else the last valid submission, else an absent one."""
        node = self.answer_node()
        if node is None:
            return Verdict(VerdictStatus.ABSENT, lower_is_better=self.task.lower_is_better)
        return self.results[node - 1].verdict

    # ------------------------------------------------------------ one step
    async def step(self, action: Action) -> Reply:
        """Plays one turn and journals it. Raises RuntimeError after the end.

        What the sandbox or the grader raises is not caught: nothing is journaled, and the step may be played again.
        """
        if self.ending is not None:
            raise RuntimeError(f"the episode on {self.task.id} has ended ({self.ending}); make a new environment")
        effect, text = await self._play(action)
        effect["elapsed_s"] = max(self._clock() - self._started, self._state.elapsed_s)
        after = advance(self._state, effect)
        reply = self._reply(effect, text, after)
        self.journal.append({"event": "step", **effect, "reply": reply_to_json(reply)})
        self._state = replace(after, replies=(*after.replies, reply))
        return reply

    async def _play(self, action: Action) -> tuple[dict, str]:
        """The effect of an action, and the text where it does not depend on the state after it."""
        match action:
            case Malformed(reason=reason):
                return {"tool": "malformed"}, reason
            case Finish():
                return {"tool": "stop", "ending": Ending.DONE}, ""
            case ToolCall():
                call = tools.read_call(action, self.tree)
        match call:
            case tools.Rejected(reason=reason):
                return {"tool": "malformed"}, reason
            case tools.ExecuteCode():
                return await self._execute(call)
            case tools.UpdateAnswer(node=node):
                return {"tool": "update_answer", "node": node}, ""
            case tools.InvalidateNode(node=node, reason=reason):
                return {"tool": "invalidate_node", "node": node, "reason": reason}, ""
            case tools.Analyze(node=node):
                return {"tool": "analyze", "node": node}, ""

    async def _execute(self, call: tools.ExecuteCode) -> tuple[dict, str]:
        if len(self.results) >= self.budget.executions:
            return {"tool": "stop", "ending": Ending.STEPS}, observation.NO_EXECUTIONS
        left_s = self.budget.wall_s - (self._clock() - self._started)
        if left_s <= 0:
            return {"tool": "stop", "ending": Ending.WALL}, observation.NO_TIME
        into = self._workdir / f"node-{len(self.results) + 1}"
        shutil.rmtree(into, ignore_errors=True)  # left by an attempt that was never journaled
        into.mkdir(parents=True)
        limits = replace(self._limits, wall_s=min(self._limits.wall_s, left_s))
        job = Job(call.code, self.task.public, into, (SUBMISSION,), limits, self._seed)
        execution = await self._sandbox.execute(job)
        self._started += execution.queued_s
        if execution.status is ExecStatus.SETUP_FAILED:
            return {"tool": "infrastructure", "message": execution.reason[-500:]}, observation.INFRASTRUCTURE
        try:
            result = Result(execution, await self._verdict(execution))
        except GraderError as error:
            return {"tool": "infrastructure", "message": str(error)[-500:]}, observation.INFRASTRUCTURE
        return {"tool": "execute_code", "code": call.code, "parent": call.parent, **result_to_json(result)}, ""

    async def _verdict(self, execution: Execution) -> Verdict:
        """A script that failed has handed in nothing, whatever file it left. A grader that fails is asked once more."""
        path = execution.files.get(SUBMISSION) if execution.status is ExecStatus.OK else None
        try:
            return await asyncio.to_thread(self._grade, path)
        except GraderError as error:
            logging.warning("%s: asked again after: %s", self.task.id, error)
            return await asyncio.to_thread(self._grade, path)

    # ------------------------------------------------------------ the reply
    def _reply(self, effect: dict, text: str, after: State) -> Reply:
        ending = ending_of(after, self.budget)
        executed = effect["tool"] == "execute_code"
        correction = effect["tool"] == "malformed"
        return Reply(
            text=observation.correction(text) if correction else text or self._text(effect, after),
            kind="end" if ending is not None else "correction" if correction else "observation",
            result=after.results[-1] if executed else None,
            infrastructure=effect["tool"] == "infrastructure",
            ending=ending,
        )

    def _text(self, effect: dict, after: State) -> str:
        """Words for what a tool did, from the tree after it: the hidden verdict enters in `_revealed` alone."""
        tree = after.tree
        match effect["tool"]:
            case "execute_code":
                remaining = left(after, self.budget)
                return observation.execution_text(tree.nodes[-1], remaining, self.style, self._revealed(after))
            case "update_answer":
                return observation.answer_line(tree)
            case "invalidate_node":
                return observation.invalidated_line(trees.family(tree, effect["node"]))
            case "analyze" if effect["node"] is None:
                return observation.tree_text(tree, self.style)
            case "analyze":
                return observation.node_text(tree, trees.get(tree, effect["node"]), self.style)
        return ""

    def _revealed(self, after: State) -> str:
        if self._feedback == "blind":
            return ""
        return observation.revealed(after.results[-1].verdict, asdict(self.task.thresholds))

    # ------------------------------------------------------------ rebuilding
    def _rebuilt(self) -> State:
        """The state that the journal tells of; an empty journal gets the event that says whose it is."""
        head = {
            "event": "open",
            "task": self.task.id,
            "seed": self._seed,
            "feedback": self._feedback,
            "budget": asdict(self.budget),
            "limits": asdict(self._limits),
            "style": asdict(self.style),
        }
        events = self.journal.events()
        if not events:
            self.journal.append(head)
            return State()
        differing = sorted(key for key in head.keys() | events[0].keys() if head.get(key) != events[0].get(key))
        if differing:
            raise JournalError(
                f"{self.journal.path} belongs to another episode: {', '.join(differing)} differ; use a fresh file"
            )
        return rebuild(events)


def rebuild(events: list[dict]) -> State:
    """The state after the environment's own events, in order; events of other writers (turns) are passed over."""
    state = State()
    for event in events:
        if event["event"] == "step":
            state = advance(state, event)
            result = state.results[-1] if event["tool"] == "execute_code" else None
            state = replace(state, replies=(*state.replies, reply_from_json(event["reply"], result)))
    return state
