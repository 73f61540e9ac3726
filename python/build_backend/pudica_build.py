"""The build backend: scikit-build-core's, which also asks for a torch to build against where the
environment that pip installs into has none. Where there is one, that one is used."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from typing import Any

from scikit_build_core import build as _build
from scikit_build_core.build import (  # noqa: F401
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)


def _environment_has_torch() -> bool:
    # pip shows the packages of its isolated build by PYTHONPATH: without it, the environment's own.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    asked = subprocess.run([sys.executable, "-c", "import torch"], env=own, capture_output=True)
    return asked.returncode == 0


def _torch() -> list[str]:
    """The package's own requirement, so that what is built against is what gets installed."""
    if _environment_has_torch():
        return []
    project = pathlib.Path("pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'"(torch[<>=!~][^"]*)"', project)
    if found is None:
        raise RuntimeError("pyproject.toml: no requirement of torch, expected one in dependencies")
    return [found.group(1)]


def get_requires_for_build_wheel(settings: dict[str, Any] | None = None) -> list[str]:
    return _build.get_requires_for_build_wheel(settings) + _torch()


def get_requires_for_build_editable(settings: dict[str, Any] | None = None) -> list[str]:
    return _build.get_requires_for_build_editable(settings) + _torch()
