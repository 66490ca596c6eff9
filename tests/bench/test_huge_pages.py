import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import huge_pages

ROOT = Path(huge_pages.__file__).parents[1]
PROGRAM = """
import os, sys
from experiments import huge_pages
print("begun", flush=True)
huge_pages.use()
large = bytearray(2**26)
flags = [line for line in open("/proc/self/smaps") if line.startswith("VmFlags")]
print(sys.argv[1:], os.environ.get(huge_pages.NAME), any(" hg" in line for line in flags))
"""

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 35),
    reason="the setting is one of glibc 2.35 and later",
)


def _run(**environment: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if name != huge_pages.NAME}
    command = [sys.executable, "-c", PROGRAM, "one argument", "--two"]
    done = subprocess.run(command, env=clean | environment, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_program_begins_anew_once_with_its_arguments_and_large_pieces_are_in_huge_pages():
    assert _run() == ["begun", "begun", "['one argument', '--two'] None True"]


def test_a_setting_of_the_users_own_stands():
    given = "glibc.malloc.top_pad=4096"
    assert _run(GLIBC_TUNABLES=given) == ["begun", f"['one argument', '--two'] {given} False"]
