"""What pudica changes on a user's modules for a while is put back, whatever strikes meanwhile.

Ctrl-C strikes anywhere, in a `finally` too. Each change is told here first, so that what could not
be put back is put back the next time that something looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_local = threading.local()


def _changes() -> list[Callable[[], Any]]:
    if not hasattr(_local, "changes"):
        _local.changes = []
    changes: list[Callable[[], Any]] = _local.changes
    return changes


def mark() -> int:
    """Where undo() is to stop."""
    return len(_changes())


def tell(put_back: Callable[[], Any]) -> None:
    """Before the change. `put_back` may be called more than once."""
    _changes().append(put_back)


def undo(to: int = 0) -> list[Any]:
    """Puts back what was told since the mark, the latest first; gives what that gave."""
    changes = _changes()
    given = []
    while len(changes) > to:
        try:
            given.append(changes[-1]())
        except Exception:
            changes.pop()
            raise
        changes.pop()
    return given
