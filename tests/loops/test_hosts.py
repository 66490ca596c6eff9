"""Several processes make the step that one makes, and find each other's checkpoints."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlexpert.loops.hosts import Hosts, HostsError, read

PROGRAM = Path(__file__).with_name("hosts_program.py")
ROOT = Path(__file__).resolve().parents[2]
DEVICES = 4


def run(processes, folder):
    """The result of a run of so many processes, four devices in all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = re.sub(r"(device_count)=\d+", rf"\1={DEVICES // processes}", os.environ["XLA_FLAGS"])
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    result = folder / f"result{processes}.npz"
    arguments = [sys.executable, str(PROGRAM), address, str(processes)]
    running = [
        subprocess.Popen(
            [*arguments, str(i), str(result), str(folder / "checkpoints")],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    try:
        errors = [process.communicate(timeout=600)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert not any(process.returncode for process in running), "\n".join(errors)
    return np.load(result)


def assert_same_step(several, one):
    assert float(several["loss"]) == pytest.approx(float(one["loss"]), rel=1e-5)
    for name in one.files:
        if name.startswith("w"):
            assert np.linalg.norm(several[name] - one[name]) <= 1e-5 * np.linalg.norm(one[name]), name


def assert_restored(reader, writer):
    """What the reader found is what the writer had after its step."""
    assert int(reader["made_by"]) == int(writer["processes"])
    for name in writer.files:
        if name.startswith("s"):
            np.testing.assert_array_equal(reader[name], writer[f"w{name[1:]}"])


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_one_process_makes_the_step_of_several_and_reads_their_checkpoint(tmp_path, processes):
    several, one = run(processes, tmp_path), run(1, tmp_path)
    assert (int(several["devices"]), int(one["devices"])) == (DEVICES, DEVICES)
    assert (int(several["processes"]), int(one["processes"])) == (processes, 1)
    assert_same_step(several, one)
    assert_restored(one, several)


@pytest.mark.slow
def test_several_processes_read_the_checkpoint_of_one(tmp_path):
    one, several = run(1, tmp_path), run(2, tmp_path)
    assert_same_step(several, one)
    assert_restored(several, one)


def test_flags_win_over_the_environment():
    environment = {"MLEXPERT_COORDINATOR": "a:1", "MLEXPERT_PROCESSES": "4", "MLEXPERT_PROCESS": "3"}
    assert read("", "", "", environment) == Hosts("a:1", 4, 3)
    assert read("b:2", "2", "0", environment) == Hosts("b:2", 2, 0)
    assert read("", "", "", {}) == Hosts()
    assert read("", "auto", "", {}).processes == 0


@pytest.mark.parametrize("given", [("", "2", "0"), ("host", "2", "0"), ("a:1", "2", "2"), ("a:1", "two", "0")])
def test_half_an_answer_is_refused(given):
    with pytest.raises(HostsError):
        read(*given, {})
