"""The native library: loaded once, checked against this torch."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import torch

from . import _rerun

_HERE = pathlib.Path(__file__).resolve().parent


def _library() -> pathlib.Path:
    # An installed package has it beside itself; PUDICA_NATIVE_LIBRARY is for a build tree.
    chosen = os.environ.get("PUDICA_NATIVE_LIBRARY")
    return pathlib.Path(chosen) if chosen else _HERE / "lib" / "libpudica_python.so"


def _check_version(built_for: str) -> None:
    have = torch.__version__.split("+")[0]
    if have.split(".")[:2] != built_for.split("+")[0].split(".")[:2]:
        raise ImportError(
            f"pudica was built for torch {built_for}, and torch {torch.__version__} is installed; "
            "install the wheel for this torch (its version ends in "
            f"+torch{'.'.join(have.split('.')[:2])}), or build it again: "
            "pip install --force-reinstall --no-deps --no-cache-dir PATH_TO_PUDICA"
        )


def _load() -> None:
    path = _library()
    if not path.exists():
        raise ImportError(
            f"pudica's native library is not at {path}; install the package with: pip install ."
        )
    try:
        from ._build import TORCH_VERSION  # type: ignore[import-not-found,unused-ignore]
    except ImportError:  # a build tree: the library itself is the only witness
        TORCH_VERSION = torch.__version__
    _check_version(TORCH_VERSION)
    torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    _rerun.install()


_load()

ops: Any = torch.ops.pudica
Attachment: Any = torch.classes.pudica.Attachment
PLANNED, MAY_REST = 1, 2  # bits of what Attachment.begin_step() gives
NOT_ENTERED, MAY_RUN_AGAIN = 0, 2  # what Attachment.enter() gives, beside 1
ops.collect_log()
