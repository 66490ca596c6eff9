"""A saved policy on a held-out task set.

    python experiments/run.py --config=configs/evaluate.py --workdir=runs/evaluate --config.checkpoint=runs/wirl
    two CPU cores, about a minute; prints the table of held-out medals with its protocol

`--config.policy` names which policy of the run: rl, sft or base; "loaded" is the model `--config.model.load`, a Hugging
Face folder or a GGUF file, as it is. `--config.tasks.folder` takes a set of tasks that exists; without it a fresh set
is made from `tasks.held_out_seed`; `--config.tasks.train_folder` takes the held-out sources of the set that a policy
was trained on.
"""

from ml_collections import ConfigDict

from configs import wirl


def get_config(preset: str = "laptop") -> ConfigDict:
    config = wirl.get_config(preset)
    config.name = "evaluate"
    config.loop = "evaluate"
    config.checkpoint = "runs/smoke" if preset == "smoke" else "runs/wirl"
    config.policy = "rl"
    for unused in ("base", "sft", "corpus"):
        del config[unused]
    return config
