"""The largest batch, and the longest of each other dimension, that fit: looked for in what was
learned, for `pudica rehearse`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ._errors import PudicaError
from ._handle import Handle

_BEYOND = 64  # times what was seen: further nobody looks
_PARTS = 128  # of the answer, which is as fine as that
# Told of lists as a whole, which no single size changes.
_SUMS = ("elements", "_items", "_total", "_largest")

Sizes = dict[str, int]


class Room(NamedTuple):
    """Of a card."""

    usable_bytes: int  # by a process
    budget_bytes: int  # of a plan
    fits_as_is: bool  # the longest batch was seen to


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest size up to `most` that fits, or one that is less than 1 % smaller; 0: none does.
    What fits must fit when it is smaller."""
    if fits(most):
        return most
    if not fits(1):
        return 0
    low, high = 1, most
    while high - low > max(1, low // _PARTS):
        middle = min(max(math.isqrt(low * high), low + 1), high - 1)
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


class Search:
    """Of one model: sizes of the longest batch, one of them changed at a time."""

    def __init__(self, handle: Handle, longest: Sizes, reserved_bytes: int) -> None:
        """`reserved_bytes`: the peak of the longest batch as it is."""
        self._handle = handle
        self._longest = longest
        self._reserved_bytes = reserved_bytes
        self._known: dict[tuple[int, ...], tuple[int, int] | None] = {}

    def sizes(self, seen: list[Sizes], rooms: list[Room]) -> dict[str, dict[str, Any]]:
        """By dimension: `seen` (least and most), `searched_up_to`, and for each room the largest
        size `as_is` and `with_plan`. Of a dimension that was always of one size nothing is known,
        but for the batch: what a model makes of its rows it makes of each."""
        return {
            name: {
                "seen": [min(s[name] for s in seen), max(s[name] for s in seen)],
                "searched_up_to": _BEYOND * size,
                "rooms": [self._in_room(name, room) for room in rooms],
            }
            for name, size in self._longest.items()
            if not name.endswith(_SUMS)
            and (name == "batch" or any(s[name] != size for s in seen))
        }

    def _in_room(self, name: str, room: Room) -> dict[str, int]:
        most = _BEYOND * self._longest[name]
        known = self._peaks(self._longest)
        kept = known[0] if known is not None else 0

        def fits_as_is(size: int) -> bool:
            # What is reserved grows as what is in use does.
            peaks = self._peaks({**self._longest, name: size})
            return peaks is not None and peaks[0] * self._reserved_bytes <= room.usable_bytes * kept

        def fits_with_plan(size: int) -> bool:
            peaks = self._peaks({**self._longest, name: size})
            return peaks is not None and peaks[1] <= room.budget_bytes

        least = self._longest[name] if room.fits_as_is else 0
        return {"as_is": max(least, largest(fits_as_is, most)),
                "with_plan": largest(fits_with_plan, most)}

    def _peaks(self, sizes: Sizes) -> tuple[int, int] | None:
        """All kept, and the least; None: it is not known."""
        key = tuple(sizes.values())
        if key not in self._known:
            try:
                answer = self._handle.estimate(sizes)
                self._known[key] = answer["keep_all_peak_bytes"], answer["floor_peak_bytes"]
            except PudicaError:
                self._known[key] = None
        return self._known[key]
