"""The package's programs, by the names that they have on the path. Not a part of `pudica`, whose
import takes the time of torch's."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys


def _run(name: str) -> None:
    package = importlib.util.find_spec("pudica")  # which is not imported by this
    if package is None or package.origin is None:
        sys.exit(f"{name}: the package pudica is not installed")
    program = pathlib.Path(package.origin).parent / "bin" / name
    os.execv(program, [name, *sys.argv[1:]])


def pudica() -> None:
    _run("pudica")


def pudicad() -> None:
    _run("pudicad")


def pudica_train() -> None:
    _run("pudica-train")
