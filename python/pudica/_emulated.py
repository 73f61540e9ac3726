"""What the emulated device counts (emulated_device/counts.h), in a process that it is preloaded
into."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


def counter(name: str, kind: Any) -> Callable[[], Any] | None:
    """The count `emulated_device_<name>`; None on another device."""
    try:
        count: Any = getattr(ctypes.CDLL(None), f"emulated_device_{name}")
    except AttributeError:
        return None
    count.restype = kind
    return count  # type: ignore[no-any-return]
