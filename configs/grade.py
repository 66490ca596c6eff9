"""What submissions are worth, in MLE-bench's report format.

    python experiments/run.py --config=configs/grade.py --config.task=tasks/classic/iris --config.submission=my.csv
    python experiments/run.py --config=configs/grade.py --config.task=tasks/classic --config.submission=submissions/
    python experiments/run.py --config=configs/grade.py --config.task=tasks/classic --config.submission=runs.jsonl
    one CPU core, a second or two to start, then milliseconds for a submission of some hundred rows

`--config.task` is a task's folder or a set. `--config.submission` is one file, a folder of `<id>.csv` (or
`<id>/submission.csv`, each also with .gz), or a .jsonl list with lines like

    {"competition_id": "iris", "submission_path": "a/submission.csv", "run": "1"}

Without "run" the n-th line of a task is its n-th run. Prints a table and writes report.json into --workdir.
"""

from ml_collections import ConfigDict


def get_config(preset: str = "laptop") -> ConfigDict:
    if preset != "laptop":
        raise ValueError(f"unknown preset {preset!r}: there is only laptop")
    return ConfigDict(dict(name="grade", loop="grade", task="", submission=""))
