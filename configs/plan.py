"""What training a large model would need, on devices that need not be here: memory, FLOPs, mesh, longest row.

    python experiments/run.py --config=configs/plan.py:qwen3_6_35b_a3b --config.target=h200x32 --config.seq_len=131072
    python experiments/run.py --config=configs/plan.py:qwen3_30b_a3b --config.target=v5p:4x4x4 --config.seq_len=32768
    no accelerator, 4 GiB of host memory, a minute or two (closed forms at once; the rest is the compiler)

Targets: h200x<n>, v5p:<a>x<b>x<c>, v5e:<a>x<b>, v6e:<a>x<b>, cpux<n>. `--config.mesh=fsdp=4,expert=8` asks for a
mesh; without it one is suggested. With jax[tpu] or jax-cuda13-plugin installed the target's own compiler is asked,
which takes minutes; `--config.compile=cpu` asks for the quick estimate instead, `none` for the closed forms alone.
CPUs compute bfloat16 in float32, so that estimate is up to twice what the device needs.
`--config.attention=` chunked, splash or triton and `--config.grouped=` blocked, ragged_dot or triton ask for other
kernels than the target's usual ones.
"""

from ml_collections import ConfigDict


def get_config(preset: str = "qwen3_6_35b_a3b") -> ConfigDict:
    return ConfigDict(dict(
        name=f"plan_{preset}", loop="plan", model=dict(preset=preset), target="h200x32", mesh="", seq_len=131072,
        rows=0,  # of a micro-batch; 0: one for each device that holds rows
        vocab_chunk=8192, support=20, capacity=0.5, exchange="padded", attention="", grouped="",
        float32_weights=True, reference=True, compile="auto"))  # fmt: skip
