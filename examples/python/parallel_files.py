"""Loads many files on several processes and gets arrays back: python examples/python/parallel_files.py [files] [workers]

Each worker takes the next number, reads that file and returns its array, which comes home through shared memory. A file that
cannot be read is an error of that file alone; all of them are reported together at the end.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from syncline import ipc


def load(folder: Path, number: int) -> np.ndarray:
    return np.load(folder / f"{number}.npy")


def main(files: int, workers: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(1, files + 1):
            np.save(folder / f"{number}.npy", np.full((256, 256), number, np.float32))

        started = time.perf_counter()
        arrays = ipc.map(files, load, folder, processes=workers, progress=True).join()
        print(f"{files} files, {sum(array.nbytes for array in arrays) >> 20} MB, in {time.perf_counter() - started:.2f} s")
        assert all((array == number).all() for number, array in enumerate(arrays, 1))

        (folder / "3.npy").write_bytes(b"no array")
        (folder / "5.npy").unlink()
        try:
            ipc.map(files, load, folder, processes=workers).join()
        except ipc.MapError as error:
            print(error)
            assert len(error.errors) == 2


if __name__ == "__main__":
    main(*(int(given) for given in sys.argv[1:] or (40, 4)))
