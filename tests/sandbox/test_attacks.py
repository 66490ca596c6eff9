"""Every attack against every kind of sandbox, and proof that the check would notice a sandbox that does not hold.

The kinds are checked by the program that users run, one process each and all at the same time: `user` and `landlock`
as a user without privileges, and `landlock` once more as root without namespaces. Each test reads one row of a report.
"""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from mlexpert.sandbox import attacks, scratch
from mlexpert.sandbox.attacks import catalogue, check, outside
from mlexpert.sandbox.attacks.attack import ENDING, OK, TIMEOUT, Attack
from mlexpert.sandbox.attacks.check import HELD, NOT_HELD, NOT_PROMISED
from mlexpert.sandbox.embedded import EmbeddedSandbox
from mlexpert.types import ExecStatus, Execution, Isolation, Limits

ROOT = Path(__file__).resolve().parents[2]
AS_USER = [sys.executable, str(ROOT / "tests/sandbox/as_user.py")]
UID = 12_345
# The command in front of the check and the user that it makes: None for whoever runs the tests.
KINDS = {
    "docker": ([], None),
    "namespaces": ([], None),
    "user": ([*AS_USER, str(UID)], UID),
    "landlock": ([*AS_USER, "--no-user-namespaces", str(UID + 1)], UID + 1),
    "landlock as root": ([*AS_USER, "0", "env", "TMPDIR=/tmp"], 0),
    "plain": ([], None),
}
NEED_ROOT = ("namespaces", "landlock as root")


# ---------------------------------------------------------------- against the real ones
@pytest.fixture(scope="session")
def reports(request, tmp_path_factory):
    """kind -> how its check ended and its column of the report. All that are asked for run at the same time."""
    rows = [item for item in request.session.items if "reports" in getattr(item, "fixturenames", ())]
    asked = {item.callspec.params["kind"] for item in rows}
    running = {kind: _start(kind) for kind in KINDS if kind in asked and not _excuse(kind, request)}
    try:
        yield {kind: _report(process, folder) for kind, (process, folder) in running.items()}
    finally:
        for process, folder in running.values():
            process.terminate()  # whoever started it as another user passes this on
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)
            Path(f"{folder}.log").unlink(missing_ok=True)


def _excuse(kind, request):
    if kind in NEED_ROOT and os.geteuid() != 0:
        return f"{kind}: only root can check it"
    if kind == "docker":
        try:
            request.getfixturevalue("docker_engine")
        except pytest.skip.Exception as reason:
            return str(reason)
    return ""


def _start(kind):
    before, uid = KINDS[kind] if os.geteuid() == 0 else ([], None)
    folder = tempfile.mkdtemp(prefix="check-", dir="/tmp")
    if uid is not None:
        os.chown(folder, uid, uid)
    program = [sys.executable, "experiments/run.py", "--config=configs/sandbox_check.py", f"--workdir={folder}/report"]
    with open(f"{folder}.log", "w") as log:
        command = [*before, *program, f"--config.kinds={kind.split()[0]}"]
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log), folder


def _report(process, folder):
    code = process.wait()
    said = Path(f"{folder}.log").read_text()
    report = Path(folder, "report/report.json")
    assert report.exists(), f"the check ended with code {code} and no report: {said[-2000:]}"
    (column,) = json.loads(report.read_text())
    return code, column


def _all_pairs():
    for kind in KINDS:
        for one in attacks.ALL:
            yield pytest.param(kind, one, id=f"{kind}-{one.name}", marks=_marks(kind))


def _marks(kind):
    return [pytest.mark.docker] if kind == "docker" else []


@pytest.mark.parametrize(("kind", "one"), _all_pairs())
def test_attack(kind, one, reports, request):
    if reason := _excuse(kind, request):
        pytest.skip(reason)
    _, column = reports[kind]
    if not column["findings"]:
        pytest.skip(f"{kind}: {column['line']}")
    finding = next(finding for finding in column["findings"] if finding["attack"] == one.name)
    assert finding["verdict"] != NOT_HELD, finding["reason"]
    if kind != "plain" and not one.unpromised:
        assert finding["verdict"] == HELD, finding["reason"]  # isolation promises all the rest


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=_marks(kind)) for kind in KINDS])
def test_the_program_ends_as_its_table_says(kind, reports, request):
    if reason := _excuse(kind, request):
        pytest.skip(reason)
    code, column = reports[kind]
    assert code == int(any(finding["verdict"] == NOT_HELD for finding in column["findings"]))


# ---------------------------------------------------------------- the list
def test_the_catalogue_is_covered():
    tried = {number for one in attacks.ALL for number in one.numbers.split()}
    assert tried <= set(catalogue.BEHAVIOURS)
    assert set(catalogue.BEHAVIOURS) - tried <= set(catalogue.ELSEWHERE)


def test_what_is_tested_elsewhere_is_tested_there():
    for number, tests in catalogue.ELSEWHERE.items():
        assert tests, number
        for test in tests:
            file, _, name = test.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_attacks_have_names_of_their_own_and_limits_that_exist():
    names = [one.name for one in attacks.ALL]
    assert len(names) == len(set(names))
    assert all(set(one.limits) <= set(vars(Limits())) for one in attacks.ALL)


# ---------------------------------------------------------------- the check itself
LABEL = Isolation("namespaces", True, True, True, True, True, True)
FINE = Execution(OK, 0, None, "", "", outside.INPUTS["train.csv"], "", False, 0.1, 0.1, 1.0, LABEL)
PLAIN_ATTACK = Attack("nothing", "1", ENDING, "does nothing", "the script")


class Pretended:
    """A sandbox that answers the attack's script with `run`, anything else as it should, and may do something else."""

    def __init__(self, run=FINE, deed=lambda job: None, works=FINE):
        self.isolation, self.restarts, self.server_pid = LABEL, 0, os.getpid()
        self.run, self.deed, self.works = run, deed, works

    async def execute(self, job):
        if job.script != "the script":
            return self.works
        self.deed(job)
        return self.run

    async def close(self):
        pass


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(check, "_PATIENCE_S", 0.05)


@pytest.fixture(scope="module")
def around():
    with outside.planted() as surroundings:
        yield surroundings


def attempt(sandbox, around, one=PLAIN_ATTACK):
    return asyncio.run(check.attempt(sandbox, one, around))


def test_a_sandbox_that_holds_is_found_to_hold(around):
    finding = attempt(Pretended(), around)
    assert (finding.verdict, finding.reason, finding.status) == (HELD, "", "ok")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (dict(stdout="all is well\nHOLE in the wall\n"), "in the wall"),
        (dict(stderr="HOLE in the floor"), "in the floor"),
        (dict(status=TIMEOUT, reason="wall limit"), "ended as timeout (wall limit), not ok"),
        (dict(status=ExecStatus.SETUP_FAILED, reason="no room"), "the sandbox itself failed: no room"),
        (dict(stdout="\x1b[2J"), "control character"),
        (dict(stderr="a\u202eb"), "control character"),
    ],
)
def test_what_an_execution_gives_away(around, changes, told):
    finding = attempt(Pretended(replace(FINE, **changes)), around)
    assert finding.verdict == NOT_HELD and told in finding.reason


def test_a_failure_without_a_reason(around):
    expecting = replace(PLAIN_ATTACK, expected=(TIMEOUT,))
    assert "needs a reason" in attempt(Pretended(replace(FINE, status=TIMEOUT)), around, expecting).reason
    fine = replace(FINE, status=TIMEOUT, reason="wall limit of 1 s")
    assert attempt(Pretended(fine), around, expecting).verdict == HELD


def test_a_secret_that_comes_out(around, tmp_path):
    printed = replace(FINE, stdout=f"look: {around.secret}")
    assert attempt(Pretended(printed), around).reason == "the planted secret came out"
    (tmp_path / "submission.csv").write_text(around.secret)
    collected = replace(FINE, files={"submission.csv": tmp_path / "submission.csv"})
    assert attempt(Pretended(collected), around).reason == "the planted secret came out"


def test_what_is_left_behind(around, impatient):
    kept = []

    def leave_a_process(job):
        kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

    def leave_an_open_file(job):
        kept.append(os.open(__file__, os.O_RDONLY))

    def leave_a_folder(job):
        kept.append(str(scratch.make()))
        Path(kept[-1], "workspace").mkdir()

    try:
        assert attempt(Pretended(deed=leave_a_process), around).reason.startswith("processes left behind: ")
        assert attempt(Pretended(deed=leave_an_open_file), around).reason == f"files left behind: {__file__}"
        assert attempt(Pretended(deed=leave_a_folder), around).reason == f"folders left behind: {kept[2]}/workspace"
    finally:
        kept[0].communicate()
        os.close(kept[1])
        shutil.rmtree(kept[2])


def test_what_is_disturbed(around):
    def knock(job):
        with socket.create_connection(("127.0.0.1", around.tcp.getsockname()[1])):
            pass

    def send(job):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.sendto(b"out", ("127.0.0.1", around.udp.getsockname()[1]))

    def spoil(job):
        (around.inputs / "train.csv").write_text("spoiled")

    def knock_here(job):
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(str(around.folder / "socket"))

    assert attempt(Pretended(deed=knock), around).reason.startswith("somebody came to the owner's tcp socket: ('127")
    told = f"somebody came to the owner's named socket: process {os.getpid()} of user {os.getuid()}"
    assert attempt(Pretended(deed=knock_here), around).reason == told
    assert attempt(Pretended(deed=send), around).reason == "the owner received b'out'"
    assert "spoiled" in attempt(Pretended(deed=spoil), around).reason
    (around.inputs / "train.csv").write_text(outside.INPUTS["train.csv"])
    assert attempt(Pretended(), around).verdict == HELD


def test_a_neighbour_that_is_killed():
    with outside.planted() as around:
        finding = attempt(Pretended(deed=lambda job: around.bystander.kill() or around.bystander.wait()), around)
    assert finding.reason == "a process beside the sandbox was ended (-9)"


def test_a_sandbox_that_does_not_survive(around):
    broken = replace(FINE, status=ExecStatus.ERROR, reason="ValueError")
    assert attempt(Pretended(works=broken), around).reason.startswith("the next execution fails: error ValueError")
    sandbox = Pretended()
    sandbox.deed = lambda job: setattr(sandbox, "restarts", 1)
    assert attempt(sandbox, around).reason == "the server died and was replaced"


def test_what_is_not_promised_is_not_tried(around):
    def never(job):
        raise AssertionError("it was tried")

    sandbox = Pretended(deed=never)
    sandbox.isolation = replace(LABEL, kind="plain", files=False, note="hides nothing")
    assert attempt(sandbox, around, replace(PLAIN_ATTACK, promise="files")).verdict == NOT_PROMISED
    for key in ("plain", "hides nothing"):
        finding = attempt(sandbox, around, replace(PLAIN_ATTACK, unpromised={key: "for a reason"}))
        assert (finding.verdict, finding.reason) == (NOT_PROMISED, "for a reason")


def test_the_scripts_find_what_is_there_to_be_found(around):
    """In a sandbox that hides no files, the attacks on files get through: they fail elsewhere for good reasons."""

    async def go():
        async with EmbeddedSandbox(1, "plain") as sandbox:
            names = ("searches the disk", "searches shared memory")
            forced = [replace(one, promise=ENDING) for one in attacks.ALL if one.name in names]
            return await check.run(sandbox, forced, around)

    found = {finding.attack: finding for finding in asyncio.run(go())}
    assert len(found) == 2 and all(finding.verdict == NOT_HELD for finding in found.values())
    assert around.secret in found["searches the disk"].reason
