"""Only make micro tasks (SandMLE): the funnel of the sanity gate, and how balanced the set is.

    python experiments/run.py --config=configs/sandmle.py --workdir=runs/tasks --config.n=300
    two CPU cores, about half a minute; prints kept and dropped candidates and the medal rate of every fixed pipeline

`--config.split` is train or held_out; `--config.kinds` any of tabular, series, text, image.
"""

from ml_collections import ConfigDict


def get_config(preset: str = "laptop") -> ConfigDict:
    presets = {"laptop": 300, "smoke": 8}
    if preset not in presets:
        raise ValueError(f"unknown preset {preset!r}: one of {', '.join(presets)}")
    return ConfigDict(
        dict(name="sandmle", loop="sandmle", split="train", n=presets[preset], seed=1, kinds=("tabular",))
    )
