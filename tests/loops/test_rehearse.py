"""The rehearsal's steps: what they print and leave, on one mesh as on another, and what is refused."""

import importlib.util
import json
from pathlib import Path

import pytest

from mlexpert.loops import rehearse, settings
from mlexpert.loops.settings import ConfigError
from mlexpert.model.sharding import MeshError

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "rehearse.py"


def config_of(preset="micro", **fields):
    spec = importlib.util.spec_from_file_location("rehearse", CONFIG)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(preset)
    config.update(dict(seq_len=16, rows=8, steps=2, vocab_chunk=256), **fields)
    return settings.validate(config)


def test_two_meshes_take_the_same_steps(tmp_path, capsys):
    losses = []
    for mesh in ("fsdp=8", "fsdp=2,expert=2,sequence=2"):
        rehearse.run(config_of(mesh=mesh), tmp_path / mesh)
        steps = json.loads((tmp_path / mesh / "summary.json").read_text())
        assert [step["step"] for step in steps] == [0, 1]
        assert all(step["tokens_per_s"] > 0 and step["flops"] > 0 and step["seconds"] > 0 for step in steps)
        losses.append([step["loss"] for step in steps])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    shown = capsys.readouterr().out
    assert "micro on 8 x cpu, 1 processes, mesh fsdp=2 sequence=2 expert=2" in shown
    assert "; attention chunked; grouped matmul blocked; rows travel padded" in shown
    assert "(with compiling)" in shown and "GiB a device" in shown


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        (dict(mesh="fsdp=4"), MeshError, "mesh fsdp=4 needs 4 devices, there are 8"),
        (dict(mesh="expert=8"), MeshError, "its 'expert' axis of 4 does not divide by 8"),
        (dict(mesh="fsdp=8", rows=3), MeshError, "3 rows of 16 positions do not divide; take rows in multiples of 8"),
        (dict(mesh="pipe=8"), ConfigError, "mesh='pipe=8'"),
        (dict(mesh="fsdp=8", attention="splash"), ConfigError, "attention='splash' runs on tpu, not on cpu"),
        (dict(mesh="fsdp=8", grouped="triton"), ConfigError, "grouped='triton' runs on gpu, not on cpu"),
    ],
)
def test_what_cannot_be_rehearsed(tmp_path, fields, error, said):
    with pytest.raises(error, match=said):
        rehearse.run(config_of(**fields), tmp_path / "run")


def test_rows_beyond_the_models_limit(tmp_path):
    with pytest.raises(ConfigError, match="seq_len=40961: qwen3_8b was made for at most 40960 positions"):
        rehearse.run(config_of("qwen3_8b", seq_len=40961), tmp_path / "run")
