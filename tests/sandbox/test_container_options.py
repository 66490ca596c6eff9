"""What the engine is asked for when a container is made; no engine is needed to see that."""

import asyncio
from pathlib import Path

import pytest

from mlexpert.sandbox import choose, container
from mlexpert.sandbox.containers import DockerSandbox
from mlexpert.types import Limits


def options(monkeypatch, **model):
    monkeypatch.setattr(container, "_first_uid", lambda: 50_000)
    made = container.Container("mlexpert-sandbox-x-0", container.made_for(Limits()), Path("/folder"))
    return container._options(made, Path("/source"), container.Model("image", **model))


def test_nothing_is_passed_through_unless_it_is_asked_for(monkeypatch):
    plain = options(monkeypatch)
    assert plain["device_requests"] == [] and plain["runtime"] is None
    assert "devices" not in plain and plain["network_mode"] == "none" and plain["cap_drop"] == ["ALL"]


@pytest.mark.parametrize(
    ("gpus", "count", "ids"), [("all", -1, []), ("0", 0, ["0"]), ("1,GPU-0a1b", 0, ["1", "GPU-0a1b"])]
)
def test_gpus_are_asked_of_the_engine(monkeypatch, gpus, count, ids):
    with_gpus = options(monkeypatch, gpus=gpus)
    (request,) = with_gpus.pop("device_requests")
    assert (request["Driver"], request["Count"], request["DeviceIDs"] or []) == ("nvidia", count, ids)
    assert request["Capabilities"] == [["gpu", "compute", "utility"]]
    without = options(monkeypatch)
    assert {name: with_gpus[name] for name in ("cap_add", "read_only", "mem_limit", "network_mode")} == {
        name: without[name] for name in ("cap_add", "read_only", "mem_limit", "network_mode")
    }


@pytest.mark.parametrize("gpus", ["0,", ",", "0 1", "all;x", "/dev/nvidia0"])
def test_what_names_no_gpu_is_refused(gpus):
    with pytest.raises(ValueError, match="separated by commas"):
        DockerSandbox(gpus=gpus)


def test_only_containers_get_gpus(monkeypatch):
    with pytest.raises(ValueError, match="only containers get GPUs"):
        asyncio.run(choose.started(1, "plain", "plain", gpus="all"))
    asked = []
    monkeypatch.setattr(choose, "of_kind", lambda *arguments: asked.append(arguments) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(choose.started(1, "auto", gpus="0"))
    assert asked == [("docker", 1, "mlexpert-sandbox:latest", "", "0")]
