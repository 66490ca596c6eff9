"""A run that is killed at any moment and started again ends with the same ledger as one that never stopped."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KILLS = 3


def start(folder):
    command = [sys.executable, "experiments/run.py", "--config=configs/wirl.py:smoke", f"--workdir={folder}"]
    command.append("--config.train.minutes=1000.0")  # the count of updates ends the run, however slow the machine
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process):
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output[-3000:]


def kill_somewhere(folder, rng, seconds):
    process = start(folder)
    time.sleep(rng.uniform(5.0, seconds))
    process.send_signal(signal.SIGKILL)
    process.wait()


def last_loss(folder):
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["loss"]


@pytest.mark.slow
def test_three_kills_leave_the_ledger_of_an_undisturbed_run(tmp_path):
    began = time.monotonic()
    finish(start(tmp_path / "whole"))
    seconds = time.monotonic() - began
    rng = random.Random(20261129)
    for _ in range(KILLS):
        kill_somewhere(tmp_path / "killed", rng, 0.6 * seconds)
    finish(start(tmp_path / "killed"))
    whole, killed = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "killed"))
    for summary in (whole, killed):
        windows = summary["windows"]
        fates = ("trained", "expired", "cancelled", "failed", "pending")
        assert windows["opened"] == sum(windows[fate] for fate in fates)
    for key in ("updates", "config_hash"):
        assert whole[key] == killed[key]
    assert whole["windows"]["trained"] == killed["windows"]["trained"]
    for stage in ("base", "sft"):
        final = [last_loss(tmp_path / name / "stages" / stage) for name in ("whole", "killed")]
        assert final[0] == pytest.approx(final[1], rel=1e-3)


@pytest.mark.slow
def test_no_window_is_trained_twice_across_kills(tmp_path):
    rng = random.Random(7)
    folder = tmp_path / "killed"
    for _ in range(2):
        kill_somewhere(folder, rng, 45.0)
    finish(start(folder))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    trained = [name for row in rows for name in row["windows"].split()]
    assert len(trained) == len(set(trained)) == json.loads((folder / "summary.json").read_text())["windows"]["trained"]
