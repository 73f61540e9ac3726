"""Which lines read values of the device, with a device that is none."""

from __future__ import annotations

import itertools

import pytest

from pudica._reads import Endless, Reads


def reads(seconds: float) -> Reads:
    out = Reads()
    count = itertools.count(1)
    out._count = lambda: next(count)  # a copy to the host at each look
    out._MOST_SECONDS = seconds
    return out


def test_a_place_is_named_and_counted() -> None:
    seen = reads(3600)
    for _ in range(3):
        seen._note()
    places = seen.report()["places"]
    assert [(place["count"], place["code"]) for place in places] == [(3, "seen._note()")]
    assert seen.report()["last"].endswith(f"test_reads.py:{places[0]['line']}")


def test_a_loop_that_goes_on_by_its_reads_is_ended_and_named() -> None:
    seen = reads(-1)
    with pytest.raises(Endless):
        while True:
            seen._note()
    assert "test_reads.py" in seen.endless and "1001 reads between two steps" in seen.endless


def test_steps_in_between_are_progress() -> None:
    seen = reads(-1)
    for number in range(5000):
        if number % 500 == 0:
            seen.note_step()
        seen._note()
    assert seen.endless == ""
