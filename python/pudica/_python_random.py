"""What Python's generator, the one behind the functions of `random`, is at.

random.getstate() makes a tuple of 625 numbers, and two of them a layer call are a good part of what
pudica costs where the host is what a step waits for. Where the object lies in memory as CPython has
it the same is read as bytes, which is checked when this module is loaded. A program that puts
another generator behind `random` is read the documented way.
"""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from typing import Any

_WORDS = 624
_LAYOUT = f"=i{_WORDS}I"  # index and words, behind the head that every object has
_generator: Any = random._inst
_getstate = random.getstate


def _memory() -> Callable[[], bytes] | None:
    """Reads index and words; None: they are not where CPython has them."""
    try:
        if _getstate.__self__ is not _generator:  # type: ignore[attr-defined]
            return None
        head = object.__basicsize__
        if type(_generator).__basicsize__ < head + struct.calcsize(_LAYOUT):
            return None
        block = (ctypes.c_char * struct.calcsize(_LAYOUT)).from_address(id(_generator) + head)
        _, words, _ = random.getstate()
        if block.raw != struct.pack(_LAYOUT, words[-1], *words[:-1]):
            return None
    except Exception:  # noqa: BLE001  (another interpreter: the documented way is there)
        return None
    return lambda: block.raw


_read = _memory()


def state() -> Any:
    """Equal to an earlier one if and only if nothing was drawn since, nor the state set."""
    if _read is None or random.getstate is not _getstate:
        return random.getstate()
    return _read(), _generator.gauss_next


def restore(saved: Any) -> None:
    """What state() gave."""
    if not isinstance(saved[0], bytes):
        random.setstate(saved)
        return
    index, *words = struct.unpack(_LAYOUT, saved[0])
    _generator.setstate((3, (*words, index), saved[1]))
