"""Eight virtual CPU devices, and JAX made to shout: a silent broadcast of ranks is an error in every test."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
