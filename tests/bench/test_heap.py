import platform
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import heap

ROOT = Path(heap.__file__).parents[1]
PR_SET_THP_DISABLE = 41  # <linux/prctl.h>: pages of 4 KiB, whatever the machine's rule, so that they can be counted
PROGRAM = """
import ctypes, resource, threading
from experiments import heap

assert ctypes.CDLL(None).prctl({prctl}, 1, 0, 0, 0) == 0

def touch():
    bytearray(2**26).find(b"x")

def faults_of(work):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def in_a_thread():
    thread = threading.Thread(target=touch)
    thread.start()
    thread.join()

if {keep}:
    assert heap.keep()
touch()
print(max(faults_of(touch), faults_of(in_a_thread)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_memory_is_taken_from_the_kernel_once_by_all_threads():
    def faults(keep: bool) -> int:
        command = [sys.executable, "-c", PROGRAM.format(keep=keep, prctl=PR_SET_THP_DISABLE)]
        return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)

    assert faults(keep=True) < 200
    assert faults(keep=False) > 10_000  # 16,384 pages of 4 KiB
