"""From nothing to the policy that RL starts from: teacher episodes, tokenizer, base policy, SFT.

python experiments/run.py --config=configs/sft.py --workdir=runs/sft
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from mlexpert.corpus import episodes
from mlexpert.corpus.episodes import Record
from mlexpert.harness.environment import Environment
from mlexpert.loops import examples, heldout, policies, report, screen, setup, tasksets, workdir
from mlexpert.loops.pretrained import Pretrained
from mlexpert.loops.settings import Config
from mlexpert.loops.setup import Stage
from mlexpert.loops.workdir import Workdir
from mlexpert.model.params import Params
from mlexpert.rollout import tokenizer as tokenizers
from mlexpert.rollout.renderer import Renderer
from mlexpert.rollout.tokenizer import Tokenizer
from mlexpert.sandbox.api import Sandbox
from mlexpert.tasks.task import Task

STAGES = 5
MAX_SPOILT = 0.02  # share of teacher episodes that the infrastructure may fail
OUTSIDE_TRAINING = 1_000_000  # a step whose documents no training step will see


def run(config: Config, path: Path) -> None:
    """The loop of configs/sft.py: everything before RL, then the held-out evaluation of the SFT policy."""
    setup.require_runnable(config)
    with workdir.hold(path, config) as held:
        asyncio.run(_run(config, held))


async def _run(config: Config, held: Workdir) -> None:
    screen.heading(1, STAGES, "micro tasks with an executed ladder of reference solutions")
    teaching, held_out = tasksets.teaching(config, held), tasksets.held_out(config, held)
    async with setup.open_sandbox(config) as sandbox:
        isolation = setup.isolation_line(sandbox.isolation)
        screen.say(f"  sandbox: {isolation}")
        stage, params = await policy_before_rl(config, held, sandbox, teaching, STAGES)
        screen.heading(5, STAGES, f"held-out evaluation: {heldout.protocol(config)}")
        async with setup.engine(stage, params) as engine:
            lines = await heldout.evaluate(stage, engine, held_out, "sft")
    report.conclude(held, config, {"sft": lines}, len(held_out), isolation)


async def policy_before_rl(
    config: Config, held: Workdir, sandbox: Sandbox, tasks: Sequence[Task], n_stages: int
) -> tuple[Stage, Params]:
    """Stages 2 to 4; each is skipped if the folder holds its result."""
    loaded = setup.opened(config)
    screen.say(f"  kernels: {setup.kernels_line(config, loaded)}")
    screen.heading(2, n_stages, "scripted teachers of mixed quality play the training tasks in the sandbox")
    records = await teacher_episodes(config, held, sandbox, tasks)
    kept = [
        cut for record in records if (cut := episodes.worth_imitating(record, config.corpus.eta, config.corpus.delta))
    ]
    screen.say(f"  outcome-guided supervision keeps {len(kept)} of {len(records)} episodes")
    stage = setup.make(config, held, tokenizer(config, held, records, loaded), sandbox, loaded)
    source = config.model.load and f"loaded from {config.model.load}"
    screen.heading(3, n_stages, f"base policy, {source or 'from scratch on schema documents'}")
    base = await policies.train_base(stage)
    adapters = f", adapters of rank {stage.model.lora.rank} alone" if stage.model.lora else ""
    screen.heading(4, n_stages, f"SFT on what outcome-guided supervision keeps{adapters}")
    return stage, await policies.train_sft(stage, base, kept)


async def teacher_episodes(config: Config, held: Workdir, sandbox: Sandbox, tasks: Sequence[Task]) -> list[Record]:
    """Played once; the file appears when it is whole."""
    path = held / "corpus" / "episodes.jsonl"
    if path.exists():
        return episodes.load(path)
    for stale in (held / "episodes").glob("teacher-*.jsonl"):  # of a collection that was stopped
        stale.unlink()
    with screen.bar("teacher", config.corpus.episodes, unit="episode") as bar:

        def environment(task: Task, name: str) -> Environment:
            return setup.environment(config, held, sandbox, task, name, setup.seed_of(config.seed, name))

        def progress(done: int) -> None:
            bar.update(done - bar.n)

        found = await episodes.collect(
            tasks,
            config.corpus.episodes,
            environment,
            config.seed,
            2 * config.sandbox.slots,
            progress=progress,
        )
    shutil.rmtree(held / "collected", ignore_errors=True)
    screen.say(f"  {len(found.records)} episodes, {found.spoilt} spoilt by infrastructure")
    if found.spoilt > MAX_SPOILT * config.corpus.episodes:
        raise setup.InfrastructureError(
            f"{found.spoilt} of {config.corpus.episodes} teacher episodes failed by the sandbox; their journals in "
            f"{held / 'episodes'} say why. Mend it and run the same command again"
        )
    episodes.save(path, found.records)
    return found.records


def tokenizer(config: Config, held: Workdir, records: Sequence[Record], loaded: Pretrained | None) -> Tokenizer:
    """Trained once, on the very text that a renderer makes of the episodes and of schema documents; or the loaded
    model's own."""
    path = held / "tokenizer.json"
    if not path.exists():
        draft = path.with_name("tokenizer.json.draft")
        tokenizers.save(_made(config, records, loaded), draft)
        draft.replace(path)
    return tokenizers.load(path)


def _made(config: Config, records: Sequence[Record], loaded: Pretrained | None) -> Tokenizer:
    if loaded:
        return loaded.agent_tokenizer()
    plain = setup.renderer(config, tokenizers.train((), 300))  # one token a byte
    return tokenizers.train(_texts(config, plain, records), config.tokenizer.vocab_size)


def _texts(config: Config, plain: Renderer, records: Sequence[Record]) -> Iterator[str]:
    documents = examples.documents(plain, config.seed, config.budget.executions, step=OUTSIDE_TRAINING)
    for ids_P, _ in itertools.islice(documents, config.tokenizer.documents):
        yield plain.tokenizer.decode(ids_P)
    for record in records:
        yield plain.tokenizer.decode(examples.of_record(plain, record)[0])
