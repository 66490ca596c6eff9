"""A fresh interpreter for what must not happen to the one that runs the tests: filters, signals, adopted orphans."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python(source: str, *arguments: object) -> subprocess.CompletedProcess:
    """Run a program that may import mlexpert; it has no terminal and no input."""
    command = [sys.executable, "-c", source, *map(str, arguments)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=120,
    )


def printed(source: str, *arguments: object) -> str:
    """What the program prints, if it ends well."""
    run = python(source, *arguments)
    assert run.returncode == 0, (run.returncode, run.stdout, run.stderr)
    return run.stdout
