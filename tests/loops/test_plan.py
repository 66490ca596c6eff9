"""Plans: memory that a hand can check, tables with their rows, estimates that say so, and what cannot be planned."""

import importlib.util
import json
from pathlib import Path

import pytest

from mlexpert.loops import compiling, plan, settings, targets
from mlexpert.loops.compiling import Compiled, CompileError
from mlexpert.loops.settings import ConfigError
from mlexpert.loops.targets import TargetError
from mlexpert.model.sharding import MeshError

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "plan.py"
GIB = 2**30
FOUND = [Compiled(name, GIB, 2 * GIB, GIB, 1.0) for name in ("score", "add", "update")]


def config_of(preset, **fields):
    spec = importlib.util.spec_from_file_location("plan", CONFIG)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(preset)
    config.update(dict(compile="none"), **fields)
    return settings.validate(config)


def planned(folder, preset, **fields):
    plan.run(config_of(preset, **fields), folder / "plan")
    return json.loads((folder / "plan" / "plan.json").read_text())


# Of "micro", by hand: vocabulary 256, width 32, 2 layers, 4 heads and 2 key heads of 8, 4 experts of width 32.
EMBEDDING, FINAL_NORM = 256 * 32, 32
NORMS = 2 * 32 + 2 * 8
ATTENTION = 32 * (4 + 2 + 2 + 4) * 8
ROUTER, EXPERTS = 32 * 4, 4 * 3 * 32 * 32


def test_what_lies_on_one_device(tmp_path):
    held = EMBEDDING + FINAL_NORM + 2 * (NORMS + ATTENTION + ROUTER + EXPERTS)
    assert held == 39_360
    memory = planned(tmp_path, "micro", target="cpux1", seq_len=64)["memory"]
    assert memory["weights"] == memory["reference"] == 4 * held
    assert memory["optimizer"] == memory["gradients"] == memory["update"] == 2 * 4 * held
    assert memory["computed_in"] == 0 and memory["layer_inputs"] == 2 * 64 * 32 * 4
    kept = sum(memory[name] for name in ("weights", "optimizer", "gradients", "reference"))
    works = max(memory["layer_inputs"] + max(memory["layer"], memory["head"]), memory["update"])
    assert memory["total"] == kept + works


def test_what_lies_on_a_device_of_a_mesh(tmp_path):
    """Matrices in four, experts two to a device and each in two; vectors whole."""
    held = EMBEDDING // 4 + FINAL_NORM + 2 * (NORMS + (ATTENTION + ROUTER) // 4 + EXPERTS // 4)
    fields = dict(target="cpux4", seq_len=64, mesh="fsdp=2,expert=2", reference=False)
    found = planned(tmp_path, "micro", **fields)
    assert found["mesh"] == dict(data=1, fsdp=2, sequence=1, expert=2) and found["load"]["rows"] == 4
    assert found["memory"]["weights"] == 4 * held and found["memory"]["optimizer"] == 8 * held
    assert found["memory"]["reference"] == 0


def test_a_step_of_the_large_model_by_hand(tmp_path, capsys):
    """35B on 32 devices: 12 bytes a parameter for weights and AdamW, 4 of gradients' sum, 4 of a micro-batch's."""
    found = planned(tmp_path, "qwen3_6_35b_a3b")
    per_device = 34.66e9 / 32
    assert found["memory"]["weights"] == pytest.approx(4 * per_device, rel=0.01)
    assert found["memory"]["weights"] + found["memory"]["optimizer"] == pytest.approx(12 * per_device, rel=0.01)
    assert found["memory"]["total"] < 0.9 * 139 * GIB
    shown = capsys.readouterr().out
    for row in ("34.66 B parameters", "weights of the trainer", "AdamW", "gradients", "reference weights", "log-probs",
                "peak of all this", "fits:", "forward pass:", "PFLOP to learn", "longest row that fits", "sampling:",
                "compiler: not compiled"):  # fmt: skip
        assert row in shown, row


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (dict(seq_len=128), "attention splash; grouped matmul ragged_dot"),
        (dict(seq_len=64), "attention chunked (not splash: 64 queries of a row are no multiple of 128); grouped"),
        (dict(seq_len=128, attention="chunked"), "attention chunked (as asked, not splash); grouped matmul ragged_dot"),
        (dict(seq_len=128, target="h200x4", grouped="blocked"), "grouped matmul blocked (as asked, not triton)"),
    ],
)
def test_kernels_are_said(tmp_path, capsys, fields, said):
    found = planned(tmp_path, "micro", **dict(target="v5e:2x2", mesh="fsdp=4") | fields)
    assert f"kernels: attention {found['attention']}" in (shown := capsys.readouterr().out) and said in shown


def test_what_does_not_fit_is_said(tmp_path, capsys):
    planned(tmp_path, "qwen3_8b", target="v5e:1x1", seq_len=4096)
    shown = capsys.readouterr().out
    assert "DOES NOT FIT" in shown and "longest row that fits on this mesh: 0 tokens" in shown


# ---------------------------------------------------------------- whose word it is
@pytest.fixture
def no_compilers(monkeypatch):
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: None)


def test_without_its_compiler_a_plan_is_called_an_estimate(tmp_path, capsys, monkeypatch, no_compilers):
    asked = []
    monkeypatch.setattr(compiling, "compile_elsewhere", lambda request: asked.append(request) or FOUND)
    found = planned(tmp_path, "micro", target="v5e:2x2", seq_len=64, compile="auto")
    assert (asked[0].compiler, asked[0].attention, asked[0].grouped) == ("cpu", "chunked", "blocked")
    assert "an estimate for v5e:2x2" in found["compiler"] and "an estimate for v5e:2x2" in capsys.readouterr().out


def test_with_its_compiler_the_word_is_the_compilers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda name: name == "libtpu")
    monkeypatch.setattr(compiling, "compile_elsewhere", lambda request: FOUND)
    found = planned(tmp_path, "micro", target="v5e:2x2", seq_len=64, compile="auto")
    assert found["compiler"] == "libtpu, for v5e:2x2 itself" and "estimate for" not in found["compiler"]
    shown = capsys.readouterr().out
    assert "agrees that it fits: 3.00 GiB" in shown and "| add | 1.00 | 2.00 | 3.00 |" in shown


def test_a_compiler_that_finds_too_much_is_believed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(compiling, "compile_elsewhere", lambda request: [Compiled("add", 0, 15 * GIB, 0, 1.0)])
    planned(tmp_path, "micro", target="v5e:2x2", seq_len=64, compile="auto")
    assert "says that it DOES NOT FIT: 15.00 GiB" in capsys.readouterr().out


def test_a_compiler_that_refuses_is_quoted(tmp_path, capsys, monkeypatch):
    def refuse(request):
        raise CompileError("compiling for v5e:2x2 failed: 64.25G exceeds available HBM")

    monkeypatch.setattr(compiling, "compile_elsewhere", refuse)
    found = planned(tmp_path, "micro", target="v5e:2x2", seq_len=64, compile="auto")
    assert found["compiled"] == [] and "DID NOT COMPILE. compiling for v5e:2x2 failed: 64.25G" in found["compiler"]


def test_this_machines_compiler_is_asked_in_a_process_of_its_own(tmp_path, capsys):
    found = planned(tmp_path, "micro", target="cpux2", seq_len=64, mesh="expert=2", compile="auto")
    assert [each["program"] for each in found["compiled"]] == ["head", "score", "add", "update"]
    # The update holds the weights, AdamW's moments and the gradients' sum.
    held = found["memory"]["weights"] + found["memory"]["optimizer"] + found["memory"]["weights"]
    assert found["compiled"][3]["arguments"] == pytest.approx(held, rel=0.01)
    assert "virtual CPU devices" in capsys.readouterr().out


def test_a_compiler_that_takes_too_long_is_stopped():
    request = compiling.Request("cpux1", "cpu", "micro", (1, 1, 1, 1), 1, 16, 64, 0, 0.5)
    with pytest.raises(CompileError, match="cpux1 took more than 0 s and was stopped"):
        compiling.compile_elsewhere(request, timeout_s=0.05)


def test_what_the_compiling_process_says_is_passed_on():
    request = compiling.Request("cpux1", "cpu", "micro", (1, 1, 1, 2), 1, 16, 64, 0, 0.5)
    with pytest.raises(CompileError, match=r"cpux1 failed: .*MeshError: mesh expert=2 needs 2 devices, there are 1"):
        compiling.compile_elsewhere(request)


# ---------------------------------------------------------------- what cannot be planned
@pytest.mark.parametrize("name", ["h100x8", "h200", "h200x0", "h200:4x4", "v5e:4", "v5ex4", "v5p:0x4", "", "tpu"])
def test_devices_that_nobody_knows(name):
    with pytest.raises(TargetError, match=r"h200x32, v5p:4x4x4|has no devices"):
        targets.parse(name)


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        (dict(mesh="fsdp=2"), ConfigError, r"mesh='fsdp=2' is 2 devices, target=cpux8 is 8"),
        (dict(mesh="heads=8"), ConfigError, r"mesh='heads=8': axes \(data, fsdp, sequence, expert\)"),
        (dict(mesh="fsdp=8,fsdp=1"), ConfigError, "axes"),
        (dict(mesh="fsdp=-8"), ConfigError, "axes"),
        (dict(mesh="expert=8"), MeshError, r"its 'expert' axis of 4 does not divide by 8"),
        (
            dict(mesh="fsdp=3", target="cpux3"),
            MeshError,
            r"its 'model' axis of 32 does not divide by 3 .*divisor of 32",
        ),
        (dict(mesh="sequence=8", seq_len=100), MeshError, r"1 rows of 100 positions do not divide"),
        (dict(mesh="fsdp=8", rows=4), MeshError, r"4 rows of 64 positions do not divide"),
        (dict(target="cpux7"), MeshError, "no mesh of 7 devices divides micro"),
        (dict(target="v5e:2x4", attention="splash"), ConfigError, "attention='splash', seq_len=64: .* multiple of 128"),
        (
            dict(target="v5e:2x4", attention="triton"),
            ConfigError,
            "attention='triton' runs on gpu, not on tpu",
        ),
    ],
)
def test_meshes_that_do_not_divide_say_what_would(tmp_path, fields, error, said):
    with pytest.raises(error, match=said):
        planned(tmp_path, "micro", **{**dict(target="cpux8", seq_len=64), **fields})


def test_rows_longer_than_the_model_was_made_for(tmp_path):
    with pytest.raises(ConfigError, match="seq_len=65536: qwen3_8b was made for at most 40960 positions"):
        planned(tmp_path, "qwen3_8b", seq_len=65536)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (dict(seq_len=0), "seq_len=0: must be at least 1"),
        (dict(vocab_chunk=0), "vocab_chunk=0"),
        (dict(rows=-1), "rows=-1: must not be negative"),
        (dict(capacity=0.0), r"capacity=0\.0"),
        (dict(exchange="ring"), "exchange='ring': one of padded, ragged"),
        (dict(compile="gpu"), "compile='gpu': one of auto, cpu, none"),
        (dict(model=dict(preset="qwen4")), "model.preset='qwen4'"),
    ],
)
def test_values_that_make_no_sense(fields, said):
    with pytest.raises(ConfigError, match=said):
        config_of("micro", **fields)
