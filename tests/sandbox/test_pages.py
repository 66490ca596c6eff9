"""Huge pages change how memory lies, never what is in it; each trial has an interpreter of its own."""

from fresh import printed


def test_what_lies_in_memory_is_the_same_after_it_was_collapsed():
    source = """
import hashlib, os
from mlexpert.sandbox import pages
text = bytes(range(256)) * (32 << 12)  # 32 MiB
things = {n: [str(n), n * 1.5] for n in range(100_000)}
before = hashlib.sha256(text).hexdigest(), hash(repr(things))
given = pages.collapse()
same = (hashlib.sha256(text).hexdigest(), hash(repr(things))) == before
print(given >= 0 and given % (2 << 20) == 0, same, flush=True)
if os.fork() == 0:
    print((hashlib.sha256(text).hexdigest(), hash(repr(things))) == before, flush=True)
    os._exit(0)
os.wait()
"""
    assert printed(source) == "True True\nTrue\n"


def test_only_memory_without_a_file_is_asked_for():
    source = """
import mmap, tempfile
from mlexpert.sandbox import pages
with tempfile.TemporaryFile() as file:
    file.truncate(8 << 20)
    mapped = mmap.mmap(file.fileno(), 8 << 20)
    own = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    asked = list(pages._candidates())
    areas = [line.split() for line in open("/proc/self/maps")]
    ranges = [(*(int(end, 16) for end in area[0].split("-")), area) for area in areas]
    def inside(start): return next(area for low, high, area in ranges if low <= start < high)
    print(len(asked) > 0, all(start % (2 << 20) == 0 for start in asked))
    print({name for start in asked for name in inside(start)[5:]} <= {"[heap]"})
"""
    assert printed(source) == "True True\nTrue\n"
