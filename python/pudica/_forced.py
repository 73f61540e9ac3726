"""Plans of another policy than pudica's own, for pudica.parity and the tests; for the tests also
seconds that are the same on every machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_forced: str | None = None
_clock: str | None = None


def forced_policy() -> str | None:
    """The policy spec that attach() uses instead of the configured one."""
    return _forced


@contextlib.contextmanager
def plans_of(policy: str) -> Iterator[None]:
    """attach() inside plans by `policy`: "none", "full", "every_n:n=2", "reactive", or
    "random:seed=3": another random plan each step. Not for two threads at once."""
    global _forced
    before, _forced = _forced, policy
    try:
        yield
    finally:
        _forced = before


def forced_clock() -> str | None:
    """The clock that attach() uses instead of the device's own."""
    return _clock


@contextlib.contextmanager
def operator_seconds() -> Iterator[None]:
    """attach() inside takes seconds from the operators that run, not from a clock: the same program
    makes the same plans whatever the machine does besides."""
    global _clock
    before, _clock = _clock, "operators"
    try:
        yield
    finally:
        _clock = before
