"""A saved policy as a Hugging Face folder.

    python experiments/run.py --config=configs/export.py --config.checkpoint=runs/wirl --config.folder=runs/wirl_hf
    a few seconds; transformers, SGLang and `--config.model.load=runs/wirl_hf` open it

`--config.policy` names which policy of the run: rl, sft or base; the preset is that of the run (laptop, smoke).
"""

from ml_collections import ConfigDict

from configs import wirl


def get_config(preset: str = "laptop") -> ConfigDict:
    run = wirl.get_config(preset)
    checkpoint = "runs/smoke" if preset == "smoke" else "runs/wirl"
    return ConfigDict(
        dict(name="export", loop="export", checkpoint=checkpoint, policy="rl", folder="", model=run.model.to_dict())
    )
