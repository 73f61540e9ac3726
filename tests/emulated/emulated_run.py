"""Runs commands on the emulated device, as users do: by scripts/emulated."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])


def emulated(*command, cwd=None, **environment):
    """What it did. The package is the tree's; variables of the environment win over that."""
    path = f"{ROOT / 'python'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return subprocess.run(
        [str(ROOT / "scripts" / "emulated"), *map(str, command)], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=280, cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, **environment})
