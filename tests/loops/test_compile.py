"""A training step of both MoE families, forward and backward, compiled for accelerators that are not here.

`make test-compile` installs the compilers (libtpu, JAX's CUDA plugin) and runs this file; elsewhere every case is
skipped and counted, with what is missing. What a compiler refuses fails the case, in the compiler's own words.
"""

import dataclasses

import pytest

from mlexpert.loops import compiling, targets
from mlexpert.loops.compiling import CompileError, Request
from mlexpert.model.config import preset
from mlexpert.model.sharding import MeshShape

PRESETS = {"qwen3_moe": "micro", "qwen3_5_moe": "micro_hybrid"}
TARGETS = {"v5e:2x4": "libtpu", "v5p:2x2x2": "libtpu", "v6e:2x4": "libtpu", "h200x8": "jax-cuda13-plugin"}
# Of attention, forward and both gradients, and one of the grouped matmul: by the names that the compiler's text has.
TPU_KERNELS = {f"splash_mha_{name}" for name in ("fwd_segmented_residuals", "dq_segmented_no_residuals",
                                                 "dkv_segmented_no_residuals")} | {"ragged-dot-none"}  # fmt: skip
GPU_KERNELS = {"attention", "attention_dq", "attention_dkv", "grouped_matmul"}
RAGGED = {("v5p:2x2x2", "qwen3_moe"), ("h200x8", "qwen3_moe")}  # rows travel to their experts without padding
SHAPE = MeshShape(fsdp=2, sequence=2, expert=2)


def request(target, family, **fields):
    """A micro-batch on eight devices: rows, positions, experts and weights are all split."""
    known = targets.parse(target)
    if known.compiler == "cpu":
        pytest.skip(f"NOT COMPILED for {target}: {TARGETS[target]} is not installed; `make test-compile` installs it")
    overrides = dict(n_experts=8, head_dim=64, dtype="bfloat16", remat="layer", vocab_size=512)
    asked = Request(target, known.compiler, PRESETS[family], SHAPE.sizes, 4, 256, 256, 4, 0.5, overrides=overrides)
    return dataclasses.replace(asked, **fields)


def compiled(asked):
    return {each.program: each for each in compiling.compile_elsewhere(asked, timeout_s=600)}


@pytest.mark.parametrize("family", PRESETS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_step_forward_and_backward_compiles(target, family):
    assert preset(PRESETS[family]).family == family
    exchange = "ragged" if (target, family) in RAGGED else "padded"
    found = compiled(request(target, family, programs=("add",), exchange=exchange))["add"]
    assert found.arguments > 0 and found.temporaries > 0
    assert (GPU_KERNELS if target == "h200x8" else TPU_KERNELS) <= set(found.kernels)


def test_the_other_programs_of_a_step_compile():
    found = compiled(request("v5e:2x4", "qwen3_moe", programs=("score", "update")))
    assert list(found) == ["score", "update"] and found["update"].arguments > found["score"].arguments > 0
    assert "splash_mha_fwd_segmented_no_residuals" in found["score"].kernels and found["update"].kernels == ()


def test_other_kernels_than_the_usual_ones_can_be_asked_for():
    """So the assertions about kernels can fail."""
    found = compiled(request("v5e:2x4", "qwen3_moe", programs=("score",), attention="chunked"))["score"]
    assert not [name for name in found.kernels if name.startswith("splash")] and "ragged-dot-none" in found.kernels
    with pytest.raises(CompileError, match="splash attention: 96 queries of a row are no multiple of 128"):
        compiled(request("v5e:2x4", "qwen3_moe", programs=("score",), attention="splash", length=192))


def test_what_a_chip_cannot_hold_is_refused():
    """So the cases above can fail: rows of 16 million positions do not go into 16 GB, and the compiler says so."""
    asked = request("v5e:2x4", "qwen3_moe", length=2**24, programs=("score",))
    with pytest.raises(CompileError, match="exceed"):
        compiled(asked)
