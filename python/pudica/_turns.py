"""Whose step is under way, of the handles of a process. A step that begins on a device cuts another
model's short: what the meter counts from then on is of both."""

from __future__ import annotations

import weakref
from typing import Protocol

import torch


class Stepping(Protocol):
    def gives_way(self) -> None:
        """Ends the open step where it lacks no more than its optimizer's."""


_latest: dict[torch.device, weakref.ref[Stepping]] = {}


def take(handle: Stepping, device: torch.device) -> None:
    """Before a step of this handle begins there."""
    last = _latest.get(device)
    before = last() if last is not None else None
    if before is handle:
        return
    _latest[device] = weakref.ref(handle)
    if before is not None:
        before.gives_way()
