"""What a forward found of what it has changed since: to be compared, and put back for a while."""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ._atoms import VALUES

ABSENT = object()


class Saved(NamedTuple):
    name: str
    read: Callable[[], Any]
    then: Any
    is_same: Callable[[Any, Any], bool]
    put: Callable[[Any], Any] | None  # None: it cannot be put back


def _is_same(now: Any, then: Any) -> bool:
    if now is then:
        return True
    if type(now) is not type(then) or type(now) not in VALUES:
        return False
    if type(now) is float:
        return struct.pack("=d", now) == struct.pack("=d", then)
    return bool(now == then) and type(now) is not complex


def same_things(now: list[Any], then: list[Any]) -> bool:
    return len(now) == len(then) and all(map(_is_same, now, then))


def _gets_more_than_values(one: Saved) -> bool:
    """A container, of things that may do something, as calls that a layer takes from a list do."""
    if one.is_same is not same_things:
        return False
    there = set(map(id, one.read()))
    return not all(
        id(value) in there or value is ABSENT or type(value) in VALUES
        or issubclass(type(value), torch.Tensor)
        for value in one.then
    )


class Found:
    """What a forward found and has changed, as far as it is to be found again. Keeps it alive."""

    def __init__(self, changed: list[Saved]) -> None:
        self._changed = [one for one in changed if not _gets_more_than_values(one)]

    def put_back(self, tell: Callable[[Callable[[], Any]], None]) -> str:
        """For a while, `tell` getting first what undoes it; names what could not be, if any."""
        for one in self._changed:
            try:
                if one.put is None:
                    return one.name
                tell(functools.partial(_put_quietly, one.put, one.read()))
                one.put(one.then)
            except Exception:  # noqa: BLE001  (objects of the user's)
                return one.name
        return ""


def _put_quietly(put: Callable[[Any], Any], then: Any) -> None:
    with contextlib.suppress(Exception):
        put(then)
