"""What a key is made of: which of a call's tensors and sizes, wherever they lie."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from pudica._shape import MOST_KINDS, ShapeReader

MODEL = nn.Identity()


def read(reader: ShapeReader, *args: Any, **kwargs: Any) -> dict[str, int] | None:
    kind, names, values = reader.read(MODEL, args, kwargs)
    return None if kind is None else dict(zip(names, values, strict=True))


def kinds(reader: ShapeReader, *calls: Any) -> set[int | None]:
    return {reader.read(MODEL, (call,), {})[0] for call in calls}


def ids(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.long)


# -- where tensors lie -----------------------------------------------------------------------------


@dataclasses.dataclass
class Batch:
    input_ids: torch.Tensor
    weight: float = 1.0
    also: Any = None


@dataclasses.dataclass(slots=True)
class Slots:
    input_ids: torch.Tensor


class Pair(NamedTuple):
    input_ids: torch.Tensor
    name: str


class Plain:
    """Holds its tensors behind a property, and itself."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._store = {"input_ids": tensor}
        self.me = self

    @property
    def broken(self) -> torch.Tensor:
        raise RuntimeError("nobody is to ask")


class Slotted(Plain):
    """As a class made by attrs."""

    __slots__ = ("also", "never")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.also = [tensor]


HOLDERS = {
    "dataclass": Batch,
    "nested": lambda x: Batch(ids(3, 1), also={"inner": [Batch(x)]}),
    "slots": Slots,
    "user dict": lambda x: collections.UserDict(input_ids=x),
    "chain map": lambda x: collections.ChainMap({"input_ids": x}, {"input_ids": ids(9, 9)}),
    "named tuple": lambda x: Pair(x, "name"),
    "object": Plain,
    "object with slots": Slotted,
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("by_name", [False, True])
def test_tensors_are_found_in(holder: str, by_name: bool) -> None:
    reader = ShapeReader()
    for length in (20, 30):
        value = HOLDERS[holder](ids(3, length))
        seen = read(reader, batch=value) if by_name else read(reader, value)
        assert seen == {"batch": 3, "length": length}
    assert len(kinds(reader, HOLDERS[holder](ids(3, 7)), HOLDERS[holder](ids(5, 9)))) == 1


def test_tensors_are_found_in_a_batch_encoding() -> None:
    transformers = pytest.importorskip("transformers")
    reader = ShapeReader()
    for length in (20, 30):
        batch = transformers.BatchEncoding({"input_ids": ids(3, length), "mask": ids(3, length)})
        assert read(reader, batch) == {"batch": 3, "length": length}


def test_tensors_are_found_in_nested_tensors() -> None:
    reader = ShapeReader()
    for lengths in ((20, 30), (7, 9), (3, 3, 40)):
        nested = torch.nested.nested_tensor([torch.zeros(n, 4) for n in lengths],
                                            layout=torch.jagged)
        seen = read(reader, nested)
    assert seen == {"argument0_items": 3, "argument0_total": 46, "argument0_largest": 40}


def test_what_holds_no_tensor_is_no_kind() -> None:
    reader = ShapeReader()
    for value in (None, 3, "text", [1, 2], {"a": "b"}, Plain, MODEL, torch.tensor(1.0), object(),
                  lambda: torch.zeros(3), torch.Size([3, 4])):
        assert reader.read(MODEL, (value,), {}) == (None, [], [])


def test_long_lists_of_numbers_cost_nothing() -> None:
    class Counting(list):  # type: ignore[type-arg]
        asked = 0

        def __iter__(self) -> Any:
            for item in super().__iter__():
                Counting.asked += 1
                yield item

    assert read(ShapeReader(), Counting(range(100_000)), ids(2, 3)) == {"batch": 2, "length": 3}
    assert Counting.asked < 100


# -- lists -----------------------------------------------------------------------------------------


def test_a_list_of_any_length_is_one_kind() -> None:
    reader = ShapeReader()
    calls = [[ids(4 + k) for k in range(count)] for count in range(1, 40)]
    assert len(kinds(reader, *calls)) == 1


def test_sequences_are_told_by_number_sum_and_longest() -> None:
    reader = ShapeReader()
    read(reader, [ids(5), ids(9)])
    for lengths in ((4, 8, 6), (7,), (3, 3, 3, 3, 50)):
        assert read(reader, [ids(n) for n in lengths]) == {
            "argument0_items": len(lengths),
            "argument0_total": sum(lengths),
            "argument0_largest": max(lengths),
        }


def test_images_are_told_by_their_sizes_alone() -> None:
    reader = ShapeReader()
    read(reader, images=[torch.zeros(3, 32, 48)])
    read(reader, images=[torch.zeros(3, 32, 48), torch.zeros(3, 20, 60)])
    seen = read(reader, images=[torch.zeros(3, h, w) for h, w in ((10, 20), (40, 8), (7, 7))])
    assert seen == {"images_items": 3, "images_total": 569, "images_largest_1": 40,
                    "images_largest_2": 20}, "the channels are always 3"


def test_a_list_of_mappings_is_told_by_each_of_their_tensors() -> None:
    reader = ShapeReader()
    for boxes in ((2,), (3, 1), (4, 4, 9)):
        targets = [{"boxes": torch.zeros(n, 4), "labels": ids(n)} for n in boxes]
        seen = read(reader, targets=targets)
    assert seen == {"targets_boxes_items": 3, "targets_boxes_total": 17,
                    "targets_boxes_largest": 9}


def test_few_items_have_roles_of_their_own() -> None:
    reader = ShapeReader()
    for source, target in ((10, 20), (30, 20), (20, 30)):
        seen = read(reader, [ids(4, source), ids(4, target)])
    assert seen == {"batch": 4, "argument0_0": 20, "argument0_1": 30}
    # Until they are more.
    seen = read(reader, [ids(4, 20), ids(4, 30), ids(4, 7)])
    assert seen == {"argument0_items": 3, "argument0_total": 57, "argument0_largest": 30}


def test_items_of_several_kinds_are_told_apart() -> None:
    reader = ShapeReader()
    seen = read(reader, (ids(4, 20), torch.zeros(4, 20), None, [ids(7)]))
    assert seen == {"batch": 4, "batch_argument0_3_0": 7, "length": 20}
    assert len(kinds(reader, (ids(4, 9), torch.zeros(4, 9), None, [ids(3)]))) == 1


# -- axes of size 1 --------------------------------------------------------------------------------


def test_an_axis_that_was_one_becomes_a_dimension() -> None:
    reader = ShapeReader()
    first = read(reader, ids(4, 1))
    second = read(reader, ids(4, 512))
    assert first == {"batch": 4}
    assert second == {"batch": 4, "length": 512}
    assert read(reader, ids(4, 1)) == {"batch": 4, "length": 1}
    assert read(reader, ids(2, 96)) == {"batch": 2, "length": 96}


def test_an_axis_that_was_one_joins_no_other_that_has_its_size() -> None:
    reader = ShapeReader()
    read(reader, a=ids(4, 20), b=ids(4, 1))
    assert read(reader, a=ids(4, 20), b=ids(4, 20)) == {"batch": 4, "a": 20, "b": 20}
    assert read(reader, a=ids(4, 30), b=ids(4, 7)) == {"batch": 4, "a": 30, "b": 7}


def test_an_empty_axis_is_told() -> None:
    reader = ShapeReader()
    assert read(reader, ids(4, 0)) == {"batch": 4}
    assert read(reader, ids(4, 9)) == {"batch": 4, "length": 9}


# -- too many --------------------------------------------------------------------------------------


def test_of_many_axes_those_that_vary_make_the_key() -> None:
    reader = ShapeReader()
    sizes = [2, 3, 4, 5, 6, 7, 8, 9]
    first = read(reader, torch.zeros(sizes))
    assert first is not None and len(first) == 6
    for axis in (6, 7):
        sizes[axis] += 20
        seen = read(reader, torch.zeros(sizes[:6] + [sizes[6], sizes[7]]))
        assert seen is not None and len(seen) == 6 and sizes[axis] in seen.values()


def test_more_axes_that_vary_than_a_key_has_are_told_by_their_elements() -> None:
    reader = ShapeReader()
    for step in range(4):
        inputs = {f"x{k}": ids(10 + 7 * k * step + k) for k in range(9)}
        seen = read(reader, **inputs)
    assert seen is not None and len(seen) == 6
    assert seen["elements"] == sum(x.numel() for x in inputs.values())
    inputs["x8"] = ids(999)
    again = read(reader, **inputs)
    assert again is not None and again != seen


def test_more_kinds_than_are_told_apart_say_how_many_elements_they_have() -> None:
    reader = ShapeReader()
    for k in range(MOST_KINDS):
        assert reader.read(MODEL, (), {f"x{k}": ids(2, 3)})[0] == k
    assert reader.read(MODEL, (), {"one more": ids(2, 3)}) == (None, ["elements"], [6])
    assert reader.read(MODEL, (), {"x3": ids(2, 3)})[0] == 3


# -- saved dimensions ------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [
    [ids(4, 20), ids(4, 30)],
    [[ids(5), ids(9)], [ids(4)], [ids(7), ids(8), ids(1)]],
])
def test_a_reader_reads_with_the_dimensions_of_another(calls: list[Any]) -> None:
    first = ShapeReader()
    for call in calls:
        seen = read(first, call)
    second = ShapeReader()
    second.preset(first.dimensions())
    assert read(second, calls[-1]) == seen
    assert second.dimensions() == first.dimensions()


def test_dimensions_of_other_calls_are_not_taken() -> None:
    first = ShapeReader()
    read(first, [ids(5), ids(9)])
    read(first, [ids(5)])
    second = ShapeReader()
    second.preset(first.dimensions())
    assert read(second, ids(4, 20)) == {"batch": 4, "length": 20}
