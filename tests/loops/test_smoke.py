"""One smoke run with learning rate 0, whole: nothing may change, and the books must be complete and add up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "still"
    command = [sys.executable, "experiments/run.py", "--config=configs/wirl.py:smoke", f"--workdir={folder}"]
    run = subprocess.run([*command, "--config.train.lr=0.0"], check=False, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_mismatch_of_sampler_and_learner_stays_flat(folder):
    rows = lines(folder / "metrics.jsonl")
    assert len(rows) == 4
    for row in rows:
        assert row["q_log_max"] < 1e-4 and row["keep_share"] == 1.0
        assert abs(row["kl"]) < 1e-8


def test_an_unchanged_policy_plays_the_same_episodes(folder):
    def played(name):
        return {
            (line["run"], line["task"]): line["rewards"] for line in lines(folder / "evaluations" / f"{name}.jsonl")
        }

    assert played("sft") == played("wirl") != {}


def test_every_window_has_one_fate(summary):
    windows = summary["windows"]
    fates = ("trained", "expired", "cancelled", "failed", "pending")
    assert windows["opened"] == sum(windows[fate] for fate in fates)
    assert windows["trained"] == 4 * 8


def test_the_summary_says_what_it_must(summary):
    assert {"config_hash", "wall_seconds", "peak_rss_gib", "protocol", "sandbox"} <= summary.keys()
    for policy in ("sft", "wirl"):
        for measure in ("any_medal", "valid", "gold"):
            assert {"runs", "mean", "sem"} <= summary["held_out"][policy][measure].keys()
    assert summary["held_out"]["n_tasks"] == 4
    assert abs(sum(summary["clock"].values()) - 1) < 1e-9
    assert {"prompt", "sampled", "trained"} <= summary["tokens"].keys()
    assert sum(summary["executions"].values()) >= summary["windows"]["trained"] - summary["windows"]["pending"]


def test_people_find_what_they_look_for(folder):
    for name in ("summary.md", "curves.png", "metrics.jsonl", "tensorboard", "episodes", "checkpoints"):
        assert (folder / name).exists(), name


def test_no_journal_of_the_policy_shows_a_hidden_score(folder):
    """What the policy read is in the replies; hidden verdicts lie beside them and nowhere in them."""
    replies = [event["reply"]["text"] for path in (folder / "episodes").glob("rl-*.jsonl")
               for event in lines(path) if event["event"] == "step"]  # fmt: skip
    assert replies
    assert not any(word in text for text in replies for word in ("medal", "threshold", "test score", "gold"))
