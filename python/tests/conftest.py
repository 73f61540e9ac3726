"""Quiet, deterministic, without network."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

# The tests' own helpers, wherever pytest is started from.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("PUDICA_DISABLE", None)
os.environ.pop("PUDICA_CONFIG", None)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes longer than the others together")
