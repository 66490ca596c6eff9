"""The table of attacks: what it shows, what it writes, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from mlexpert.loops import sandbox_check
from mlexpert.loops.settings import ConfigError
from mlexpert.sandbox.api import SandboxError
from mlexpert.sandbox.attacks import check
from mlexpert.types import Isolation

ROOT = Path(__file__).resolve().parents[2]


class Opened:
    """Stands for a started sandbox; what the attacks find is decided by `findings`."""

    def __init__(self, kind, reason=""):
        self.isolation, self.reason = Isolation(kind, True, True, False, True, True, True, "as a test"), reason

    async def __aenter__(self):
        if self.reason:
            raise SandboxError(self.reason)
        return self

    async def __aexit__(self, *_):
        pass


@pytest.fixture
def findings(monkeypatch):
    """kind -> attack -> (verdict, reason); all else held. docker is not there."""
    told = {}

    async def run(sandbox, chosen, around, tell):
        found = []
        for one in chosen:
            verdict, reason = told.get(sandbox.isolation.kind, {}).get(one.name, (check.HELD, ""))
            found.append(check.Finding(one.name, one.promise, verdict, reason, "ok", 0.1))
            tell(found[-1])
        return found

    def opened(config, kind, slots):
        return Opened(kind, "no engine answers" if kind == "docker" else "")

    monkeypatch.setattr(sandbox_check, "_sandbox", opened)
    monkeypatch.setattr(sandbox_check.check, "run", run)
    return told


def config(**changes):
    return ConfigDict({"kinds": "", "attacks": "", "image": "i", "runtime": "", **changes})


def test_all_that_is_promised_held(findings, tmp_path, capsys):
    findings["plain"] = {"searches the disk": (check.NOT_PROMISED, "hides nothing")}
    sandbox_check.run(config(), tmp_path / "new" / "folder")
    shown = capsys.readouterr().out
    header, row = (line.split() for line in shown.splitlines() if "      user" in line or "searches the disk  " in line)
    assert header == ["namespaces", "user", "landlock", "plain"]
    assert row == ["searches", "the", "disk", "held", "held", "held", "-"]
    assert "docker: not available: no engine answers; nothing tried" in shown
    assert "not enforced: processes (as a test)" in shown and "1 not promised" in shown
    report = json.loads((tmp_path / "new" / "folder" / "report.json").read_text())
    assert report[0]["kind"] == "docker" and len(report) == 5
    assert all(len(column["findings"]) > 100 for column in report[1:])


def test_a_broken_promise_is_named_and_ends_with_1(findings, tmp_path, capsys):
    findings["user"] = {"fork bomb": (check.NOT_HELD, "2000 children")}
    with pytest.raises(SystemExit) as end:
        sandbox_check.run(config(kinds="user, landlock"), tmp_path)
    assert end.value.code == 1
    shown = capsys.readouterr().out
    assert "NOT HELD by user: fork bomb: 2000 children" in shown
    assert any(line.split() == ["fork", "bomb", "NOT", "HELD", "held"] for line in shown.splitlines())


def test_attacks_on_a_neighbour_get_two_slots_and_the_rest_one(findings, tmp_path, monkeypatch):
    asked = []
    opened = sandbox_check._sandbox
    monkeypatch.setattr(sandbox_check, "_sandbox", lambda c, kind, slots: asked.append(slots) or opened(c, kind, slots))
    sandbox_check.run(config(kinds="user", attacks="neighbour, fork bomb"), tmp_path)
    assert asked == [1, 2]
    (column,) = json.loads((tmp_path / "report.json").read_text())
    assert "attacks its neighbour" in [finding["attack"] for finding in column["findings"]]


@pytest.mark.parametrize(
    ("changes", "told"), [(dict(kinds="user,vm"), "vm is none of"), (dict(attacks="nonsense"), "no attack has such")]
)
def test_what_does_not_exist_is_refused(changes, told, tmp_path):
    with pytest.raises(ConfigError, match=told):
        sandbox_check.run(config(**changes), tmp_path)


def test_the_command(tmp_path):
    command = [sys.executable, "experiments/run.py", "--config=configs/sandbox_check.py", f"--workdir={tmp_path}"]
    chosen = ["--config.kinds=plain", "--config.attacks=exit code,syntax"]
    done = subprocess.run([*command, *chosen], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "plain; enforced:" in done.stdout and "3 held, 0 NOT HELD" in done.stdout
