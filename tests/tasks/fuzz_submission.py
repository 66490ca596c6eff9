"""Fuzzing the submission reader: damaged files for tasks of many kinds, for as long as asked.

    PYTHONPATH=. python tests/tasks/fuzz_submission.py --seconds 60 --seed 1

Every file must end in a verdict within a second, with a reason of one short printable line; memory must not grow. Files
are real submissions that were cut, doubled, spliced, repacked and overwritten, so that most get past the first check.
A file that breaks a rule is written to the working directory and named, and the program ends with code 1.
"""

import argparse
import gc
import gzip
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
from task_cases import best_of, case_of, columns_of, make_task, text_of

from mlexpert.tasks.grading import Grader
from mlexpert.types import VerdictStatus

KINDS = (
    ("accuracy", 0), ("auc", 0), ("logloss", 1), ("rmse", 0), ("qwk", 0), ("multilabel_f", 0), ("map_at_k", 1),
    ("exact_match", 0), ("dice", 0), ("box_map", 0), ("crps", 0), ("point_f1", 0),
)  # fmt: skip
WORDS = (
    b",", b"\n", b"\r", b'"', b"\0", b";", b"\t", b"\xef\xbb\xbf", b"\xff\xfe", b"\xe9", b"nan", b"inf", b"-", b"1e400",
    b"1_0", b"id", b"r0", b"r1", b" ", b"=cmd()", b"\x1f\x8b\x08", b"PK\x03\x04", b"0x10", b"\xd9\xa1", b"9" * 400,
    b"<", b'"""', b"\xe2\x80\xa8", b"1 " * 50, b"None", b"true", b"[1,2]",
)  # fmt: skip
MAX_SECONDS, MAX_GROWTH = 1.0, 40 * 2**20


def mutated(rng: np.random.Generator, data: bytes, others: list[bytes]) -> bytes:
    """One to six changes; at the end perhaps another coding or packing."""
    for _ in range(int(rng.integers(1, 7))):
        data = _changed(rng, data, others)[: 2**18]
    kind = rng.integers(0, 12)
    if kind == 0:
        return gzip.compress(data, 1)
    if kind == 1:
        packed = gzip.compress(data, 1)
        return packed[: rng.integers(1, len(packed) + 1)]
    if kind == 2:
        return data.decode("utf-8", "replace").encode("utf-16")
    if kind == 3:  # a bomb: kilobytes that unpack to hundreds of megabytes are refused before they are unpacked
        pack = zlib.compressobj(1, zlib.DEFLATED, 31)
        return pack.compress(data) + pack.compress(bytes(2**20)) + pack.flush()
    return data


def _changed(rng: np.random.Generator, data: bytes, others: list[bytes]) -> bytes:
    at, to = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    word = WORDS[rng.integers(0, len(WORDS))]
    match rng.integers(0, 8):
        case 0:
            return data[:at] + data[to:]
        case 1:
            return data[:to] + data[at:to] * int(rng.integers(1, 20)) + data[to:]
        case 2:
            return data[:at] + word + data[at:]
        case 3:
            return data[:at] + word + data[at + len(word) :]
        case 4:
            return data.replace(WORDS[rng.integers(0, 6)], word)
        case 5:
            other = others[rng.integers(0, len(others))]
            return data[:at] + other[rng.integers(0, len(other) + 1) :]
        case 6:
            lines = data.split(b"\n")
            return b"\n".join(lines[place] for place in rng.permutation(len(lines)))
        case _:
            return data[:at] + rng.bytes(int(rng.integers(1, 9))) + data[at:]


def fault(grader: Grader, path: Path) -> str:
    """What rule the file in `path` breaks, "" if none."""
    start = time.perf_counter()
    try:
        verdict = grader.grade(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if (took := time.perf_counter() - start) > MAX_SECONDS:
        return f"took {took:.1f} s"
    if len(verdict.reason) > 60 or not verdict.reason.isprintable():
        return f"reason {verdict.reason!r}"
    if (verdict.score is None) != (verdict.status is not VerdictStatus.GRADED):
        return f"status {verdict.status} with score {verdict.score}"
    return "" if verdict.status is VerdictStatus.GRADED or verdict.reason else f"{verdict.status} without a reason"


def fuzz(seconds: float, seed: int, folder: Path) -> tuple[dict[str, int], list[str]]:
    """Verdicts by status, and the faults that were found."""
    graders = [Grader(make_task(folder, *kind)[0]) for kind in KINDS]
    cases = [case_of(*kind) for kind in KINDS]
    files = [
        text_of(list(grader.form.ids), columns_of(case), best_of(case)).encode()
        for grader, case in zip(graders, cases, strict=True)
    ]
    rng, path, found, faults = np.random.default_rng(seed), folder / "submission.csv", {}, []
    end, warm, base = time.monotonic() + seconds, time.monotonic() + seconds / 4, 0
    while time.monotonic() < end and len(faults) < 10:
        which = rng.integers(0, len(graders))
        path.write_bytes(mutated(rng, files[which], files))
        if told := fault(graders[which], path):
            kept = Path(f"fuzz-{seed}-{len(faults)}.csv")
            kept.write_bytes(path.read_bytes())
            faults.append(f"{KINDS[which][0]}: {told} (file in {kept})")
        status = graders[which].grade(path).status.value if not told else "fault"
        found[status] = found.get(status, 0) + 1
        if not base and time.monotonic() > warm:
            gc.collect()
            base = resident()
    gc.collect()
    if base and resident() - base > MAX_GROWTH:
        faults.append(f"memory grew by {(resident() - base) / 2**20:.0f} MB")
    return found, faults


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz the submission reader.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found, faults = fuzz(asked.seconds, asked.seed, Path(folder))
    print(f"{sum(found.values())} files in {asked.seconds:.0f} s: {found}")
    print("\n".join(faults) or "no fault")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
