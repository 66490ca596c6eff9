"""Wheels made on the spot, in a folder that is the only package index."""

import hashlib
import zipfile

from mlexpert.factory.classic.pins import Pin


def alone(monkeypatch, folder):
    """pip knows this folder and nothing else."""
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def publish(folder, package, **members):
    """A package with these members (dots for slashes are not needed: names as they stand), and its pin."""
    name = package.replace("-", "_")
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for member, data in members.items():
            file.writestr(member, data)
        file.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        file.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        file.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return Pin(package, "1.0", hashlib.sha256(path.read_bytes()).hexdigest())
