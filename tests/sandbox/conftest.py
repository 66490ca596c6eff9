"""One started sandbox per kind of isolation for the whole folder, driven from plain test functions."""

import asyncio
import os
from dataclasses import replace

import pytest

from mlexpert.sandbox.api import Job
from mlexpert.sandbox.warm import WarmSandbox
from mlexpert.types import Limits

LIMITS = Limits(wall_s=20.0, cpu_s=20.0, memory_mb=300, pids=32, disk_mb=16, output_kb=8)


class Runner:
    """A sandbox, its event loop and fresh folders: `run(script)` gives one Execution."""

    def __init__(self, loop, sandbox, folder):
        self.loop, self.sandbox, self.folder, self.count = loop, sandbox, folder, 0
        self.inputs = folder / "public"
        self.inputs.mkdir()
        (self.inputs / "train.csv").write_text("id,target\n1,0\n2,1\n")
        (folder / "answers.csv").write_text("id,target\n3,1\n")

    def job(self, script, seed=0, **limits):
        self.count += 1
        into = self.folder / f"into{self.count}"
        into.mkdir()
        return Job(script, self.inputs, into, limits=replace(LIMITS, **limits), seed=seed)

    def run(self, script, **options):
        return self.wait(self.sandbox.execute(self.job(script, **options)))

    def wait(self, awaitable):
        return self.loop.run_until_complete(awaitable)


def _runner(tmp_path_factory, kinds, slots=2):
    loop = asyncio.new_event_loop()
    sandbox = WarmSandbox(slots, kinds)
    loop.run_until_complete(sandbox.start())
    yield Runner(loop, sandbox, tmp_path_factory.mktemp("sandbox"))
    loop.run_until_complete(sandbox.close())
    loop.close()


@pytest.fixture(scope="session")
def box(tmp_path_factory):
    """The isolated sandbox; skipped, with the reason, on machines that block namespaces."""
    for runner in _runner(tmp_path_factory, None):
        if runner.sandbox.isolation.kind == "plain":
            pytest.skip(f"no isolation on this machine: {runner.sandbox.isolation.note}")
        assert runner.sandbox.isolation.kind == ("namespaces" if os.geteuid() == 0 else "user")
        yield runner


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    yield from _runner(tmp_path_factory, ("plain",))


@pytest.fixture(params=["isolated", "plain"])
def any_box(request):
    return request.getfixturevalue("box" if request.param == "isolated" else "plain")
