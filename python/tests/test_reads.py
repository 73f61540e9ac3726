"""Which lines read values of the device, with a device that is none."""

from __future__ import annotations

import itertools

import pytest

from pudica._reads import Endless, Reads


def reads(*, uploads: bool = False) -> Reads:
    """With small limits; `uploads`: something new comes from the host before each."""
    out = Reads()
    count = itertools.count(1)
    out._count = lambda: next(count)  # a copy to the host at each look
    out._uploads = (lambda: next(count)) if uploads else (lambda: 0)
    out._MOST_IN_A_ROW, out._MOST = 100, 1000
    return out


def test_a_place_is_named_and_counted() -> None:
    seen = reads()
    for _ in range(3):
        seen._note()
    places = seen.report()["places"]
    assert [(place["count"], place["code"]) for place in places] == [(3, "seen._note()")]
    assert seen.report()["last"].endswith(f"test_reads.py:{places[0]['line']}")


@pytest.mark.parametrize(("uploads", "ended"), [(False, 100), (True, 1000)])
def test_a_loop_without_a_step_is_ended_by_its_reads_and_named(uploads: bool, ended: int) -> None:
    seen = reads(uploads=uploads)
    read = 0
    with pytest.raises(Endless):
        while True:
            read += 1
            seen._note()
    assert read == ended
    assert "test_reads.py" in seen.endless and f"{ended} reads without a step" in seen.endless


def test_what_comes_from_the_host_is_progress() -> None:
    seen = reads()
    uploads = 0
    seen._uploads = lambda: uploads
    for number in range(900):
        if number % 90 == 0:
            uploads += 1
        seen._note()
    assert seen.endless == ""


def test_steps_in_between_are_progress() -> None:
    seen = reads()
    for number in range(5000):
        if number % 50 == 0:
            seen.note_step()
        seen._note()
    assert seen.endless == ""
