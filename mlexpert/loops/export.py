"""A saved policy of a run as a Hugging Face folder, which transformers, SGLang and `model.load` open.

python experiments/run.py --config=configs/export.py --config.checkpoint=runs/wirl --config.folder=runs/wirl_hf
"""

from __future__ import annotations

import json
from pathlib import Path

from mlexpert.loops import policies, screen, setup
from mlexpert.loops.settings import Config, ConfigError
from mlexpert.loops.workdir import WorkdirError
from mlexpert.model import hf
from mlexpert.rollout import tokenizer as tokenizers
from mlexpert.rollout.renderer import END
from mlexpert.rollout.tokenizer import SPECIAL, Tokenizer


def run(config: Config, _: Path) -> None:
    """Raises WorkdirError, CheckpointError, TokenizerError, ModelFileError."""
    if not config.folder:
        raise ConfigError("folder is empty: --config.folder=<where to write>")
    checkpoint, folder = Path(config.checkpoint), Path(config.folder)
    vocabulary = checkpoint / "tokenizer.json"
    if not vocabulary.exists():
        raise WorkdirError(f"{vocabulary} does not exist: --config.checkpoint must name the workdir of a finished run")
    tokenizer = tokenizers.load(vocabulary)
    loaded = setup.opened(config)
    model = setup.model_of(config, tokenizer, loaded)
    params, version = policies.saved_in(checkpoint, model, config.policy, loaded)
    hf.save(folder, model, params, _companions(tokenizer, vocabulary))
    screen.say(f"policy {config.policy!r} of {checkpoint}, version {version}, is in {folder} ({model.family})")


def _companions(tokenizer: Tokenizer, vocabulary: Path) -> hf.Companions:
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": SPECIAL[0]}
    ids = {"eos_token_id": tokenizer.reserved[END], "pad_token_id": tokenizer.reserved[SPECIAL[0]]}
    files = {
        "tokenizer.json": vocabulary.read_text(encoding="utf-8"),
        "tokenizer_config.json": json.dumps(described, indent=1),
    }
    return hf.Companions(ids, files)
