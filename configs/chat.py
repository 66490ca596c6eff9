"""One prompt to a real model.

    python experiments/run.py --config=configs/chat.py:smollm2 --config.prompt="What is the capital of France?"
    two CPU cores, 1.5 GiB; the first time it fetches 93 MB, later it answers in seconds

smollm2                SmolLM2-135M-Instruct
qwen2_5_coder          Qwen2.5-Coder-0.5B-Instruct: 478 MB, 5 GiB of memory, some tokens a second on two cores
load=<path>            a Hugging Face folder (config.json, *.safetensors, tokenizer.json) or a GGUF file

Greedy by default; `--config.sampling.top_k=0 --config.sampling.temperature=0.7 --config.seed=1` draws. What is fetched
is kept in ~/.cache/mlexpert or `--config.cache`.
"""

from ml_collections import ConfigDict

RECIPES = ("smollm2", "qwen2_5_coder")


def get_config(preset: str = "smollm2") -> ConfigDict:
    load = preset.removeprefix("load=") if preset.startswith("load=") else ""
    if not load and preset not in RECIPES:
        raise ValueError(f"unknown preset {preset!r}: one of {', '.join(RECIPES)}, load=<folder or .gguf file>")
    return ConfigDict(dict(
        name="chat", loop="chat", prompt="", max_tokens=256, seed=0, cache="",
        recipe="" if load else f"third_party/models/{preset}.toml",
        model=dict(load=load, dtype="float32"),
        sampling=dict(temperature=1.0, top_k=1, top_p=1.0)))  # fmt: skip
