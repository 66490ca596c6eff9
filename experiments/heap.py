"""Memory that a program has freed stays with the process, for the next program.

A compiled step allocates its temporaries, hundreds of megabytes, in one piece and frees them at its end. The C library
gives so large a piece back to the kernel, which hands it out again page by page, zeroed: on CPUs a good part of a small
model's step. So large pieces come from the heap, the heap is one for all threads, and it is not trimmed. The process
keeps its largest size until it ends.
"""

from __future__ import annotations

import ctypes

# <malloc.h> of glibc
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep() -> bool:
    """Call it before threads start: they choose their heap when they first allocate. False where the C library is not
    glibc; then nothing changes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # The settings are ints; a threshold of -1 means never.
    return all(mallopt(name, value) for name, value in ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1)))
