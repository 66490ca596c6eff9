"""Build the sandbox image from what is on this machine: no registry, no base image, no Dockerfile.

    the running interpreter and its standard library, where they are here
    + the packages of requirements.txt, installed beside it and compiled to bytecode
    + the shared libraries that any of these load, a shell and a few small programs
    -> one layer, handed to the engine and tried out

Everything keeps the path it has on this machine, so search paths that are built into programs stay right. Nothing is
done if the tag already holds what this recipe would make. Needs the packages `docker` and `pip`, and glibc's `ldd`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
PROTOCOL = 1  # of the fork server that runs in the image: mlexpert/sandbox/server.py
PROGRAMS = ("sh", "env", "ls", "cat", "head", "tail", "wc", "id", "uname", "nproc", "sleep", "kill", "ldconfig")
LEFT_OUT = (
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
)
NEEDED_MB = 1200  # staged files and the archive, for a while
TRIAL = "import numpy.testing, pandas.testing, scipy.stats, sklearn.ensemble, lightgbm, zoneinfo, ssl, sqlite3"


class PackError(RuntimeError):
    """The image cannot be made here; the text says why and what to do."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the sandbox image from the running interpreter.")
    parser.add_argument("--tag", default="mlexpert-sandbox:latest", help="name of the image (default: %(default)s)")
    try:
        make(parser.parse_args().tag)
    except PackError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error}; the image was not made")


def make(tag: str) -> None:
    """Make sure that the engine's `tag` is what this recipe makes. Raises PackError."""
    engine, recipe = _engine(), _recipe()
    before = _image(engine, tag)
    if before is not None and before.labels.get("mlexpert.sandbox.recipe") == recipe:
        print(f"{tag} is up to date")
        return
    _check_tools()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mlexpert-image-") as folder:
        root, archive = Path(folder, "root"), Path(folder, "layer.tar")
        print("installing packages and compiling them ...", flush=True)
        _fill(root)
        print("packing ...", flush=True)
        _pack(root, archive)
        print(f"handing {archive.stat().st_size >> 20} MB to the engine ...", flush=True)
        _import(engine, archive, tag, recipe)
    print("trying it out ...", flush=True)
    _try(engine, tag)
    if before is not None:
        _remove(engine, str(before.id))
    print(f"{tag} is ready after {time.monotonic() - started:.0f} s")


# ---------------------------------------------------------------- what is needed, what is there
def _engine():
    try:
        from docker import from_env  # here, so that its absence is told in words
        from docker.errors import DockerException
    except ImportError:
        raise PackError("the package `docker` is missing: pip install -r requirements.txt") from None
    try:
        return from_env(timeout=600)
    except DockerException as error:
        where = os.environ.get("DOCKER_HOST", "the default socket")
        raise PackError(
            f"no Docker engine answers at {where} ({error}). Start one, set DOCKER_HOST, or run this under "
            "third_party/docker_engine/with_engine.sh"
        ) from None


def _image(engine, tag: str):
    """None if the engine has no such image."""
    from docker.errors import ImageNotFound

    try:
        return engine.images.get(tag)
    except ImageNotFound:
        return None


def _recipe() -> str:
    """A hash of all that decides what is in the image."""
    text = "".join(path.read_text() for path in (Path(__file__), REQUIREMENTS))
    return hashlib.sha256(f"{text}{sys.version}{_interpreter()}{platform.libc_ver()}".encode()).hexdigest()


def _interpreter() -> Path:
    """The interpreter below any virtual environment."""
    return Path(sys.base_exec_prefix, "bin", f"python{sysconfig.get_python_version()}").resolve()


def _check_tools() -> None:
    if platform.system() != "Linux" or shutil.which("ldd") is None:
        raise PackError("this needs Linux with glibc's `ldd`; elsewhere: docker build third_party/sandbox_image")
    if not _interpreter().exists():
        raise PackError(f"there is no interpreter at {_interpreter()}, which this one says it comes from")
    if importlib.util.find_spec("pip") is None:
        raise PackError(f"{sys.executable} has no pip: make its environment with `python -m venv`")
    free = shutil.disk_usage(tempfile.gettempdir()).free >> 20
    if free < NEEDED_MB:
        raise PackError(f"{tempfile.gettempdir()} has {free} MB left, {NEEDED_MB} are needed: free some, or set TMPDIR")


# ---------------------------------------------------------------- the files
def _fill(root: Path) -> None:
    for link in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink(f"/{link}"):
            _below(root, f"/usr/{link}").mkdir(parents=True)
            (root / link).symlink_to(os.readlink(f"/{link}"))
    for folder in ("tmp", "workspace", "inputs", "run", "proc", "sys", "dev", "etc", "opt/mlexpert/mlexpert/sandbox"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    _add_interpreter(root)
    _add_packages(root)
    for program in PROGRAMS:
        if path := shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin"):
            _add(root, path)
    for library in sorted(_libraries(root)):
        _add(root, library)
    _add(root, "/etc/ld.so.cache")  # it names more than is there; what is missing is passed over


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _add(root: Path, path: str) -> None:
    """A copy of the file under its own name, in the folder where it really is."""
    target = _below(root, os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))
    if not target.exists() and os.path.exists(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _add_interpreter(root: Path) -> None:
    interpreter = _interpreter()
    _add(root, str(interpreter))
    links = _below(root, "/usr/local/bin")
    links.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        (links / name).symlink_to(interpreter)
    for library in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        # In a virtual environment `platstdlib` is the environment's own, with nothing of the library in it.
        if os.path.exists(f"{library}/os.py"):
            ignored = shutil.ignore_patterns(*LEFT_OUT, "__pycache__", "config-*", "_tkinter*")
            shutil.copytree(library, _below(root, library), ignore=ignored, dirs_exist_ok=True)


def _add_packages(root: Path) -> None:
    ask = [str(_interpreter()), "-I", "-c", "import site; print(site.getsitepackages()[0])"]
    site = _below(root, subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    install += ["--no-compile", "--only-binary=:all:", "--target", str(site), "--requirement", str(REQUIREMENTS)]
    done = subprocess.run(install, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PackError(f"pip cannot install {REQUIREMENTS}: {last}")
    for tests in [path for path in site.rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests)
    # Never checked against the sources: the image is read-only, and times of files do not matter.
    compiling = [str(_interpreter()), "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*compiling, "-s", str(root), "-p", "/", str(root)], check=False, stdout=subprocess.DEVNULL)


def _libraries(root: Path) -> set[str]:
    """Paths of all shared libraries that files below `root` load. Raises PackError if one is not on this machine."""
    files = [str(p) for p in root.rglob("*") if p.is_file() and (".so" in p.name or p.parent.name in ("bin", "sbin"))]
    size = 50
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = pool.map(_ldd, (files[start : start + size] for start in range(0, len(files), size)))
        lines = [line.split() for output in outputs for line in output.splitlines()]
    missing = {words[0] for words in lines if words[1:] == ["=>", "not", "found"]}
    if missing := sorted(missing - {os.path.basename(file) for file in files}):  # packages bring some of their own
        raise PackError(f"not on this machine: {', '.join(missing)} (libgomp.so.1: apt install libgomp1)")
    paths = {words[2] if words[1:2] == ["=>"] else words[0] for words in lines if words[-1].startswith("(0x")}
    return {path for path in paths if path.startswith("/") and not path.startswith(f"{root}/")}


def _ldd(files: list[str]) -> str:
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C"}
    # It fails if one of the files is no dynamic program: what it says of the others counts.
    return subprocess.run(["ldd", *files], check=False, capture_output=True, text=True, env=environment).stdout


# ---------------------------------------------------------------- the image
def _pack(root: Path, archive: Path) -> None:
    def owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        # Some runtimes give a file system that they mount the mode of the folder below it.
        open_to_all = entry.name in ("tmp", "workspace")
        entry.mode = 0o1777 if open_to_all else 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.iterdir()):
            tar.add(path, path.name, filter=owned_by_root)


def _pins() -> Iterator[str]:
    for line in REQUIREMENTS.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line


def _import(engine, archive: Path, tag: str, recipe: str) -> None:
    from docker.utils import parse_repository_tag

    labels = {"protocol": PROTOCOL, "python": platform.python_version(), "packages": " ".join(_pins())}
    changes = [f'LABEL mlexpert.sandbox.{name}="{value}"' for name, value in (labels | {"recipe": recipe}).items()]
    changes += ["ENV PATH=/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=passive"]
    changes += ["WORKDIR /workspace", 'CMD ["python3"]']
    repository, version = parse_repository_tag(tag)
    answer = engine.api.import_image(str(archive), repository, version or "latest", changes=changes)
    last = json.loads(answer.strip().splitlines()[-1])
    if "error" in last:
        raise PackError(f"the engine does not take the image: {last['error']}")


def _try(engine, tag: str) -> None:
    from docker.errors import ContainerError

    options = {"network_mode": "none", "read_only": True, "user": "65534:65534", "remove": True}
    try:
        engine.containers.run(tag, ["python3", "-W", "error::RuntimeWarning", "-c", TRIAL], **options)
    except ContainerError as error:
        engine.images.remove(tag)
        raise PackError(f"the image was made and does not work: {str(error)[-500:]}") from None


def _remove(engine, image: str) -> None:
    """The image that had the tag before, unless it has other names or a container runs on it."""
    from docker.errors import APIError

    try:
        engine.images.remove(image)
    except APIError as error:
        print(f"the image before stays ({error.explanation})")


if __name__ == "__main__":
    main()
