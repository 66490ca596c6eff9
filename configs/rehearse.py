"""A few training steps on made-up rows: does a model train on these devices, how fast, and what does it hold?

    python experiments/run.py --config=configs/rehearse.py:tiny --config.seq_len=384
    a laptop, half a minute; prints seconds, tokens/s and FLOP/s of every step
    XLA_FLAGS=--xla_force_host_platform_device_count=8 python experiments/run.py --config=configs/rehearse.py:micro \
        --config.mesh=fsdp=2,expert=2,sequence=2
    the same on eight virtual devices
    python experiments/run.py --config=configs/rehearse.py:qwen3_30b_a3b --config.mesh=fsdp=8,expert=8 \
        --coordinator=<host of process 0>:1234 --processes=8 --process=<this one's number>
    on eight hosts of eight devices, started on each; Slurm and TPU pods need only --processes=auto
"""

from ml_collections import ConfigDict


def get_config(preset: str = "tiny") -> ConfigDict:
    return ConfigDict(dict(
        name=f"rehearse_{preset}", loop="rehearse", seed=0, model=dict(preset=preset), mesh="", seq_len=512,
        rows=0,  # of the batch; 0: one for each device that holds rows
        steps=3, vocab_chunk=8192, capacity=0.5, exchange="padded", attention="", grouped="",
        float32_weights=True))  # fmt: skip
