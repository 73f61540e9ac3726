"""The largest sizes that fit, of a model whose peaks are known."""

from __future__ import annotations

from typing import Any

import pytest

from pudica import NotLearnedError
from pudica._search import Room, Search, largest


@pytest.mark.parametrize("true", [0, 1, 2, 17, 127, 999, 1000])
def test_it_is_found_to_the_hundredth(true: int) -> None:
    asked: list[int] = []

    def fits(size: int) -> bool:
        asked.append(size)
        return size <= true

    found = largest(fits, 1000)
    assert found <= true <= found * 1.01
    assert len(asked) <= 15


class Model:
    """Kept: 100 and 3 a token; the least: 100 and 1."""

    asked = 0

    def estimate(self, sizes: dict[str, int]) -> dict[str, int]:
        self.asked += 1
        tokens = sizes["batch"] * sizes["length"]
        if tokens > 20_000:
            raise NotLearnedError("too far")
        return {"keep_all_peak_bytes": 100 + 3 * tokens, "floor_peak_bytes": 100 + tokens}


def search(model: Any, reserved: int) -> Search:
    return Search(model, {"batch": 4, "length": 1000, "elements": 4000}, reserved)


def test_each_size_is_looked_for_with_the_others_as_they_are() -> None:
    kept = 100 + 3 * 4000
    seen = [{"batch": 4, "length": 10, "elements": 1}, {"batch": 4, "length": 1000, "elements": 1}]
    model = Model()
    found = search(model, 2 * kept).sizes(seen, [
        Room(48_200, 16_100, False), Room(1, 1, False)])
    assert list(found) == ["batch", "length"], "a sum says nothing of one size"
    # Twice as much is reserved as is in use.
    assert found["batch"] == {"seen": [4, 4], "searched_up_to": 256, "rooms": [
        {"as_is": 8, "with_plan": 16}, {"as_is": 0, "with_plan": 0}]}
    room = found["length"]["rooms"][0]
    assert 1980 <= room["as_is"] <= 2000 and 3960 <= room["with_plan"] <= 4000
    before = model.asked
    assert before < 60


def test_what_is_not_known_does_not_fit() -> None:
    found = search(Model(), 1).sizes([{"batch": 4, "length": 1000, "elements": 1}],
                                     [Room(10**12, 10**12, False)])
    assert found["batch"]["rooms"] == [{"as_is": 20, "with_plan": 20}]


def test_what_never_varied_is_left_out_but_for_the_batch() -> None:
    room = Room(48_200, 16_100, False)
    alike = {"batch": 4, "length": 1000, "elements": 4000}
    assert list(search(Model(), 1).sizes([alike, alike], [room])) == ["batch"]
    shorter = {**alike, "length": 999}
    assert list(search(Model(), 1).sizes([alike, shorter], [room])) == ["batch", "length"]


def test_what_was_seen_to_fit_is_the_least_that_fits_as_it_is() -> None:
    kept = 100 + 3 * 4000
    seen = [{"batch": 4, "length": length, "elements": 4000} for length in (10, 1000)]
    rooms = [Room(usable, 1, fits) for usable in (1, 4 * kept) for fits in (False, True)]
    found = search(Model(), 2 * kept).sizes(seen, rooms)
    for name, longest in {"batch": 4, "length": 1000}.items():
        unseen, raised, more, as_much = (room["as_is"] for room in found[name]["rooms"])
        assert (unseen, raised) == (0, longest)
        assert as_much == more > longest
        assert {room["with_plan"] for room in found[name]["rooms"]} == {0}


def test_what_was_seen_to_fit_fits_where_nothing_is_known() -> None:
    longest = {"batch": 40, "length": 1000, "elements": 40_000}
    found = Search(Model(), longest, 1).sizes([longest], [Room(1, 1, True), Room(1, 1, False)])
    assert found["batch"]["rooms"] == [{"as_is": 40, "with_plan": 0}, {"as_is": 0, "with_plan": 0}]
