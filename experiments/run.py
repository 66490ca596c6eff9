"""The one entry point: flags -> config -> a loop.

    python experiments/run.py --config=configs/wirl.py --workdir=runs/wirl
    python experiments/run.py --config=configs/wirl.py:smoke --workdir=runs/smoke --config.train.lr=1e-4
    python experiments/run.py --config=configs/wirl.py:qwen3_8b --dry_run

Every expected fault (a wrong key, a busy folder, a full disk, a broken task) ends in one line that says what to do;
anything else keeps its traceback.
"""

import os
import sys
from pathlib import Path

if not (3, 11) <= tuple(sys.version_info[:2]) < (3, 14):
    sys.exit("mlexpert needs Python 3.11, 3.12 or 3.13; this is " + sys.version.split()[0])

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from experiments import heap

if __name__ == "__main__":
    heap.keep()
# Work is parallel over episodes; threads of numerical libraries that spin while they wait would starve it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app, flags, logging
from ml_collections import config_flags

from mlexpert.loops import hosts, launch, settings

_CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment: configs/<name>.py[:preset].", lock_config=True)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where everything is written; the same command goes on where it stopped."
)
_COORDINATOR = flags.DEFINE_string("coordinator", "", "Several processes: host:port of process 0 (see loops/hosts.py).")
_PROCESSES = flags.DEFINE_string("processes", "", "Their number, or auto.")
_PROCESS = flags.DEFINE_string("process", "", "The number of this one.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Resolve, validate and print the config, then stop.")


def main(argv: list[str]) -> None:
    logging.set_verbosity(logging.WARNING)  # libraries log every file they write
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    config = settings.validate(_CONFIG.value)
    if _DRY_RUN.value:
        print(settings.describe(config))
        return
    workdir = _WORKDIR.value or f"runs/{config.name}"
    hosts.start(hosts.read(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value))
    launch.run(config, Path(workdir))


if __name__ == "__main__":
    flags.mark_flag_as_required("config")
    with launch.plain_errors():
        app.run(main, flags_parser=settings.parse_flags)
