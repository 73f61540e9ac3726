"""The tensors in a call's arguments, wherever they lie: in lists, mappings, named tuples,
dataclasses and the attributes of objects."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ._atoms import ATOMS

_DEEPEST = 8
_MOST_OBJECTS = 256  # of a call that are looked into for their attributes
_MOST_FIRST = 64  # a list without a tensor in so many items is taken to have none

# There is no tensor in these either.
_PLAIN = (*ATOMS, bytearray, memoryview, types.ModuleType)


class Leaf:
    """One tensor, or those that lie in the same place of a list's items."""

    __slots__ = ("dim", "dtype", "grad", "many", "path", "tensors")

    def __init__(self, path: str, tensors: list[torch.Tensor], *, many: bool) -> None:
        self.path = path  # names with dots between; * stands for every item of a list
        self.tensors = tensors
        self.many = many
        first = tensors[0]
        self.dim = first.dim()
        self.dtype = first.dtype
        self.grad = first.requires_grad

    def form(self) -> tuple[str, int, torch.dtype, bool, bool]:
        """Equal for leaves of calls that are of one kind."""
        return self.path, self.dim, self.dtype, self.grad, self.many


def _leaves_of_tensor(tensor: torch.Tensor, path: str) -> list[Leaf]:
    if tensor.is_nested:
        with torch.no_grad():
            items = list(tensor.unbind())
        return [Leaf(f"{path}.*", items, many=True)] if items and items[0].dim() > 0 else []
    return [Leaf(path, [tensor], many=False)] if tensor.dim() > 0 else []


def _attributes_of(value: Any) -> dict[str, Any]:
    """No properties: nothing of the user's runs."""
    attributes = dict(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if isinstance(getattr(kind, name, None), types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    attributes[name] = getattr(value, name)
    return attributes


class _Reader:
    """Of one call."""

    def __init__(self) -> None:
        self._seen: set[int] = set()  # objects: they may form circles

    def read(self, value: Any, path: str, depth: int = 0) -> list[Leaf]:
        if isinstance(value, torch.Tensor):
            return _leaves_of_tensor(value, path)
        if depth >= _DEEPEST or isinstance(value, _PLAIN):
            return []
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return self._read_list(value, path, depth)
        leaves: list[Leaf] = []
        for name, item in self._parts_of(value):
            leaves.extend(self.read(item, f"{path}.{name}" if path else name, depth + 1))
        return leaves

    def _parts_of(self, value: Any) -> Iterator[tuple[str, Any]]:
        """By name, and in an order that is the same in every call."""
        if isinstance(value, tuple):
            yield from zip(value._fields, value, strict=True)  # type: ignore[attr-defined]
        elif isinstance(value, Mapping):
            for key in sorted(value, key=str):
                yield str(key), value[key]
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                yield field.name, getattr(value, field.name, None)
        elif not callable(value):
            if id(value) in self._seen or len(self._seen) >= _MOST_OBJECTS:
                return
            self._seen.add(id(value))
            yield from sorted(_attributes_of(value).items())

    def _read_list(self, items: Any, path: str, depth: int) -> list[Leaf]:
        parts: list[list[Leaf]] = []
        for index, item in enumerate(items):
            if index == _MOST_FIRST and not any(parts):
                return []
            parts.append(self.read(item, f"{path}.*", depth + 1))
        if not any(parts):
            return []
        forms = [leaf.form() for leaf in parts[0]]
        if all([leaf.form() for leaf in part] == forms for part in parts[1:]):
            return [
                Leaf(same[0].path, [t for leaf in same for t in leaf.tensors], many=True)
                for same in zip(*parts, strict=True)
            ]
        # Items of several kinds: each has a role of its own.
        leaves = []
        for index, part in enumerate(parts):
            for leaf in part:
                leaf.path = f"{path}.{index}{leaf.path[len(path) + 2:]}"
            leaves.extend(part)
        return leaves


def leaves_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Leaf]:
    """In the order of the arguments. Tensors without dimensions are none."""
    reader = _Reader()
    leaves: list[Leaf] = []
    for index, value in enumerate(args):
        leaves.extend(reader.read(value, "" if isinstance(value, Mapping) else f"argument{index}"))
    leaves.extend(reader.read(kwargs, ""))
    return leaves
