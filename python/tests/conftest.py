"""Quiet, deterministic, without network."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterator

import pytest

# The tests' own helpers, wherever pytest is started from.
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "support")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("PUDICA_DISABLE", None)
os.environ.pop("PUDICA_CONFIG", None)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes longer than the others together")


@pytest.fixture(scope="session", autouse=True)
def seconds_of_operators() -> Iterator[None]:
    """Which plans are tried, and what is revoked first, follows from seconds."""
    from pudica._forced import operator_seconds

    with operator_seconds():
        yield
