"""Everything that can be wrong with an engine is told before anything runs on it, in one line, with what to do."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile

import pytest

from mlexpert.sandbox import images, owner
from mlexpert.sandbox.api import SandboxError
from mlexpert.sandbox.containers import DockerSandbox


def refusal(**options) -> str:
    """Why a sandbox does not start."""
    with pytest.raises(SandboxError) as caught:
        asyncio.run(DockerSandbox(1, **options).start())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_socket(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    told = refusal()
    assert f"no engine socket at {tmp_path}/docker.sock" in told and "set DOCKER_HOST" in told


def test_a_socket_where_nobody_listens(tmp_path, monkeypatch):
    socket.socket(socket.AF_UNIX).bind(str(tmp_path / "docker.sock"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    told = refusal()
    assert "no engine answers" in told and "is the daemon running?" in told


def test_something_else_than_an_engine(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "docker.sock"))
        other.listen()
        serving = subprocess.Popen([sys.executable, "-c", _HANG_UP], stdin=other)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        try:
            assert "does not work" in refusal()
        finally:
            serving.kill()
            serving.wait()


_HANG_UP = """
import socket
door = socket.socket(fileno=0)
while True: door.accept()[0].close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without rights")
def test_a_socket_of_others():
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as engine:
        path = f"{folder}/docker.sock"
        engine.bind(path)
        engine.listen()
        os.chmod(path, 0o600)
        os.chmod(folder, 0o755)
        child = os.fork()
        if child == 0:
            os.setresuid(65534, 65534, 65534)
            try:
                images._knock(f"unix://{path}")
            except SandboxError as error:
                os._exit("may not use" not in str(error) or "docker" not in str(error))
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("host", ["tcp://10.0.0.1:2375", "ssh://somebody@elsewhere", "npipe:////./pipe/docker"])
def test_an_engine_on_another_machine(host, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", host)
    told = refusal()
    assert host in told and "unix:///path" in told


def test_no_python_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    assert "pip install 'docker" in refusal()


@pytest.mark.docker
def test_no_image(docker_engine):
    told = refusal(image="mlexpert-nothing:here")
    assert "no image mlexpert-nothing:here" in told
    assert "`python third_party/sandbox_image/pack.py --tag mlexpert-nothing:here`" in told
    assert "NOT A NAME" in refusal(image="NOT A NAME")


@pytest.mark.docker
@pytest.mark.parametrize(
    ("labels", "told"),
    [([], "is no sandbox image"), (['LABEL mlexpert.sandbox.protocol="99"'], "is for protocol 99")],
    ids=["foreign", "another-protocol"],
)
def test_an_image_of_something_else(docker_engine, labels, told):
    tag = f"mlexpert-test-{os.getpid()}"
    empty_archive = bytes(10240)
    docker_engine.api.import_image(empty_archive, tag, "latest", changes=labels)
    try:
        text = refusal(image=f"{tag}:latest")
        assert told in text and "third_party/sandbox_image/pack.py" in text
    finally:
        docker_engine.images.remove(f"{tag}:latest")


@pytest.mark.docker
def test_an_unknown_runtime(docker_engine):
    told = refusal(runtime="gvisor-of-nobody")
    assert "'gvisor-of-nobody'" in told and "runc" in told


@pytest.mark.docker
def test_containers_of_dead_owners_are_removed_and_no_others(docker_engine):
    *place, pid, _ = owner.mark().split("-")
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    owners = {
        "dead": "-".join([*place, str(dead.pid), "1"]),
        "again": "-".join([*place, pid, "1"]),  # the number of a living process that is another
        "alive": owner.mark(),
        "elsewhere": "-".join(["00000000", *place[1:], str(dead.pid), "1"]),
    }
    made = {name: f"mlexpert-test-{os.getpid()}-{name}" for name in owners}
    try:
        for name, mark in owners.items():
            labels, command = {images.OWNER_LABEL: mark}, ["sleep", "600"]
            image, sealed = "mlexpert-sandbox:latest", {"network_mode": "none", "init": True}
            docker_engine.containers.run(image, command, detach=True, name=made[name], labels=labels, **sealed)
        images.sweep(docker_engine)  # or whoever else starts at this moment
        left = set(made.values()) & set(images.owned(docker_engine))
        assert left == {made["alive"], made["elsewhere"]}
    finally:
        for name in made.values():
            images.remove(docker_engine, name)
