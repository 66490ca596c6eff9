"""From a config to its loop, and from an expected fault to one line."""

from __future__ import annotations

import contextlib
import errno
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from mlexpert.loops import hosts
from mlexpert.loops.settings import Config, ConfigError
from mlexpert.loops.workdir import WorkdirError

LOOPS = (
    "rl",
    "sft",
    "evaluate",
    "sandmle",
    "sandbox_check",
    "chat",
    "export",
    "grade",
    "tasks",
    "review",
    "publish",
    "plan",
    "rehearse",
)  # modules of this room with run(config, workdir)
SEVERAL_PROCESSES = ("rehearse",)  # of these, which know that they may not be alone

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space and run the same command again; it goes on",
    errno.EDQUOT: "the disk quota is used up: free some space and run the same command again",
    errno.EROFS: "the file system is read-only: choose another --workdir",
    errno.ENOTDIR: "a part of this path is a file: choose another --workdir",
    errno.EACCES: "permission denied: choose a --workdir that you may write to",
}


def run(config: Config, workdir: Path) -> None:
    """Imports the loop that the config names and hands over. Raises ConfigError for an unknown loop, or one that
    several processes cannot run together."""
    if config.loop not in LOOPS:
        raise ConfigError(f"loop={config.loop!r}: one of {', '.join(LOOPS)}")
    if config.loop not in SEVERAL_PROCESSES and hosts.several():
        raise ConfigError(f"loop={config.loop!r} runs in one process; in several: {', '.join(SEVERAL_PROCESSES)}")
    importlib.import_module(f"mlexpert.loops.{config.loop}").run(config, workdir)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Expected faults end the program with one line and code 2; a stop by Ctrl-C with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        messages = [_expected_message(leaf) for leaf in _leaves(error)]
        if None in messages:
            raise
        print(f"error: {messages[0]}", file=sys.stderr)
        sys.exit(2)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group: tasks that run side by side wrap what they raised, each its own."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for part in error.exceptions for leaf in _leaves(part)]


def _expected_message(error: BaseException) -> str | None:
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        return f"{error.filename or 'writing'}: {_REMEDIES[error.errno]}"
    if isinstance(error, ConfigError | WorkdirError):  # the most frequent ones, without all those imports
        return str(error)
    return str(error) if isinstance(error, _expected()) else None


def _expected() -> tuple[type[Exception], ...]:
    from mlexpert.factory.export import ExportError
    from mlexpert.factory.ledger import LedgerError
    from mlexpert.factory.records import Quarantine
    from mlexpert.harness.journal import JournalError
    from mlexpert.loops.collect import SilentPolicyError
    from mlexpert.loops.hosts import HostsError
    from mlexpert.loops.recipes import RecipeError
    from mlexpert.loops.setup import InfrastructureError
    from mlexpert.loops.targets import TargetError
    from mlexpert.model.sharding import MeshError
    from mlexpert.model.tensors import ModelFileError
    from mlexpert.rollout.engine import EngineError
    from mlexpert.rollout.tokenizer import TokenizerError
    from mlexpert.sandbox.api import SandboxError
    from mlexpert.sandmle.make import FunnelError
    from mlexpert.tasks.tables import TaskError
    from mlexpert.train.checkpoint import CheckpointError

    return (
        TaskError,
        SandboxError,
        CheckpointError,
        EngineError,
        ExportError,
        FloatingPointError,
        FunnelError,
        HostsError,
        InfrastructureError,
        JournalError,
        LedgerError,
        MeshError,
        ModelFileError,
        Quarantine,
        RecipeError,
        SilentPolicyError,
        TargetError,
        TokenizerError,
    )
