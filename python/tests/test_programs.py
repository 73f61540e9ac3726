"""What stands on the path for the package's programs."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys

import pudica_programs
import pytest

import pudica

PROGRAMS = {
    "pudica": pudica_programs.pudica,
    "pudicad": pudica_programs.pudicad,
    "pudica-train": pudica_programs.pudica_train,
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_it_becomes_the_program_inside_the_package(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr("os.execv", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(sys, "argv", ["/somewhere/else", "--steps", "3"])
    PROGRAMS[name]()
    inside = pathlib.Path(pudica.__file__).parent / "bin" / name
    assert started == [(inside, [name, "--steps", "3"])]


def test_a_package_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pudicad: the package pudica is not installed"):
        pudica_programs.pudicad()


def test_starting_one_does_not_import_torch() -> None:
    code = ("import os, sys; os.execv = lambda *a: print('torch' in sys.modules); "
            "import pudica_programs; pudica_programs.pudica()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
