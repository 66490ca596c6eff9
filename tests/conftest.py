"""Eight virtual CPU devices, and JAX made to shout: a silent broadcast of ranks is an error in every test."""

import os
from importlib.metadata import version

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + (
    " --xla_force_host_platform_device_count=8"
    # Compiling is most of what the tests do; what they check does not depend on how fast the programs run.
    " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
if version("jaxlib").startswith("0.10."):  # compiles in half the time; a flag that a version does not know ends it
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
