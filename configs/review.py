"""The manual review of a task set: reads everything there is to know about it onto one page, and records decisions.

    python experiments/run.py --config=configs/review.py --config.tasks=tasks/classic
    python experiments/run.py --config=configs/review.py --config.tasks=tasks/classic --config.accept=iris,abalone
    python experiments/run.py --config=configs/review.py --config.tasks=tasks/classic --config.reject='iris:too easy'
    one CPU core, about a second a task; writes runs/review/review.html, which a browser opens from the disk

`--config.accept` is ids separated by commas, or "all" for everything undecided; `--config.reject` is `id:reason`,
several separated by semicolons. Decisions go into review.json of the set with time, user (`--config.who`, by default
who runs this) and the checksum of the task: one that is made again differently has to be reviewed again. Rejected tasks
are never trained on.
"""

from ml_collections import ConfigDict


def get_config(preset: str = "laptop") -> ConfigDict:
    if preset != "laptop":
        raise ValueError(f"unknown preset {preset!r}: there is only laptop")
    return ConfigDict(dict(name="review", loop="review", tasks="", accept="", reject="", who="", why=""))
