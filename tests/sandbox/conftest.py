"""One started sandbox per kind of isolation for the whole folder, driven from plain test functions."""

import asyncio
import os
from dataclasses import replace

import pytest

from mlexpert.sandbox import images
from mlexpert.sandbox.api import Job, SandboxError
from mlexpert.sandbox.containers import DockerSandbox
from mlexpert.sandbox.embedded import EmbeddedSandbox
from mlexpert.types import Limits

LIMITS = Limits(wall_s=20.0, cpu_s=20.0, memory_mb=300, pids=32, disk_mb=16, output_kb=8)


class Runner:
    """A sandbox, its event loop and fresh folders: `run(script)` gives one Execution."""

    def __init__(self, loop, sandbox, folder):
        self.loop, self.sandbox, self.folder, self.count = loop, sandbox, folder, 0
        self.inputs = folder / "public"
        self.inputs.mkdir()
        (self.inputs / "train.csv").write_text("id,target\n1,0\n2,1\n")
        (self.inputs / "images").mkdir()
        (self.inputs / "images/a.txt").write_text("cat")
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


def _runner(tmp_path_factory, kind, slots=2):
    yield from _driven(tmp_path_factory, EmbeddedSandbox(slots, kind))


def _driven(tmp_path_factory, sandbox):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(sandbox.start())
    yield Runner(loop, sandbox, tmp_path_factory.mktemp("sandbox"))
    loop.run_until_complete(sandbox.close())
    loop.close()


def _started(tmp_path_factory, kind):
    try:
        yield from _runner(tmp_path_factory, kind)
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def box(tmp_path_factory):
    """Namespaces, by way of a user namespace if not root; skipped, with the reason, where they are blocked."""
    yield from _started(tmp_path_factory, "namespaces" if os.geteuid() == 0 else "user")


@pytest.fixture(scope="session")
def landlock(tmp_path_factory):
    yield from _started(tmp_path_factory, "landlock")


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    yield from _started(tmp_path_factory, "plain")


@pytest.fixture(params=["box", "landlock"])
def isolated(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["box", "landlock", "plain"])
def any_box(request):
    return request.getfixturevalue(request.param)


# ---------------------------------------------------------------- containers
IMAGE = "mlexpert-sandbox:latest"


def pytest_configure(config):
    config.addinivalue_line("markers", "docker: needs a container engine and the sandbox image; `make test-docker`")


@pytest.fixture(scope="session")
def docker_engine():
    """A client of the engine, if one answers and has the image; else the test is skipped and says what is missing."""
    if reason := os.environ.get("MLEXPERT_NO_ENGINE"):
        pytest.skip(f"docker: {reason}")
    try:
        engine = images.connect()
        images.check_image(engine, IMAGE)
    except SandboxError as error:
        pytest.skip(str(error))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def docker_box(docker_engine, tmp_path_factory):
    """Containers on that engine; from here on whatever does not work is a failure."""
    yield from _driven(tmp_path_factory, DockerSandbox(2, IMAGE))


def pytest_terminal_summary(terminalreporter):
    reports = {kind: terminalreporter.stats.get(kind, []) for kind in ("passed", "failed", "skipped")}
    count = {kind: sum("docker" in report.keywords for report in found) for kind, found in reports.items()}
    if count["skipped"]:
        report = next(report for report in reports["skipped"] if "docker" in report.keywords)
        why = report.longrepr[2].removeprefix("Skipped: ")
        terminalreporter.write_line(f"{count['skipped']} tests of containers were SKIPPED: {why}", yellow=True)
    if ran := count["passed"] + count["failed"]:
        terminalreporter.write_line(f"{ran} tests of containers ran, {count['failed']} failed")
