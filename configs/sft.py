"""Everything before RL: micro tasks, teacher episodes, base policy, SFT, and the SFT policy's held-out medals.

python experiments/run.py --config=configs/sft.py --workdir=runs/sft
two CPU cores, 6 GiB, about 8 minutes; README.md has the measured result of the same stages
python experiments/run.py --config=configs/sft.py:smoke --workdir=runs/sft_smoke
"""

from ml_collections import ConfigDict

from configs import wirl


def get_config(preset: str = "laptop") -> ConfigDict:
    config = wirl.get_config(preset)
    config.name = "sft"
    config.loop = "sft"
    return config
