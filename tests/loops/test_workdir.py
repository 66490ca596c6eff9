import subprocess
import sys

import pytest
from ml_collections import ConfigDict

from mlexpert.loops import workdir
from mlexpert.loops.workdir import WorkdirError


def config(**values):
    return ConfigDict({"name": "x", "train": {"lr": 0.1, **values}})


def test_the_same_config_goes_on_and_finds_its_stages(tmp_path):
    with workdir.hold(tmp_path / "run", config()) as held:
        workdir.finish(held, "tasks", kept=3)
    with workdir.hold(tmp_path / "run", config()) as held:
        assert workdir.facts(held, "tasks") == {"kept": 3}
        assert workdir.facts(held, "sft") is None


def test_another_config_is_refused_with_the_keys_that_differ(tmp_path):
    with workdir.hold(tmp_path / "run", config()):
        pass
    with pytest.raises(WorkdirError, match=r"train.lr: 0.1 -> 0.2"), workdir.hold(tmp_path / "run", config(lr=0.2)):
        pass


def test_a_folder_in_use_is_refused(tmp_path):
    # The lock belongs to a process: a second one is needed to meet it.
    program = (
        "import sys; from pathlib import Path; from ml_collections import ConfigDict\n"
        "from mlexpert.loops import workdir\n"
        "try:\n"
        "    with workdir.hold(Path(sys.argv[1]), ConfigDict({'name': 'x', 'train': {'lr': 0.1}})): print('entered')\n"
        "except workdir.WorkdirError as error: print('refused', error)\n"
    )
    with workdir.hold(tmp_path / "run", config()):
        second = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "run")], check=False, capture_output=True, text=True
        )
    assert "refused" in second.stdout and "in use by process" in second.stdout, second.stderr


def test_a_folder_with_strangers_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(WorkdirError, match=r"thesis\.tex"), workdir.hold(tmp_path, config()):
        pass


def test_seconds_add_up_over_processes_and_memory_is_the_peak(tmp_path):
    held = workdir.Workdir(tmp_path)
    for _ in range(2):
        times = iter([10.0, 11.5, 13.0])
        meter = workdir.Meter(held, lambda times=times: next(times))
        meter.tick()
        meter.tick()
    assert workdir.usage(held).wall_seconds == pytest.approx(6.0)
    assert workdir.usage(held).peak_rss_gib > 0


def test_a_first_write_that_was_cut_short_does_not_lock_the_folder(tmp_path):
    (tmp_path / "config.json.draft").write_text("{")
    with workdir.hold(tmp_path, config()) as held:
        assert (held / "config.json").exists()
