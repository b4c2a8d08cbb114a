"""Flags that old scripts give Theano, in the words of the Theano that can still be installed.

The manual's recipe for several GPUs sets ``THEANO_FLAGS`` to ``device=gpu0,lib.cnmem=1``. Theano 1.0 calls the same
``device=cuda0,gpuarray.preallocate=1``, refuses the old words, and reaches GPUs through pygpu only. So the variable is
translated in the moment in which Theano is imported; where there is no pygpu, Theano computes on the CPU.
"""

from __future__ import annotations

import configparser
import importlib.abc
import importlib.util
import os
import re
import sys
from typing import Any

VARIABLE = "THEANO_FLAGS"


def translated(flags: str, pygpu: bool) -> str:
    """``flags`` as Theano 1.0 understands them; what it understands already is left alone."""
    kept = []
    for flag in filter(None, map(str.strip, flags.split(","))):
        name, _, value = flag.partition("=")
        device = re.fullmatch(r"gpu(\d*)", value) if name in ("device", "init_gpu_device") else None
        if device:
            # A device that is only to be initialised is no matter of the CPU.
            if pygpu or name == "device":
                kept.append(f"{name}={f'cuda{device[1]}' if pygpu else 'cpu'}")
        elif name == "lib.cnmem":
            if pygpu:
                kept.append(f"gpuarray.preallocate={value}")
        else:
            kept.append(flag)
    return ",".join(kept)


def prepare() -> None:
    """Sees to it that the flags are translated when Theano is imported, if it is."""
    if "theano" not in sys.modules and not any(isinstance(each, _Translation) for each in sys.meta_path):
        sys.meta_path.insert(0, _Translation())


class _Translation(importlib.abc.MetaPathFinder):
    """Finds nothing: it is asked first when Theano is looked for, which is early enough for its environment."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name != "theano":
            return
        sys.meta_path.remove(self)
        flags = translated(os.environ.get(VARIABLE, ""), importlib.util.find_spec("pygpu") is not None)
        if not _says_where_blas_is(flags) and not _numpy_knows_blas():
            flags = f"{flags},blas.ldflags=".lstrip(",")
        if flags != os.environ.get(VARIABLE, ""):
            os.environ[VARIABLE] = flags


def _says_where_blas_is(flags: str) -> bool:
    files = configparser.RawConfigParser(strict=False)
    try:
        files.read(os.path.expanduser(each) for each in os.environ.get("THEANORC", "~/.theanorc").split(os.pathsep))
    except configparser.Error:
        return True  # Theano itself says what is wrong with the file
    return "blas.ldflags=" in flags or files.has_option("blas", "ldflags")


def _numpy_knows_blas() -> bool:
    """Whether Theano's question for the default can be answered: it fails where NumPy was not built by its old tools."""
    try:
        from numpy.distutils import __config__ as built
    except ImportError:
        return True
    return hasattr(built, "blas_opt_info")
