"""WIRL, end to end: micro tasks, base policy, SFT, evaluation, windowed interaction RL, evaluation.

laptop    python experiments/run.py --config=configs/wirl.py --workdir=runs/wirl
          two CPU cores, 6 GiB; README.md has the measured time and result
smoke     python experiments/run.py --config=configs/wirl.py:smoke --workdir=runs/smoke
          the same stages in about a minute; the numbers mean nothing
qwen3_8b, qwen3_6_35b_a3b
          python experiments/run.py --config=configs/wirl.py:qwen3_8b --dry_run
          the papers' settings. They resolve, validate and print; they need weights and an SGLang engine to run.
"""

from ml_collections import ConfigDict


def get_config(preset: str = "laptop") -> ConfigDict:
    presets = {"laptop": laptop, "smoke": smoke, "qwen3_8b": qwen3_8b, "qwen3_6_35b_a3b": qwen3_6_35b_a3b}
    if preset not in presets:
        raise ValueError(f"unknown preset {preset!r}: one of {', '.join(presets)}")
    return presets[preset]()


def laptop() -> ConfigDict:
    config = ConfigDict()
    config.name = "wirl"
    config.loop = "rl"
    config.seed = 0
    # `train_folder`: a set made before, that RL trains on in place of micro tasks; evaluated are its held-out sources,
    # or all of `folder`.
    config.tasks = ConfigDict(dict(
        n_train=300, n_held_out=64, kinds=("tabular",), seed=1, held_out_seed=20261129, train_folder="", folder="",
    ))  # fmt: skip
    config.corpus = ConfigDict(dict(episodes=1000, eta=0.4, delta=0.05))  # MLExpert's outcome-guided prefix
    config.tokenizer = ConfigDict(dict(vocab_size=1536, style="tags", documents=2000))
    # `load`: a Hugging Face folder or a GGUF file in place of the preset and of the base policy's training.
    # `lora.rank` above 0: SFT and RL train adapters of this rank alone, beside the base policy or the loaded model.
    adapters = dict(rank=0, alpha=32.0, targets=("attention", "deltanet", "mlp", "shared"))
    config.model = ConfigDict(dict(preset="tiny", load="", dtype="float32", lora=adapters))
    # Base policy: unlimited schema documents, so that it learns to copy names it has never seen.
    config.base = ConfigDict(dict(steps=240, rows=16, row_length=256, lr=0.02, probe_every=110))
    config.sft = ConfigDict(dict(steps=300, rows=8, row_length=384, lr=0.02, probe_every=100))
    config.engine = ConfigDict(dict(kind="embedded", slots=16, length=384, chunk=8))
    config.episode = ConfigDict(dict(turn_tokens=128, context_tokens=384, total_tokens=2048))
    # What one episode may use; `feedback` blind shows the policy no hidden score.
    config.budget = ConfigDict(dict(executions=3, steps=8, malformed=3, wall_s=120.0, feedback="blind", style="short"))
    # `auto` is the strongest kind that works here; a run that gets none at or above `floor` does not start.
    # `gpus` ("all", or indices) are for docker's containers alone.
    config.sandbox = ConfigDict(dict(
        kind="auto", floor="landlock", image="mlexpert-sandbox:latest", runtime="", gpus="",
        slots=2, wall_s=10.0, cpu_s=10.0, memory_mb=1024, pids=64, disk_mb=64))  # fmt: skip
    config.sampling = ConfigDict(dict(temperature=1.0, top_k=0, top_p=1.0))
    config.train = ConfigDict(dict(
        batch_windows=32, updates=60, minutes=7.0, lr=2e-4, warmup=5, grad_clip=1.0, weight_decay=0.0,
        eps=0.2, q_min=0.2, q_max=4.0, kl=1e-3, entropy=1e-4, correction="weight_and_mask", trend=True, passes=1,
        row_length=384, rows_per_micro=4, max_age=2, concurrency=16, save_every=5))  # fmt: skip
    config.eval = ConfigDict(dict(runs=3))
    return config


def smoke() -> ConfigDict:
    config = laptop()
    config.name = "smoke"
    config.tasks.update(n_train=8, n_held_out=4)
    config.corpus.episodes = 16
    config.tokenizer.documents = 200
    config.model.preset = "micro"
    config.base.update(steps=150, rows=4)
    config.sft.update(steps=80, rows=4)
    config.engine.update(slots=8)
    config.train.update(batch_windows=8, updates=4, minutes=1.0, concurrency=8, save_every=1, warmup=1)
    config.eval.runs = 2
    return config


def _paper() -> ConfigDict:
    """MLExpert's settings where it states them; ours (algorithms) where it does not."""
    config = laptop()
    config.tasks.update(n_train=154, n_held_out=22)
    config.tokenizer.update(style="json")
    config.engine.update(kind="sglang", slots=64, length=131072)
    config.episode.update(turn_tokens=32768, context_tokens=131072, total_tokens=4_000_000)
    config.budget.update(executions=3000, steps=3000, malformed=20, wall_s=43200.0, style="full")
    config.sandbox.update(slots=64, wall_s=43200.0, cpu_s=864000.0, memory_mb=225280, pids=4096, disk_mb=65536)
    config.sampling.update(temperature=0.6, top_k=20, top_p=0.95)
    config.train.update(lr=1e-6, updates=1000, minutes=100000.0, row_length=131072, rows_per_micro=1, concurrency=64)
    return config


def qwen3_8b() -> ConfigDict:
    config = _paper()
    config.name = "wirl_qwen3_8b"
    config.model.preset = "qwen3_8b"
    return config


def qwen3_6_35b_a3b() -> ConfigDict:
    config = _paper()
    config.name = "wirl_qwen3_6_35b_a3b"
    config.model.preset = "qwen3_6_35b_a3b"
    config.tokenizer.style = "tags"
    return config
