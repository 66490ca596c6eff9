"""Another Python, with PyTorch and `transformers`, as a process that is asked in lines of JSON (see third_party)."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any, Self

SERVE = Path(__file__).resolve().parents[2] / "third_party" / "transformers_bench" / "serve.py"


class TorchError(RuntimeError):
    """The other side cannot be had, refused or ended; the message is its own."""


class TorchSide:
    """`with TorchSide(python) as ask: ask("step")`. One request at a time; raises TorchError."""

    def __init__(self, python: str, program: Path = SERVE):
        try:
            self._process = subprocess.Popen(
                [python, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise TorchError(
                f"{python} cannot be started ({error.strerror}): name a Python with torch, see {SERVE.parent}/README.md"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # at the end of its input it ends
        self._process.stdout.close()
        self._process.wait(timeout=60)

    def __call__(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise TorchError(f"the process with torch ended with code {self._process.wait()}; its last words are above")
        answer = json.loads(line)
        if "error" in answer:
            raise TorchError(f"{do}: {answer['error']}")
        return answer
