"""A call's arguments taken apart into tensors and a template that puts them together again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

_ATOMS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    torch.dtype,
    torch.device,
    torch.Size,
    torch.Generator,
    torch.nn.Module,
    type,
)
_DEEPEST = 8  # objects nested deeper than this are taken as they are


class _Node:
    """A part of a template that holds tensors somewhere below."""

    __slots__ = ()

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> Any:
        raise NotImplementedError


class _Tensor(_Node):
    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> Any:
        return tensors[self.index]


class _Sequence(_Node):
    __slots__ = ("items", "make")

    def __init__(self, make: Callable[[list[Any]], Any], items: list[Any]) -> None:
        self.make = make
        self.items = items

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> Any:
        return self.make([_rebuild(item, tensors) for item in self.items])


class _Mapping(_Node):
    __slots__ = ("items",)

    def __init__(self, items: dict[Any, Any]) -> None:
        self.items = items

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> Any:
        return {key: _rebuild(value, tensors) for key, value in self.items.items()}


class _Object(_Node):
    """An object with attributes (a KV cache, a model's output): made anew on every rebuild, so that
    what the layer does to it stays where it is."""

    __slots__ = ("attributes", "empty", "items")

    def __init__(self, empty: Any, attributes: dict[str, Any], items: Any) -> None:
        self.empty = empty
        self.attributes = attributes
        self.items = items  # of a dict or list subclass

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> Any:
        made = copy.copy(self.empty)
        made.__dict__.update({k: _rebuild(v, tensors) for k, v in self.attributes.items()})
        if isinstance(self.items, dict):
            for key, value in self.items.items():
                dict.__setitem__(made, key, _rebuild(value, tensors))
        elif self.items is not None:
            list.extend(made, [_rebuild(value, tensors) for value in self.items])
        return made


def _rebuild(part: Any, tensors: Sequence[torch.Tensor]) -> Any:
    return part.rebuild(tensors) if isinstance(part, _Node) else part


def _tuple_maker(kind: type) -> Callable[[list[Any]], Any]:
    if hasattr(kind, "_fields"):
        return lambda items: kind(*items)
    return kind


class _Taker:
    """Walks one call's arguments."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.words: list[str] = []  # what changes the layer's operators, beside the tensors

    def take(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return _Tensor(len(self.tensors) - 1)
        if isinstance(value, _ATOMS):
            self._name(value)
            return value
        kind = type(value)
        if depth >= _DEEPEST:
            return value
        if kind is list or isinstance(value, tuple):
            self.words.append(f"{kind.__name__}{len(value)}")
            parts = [self.take(item, depth + 1) for item in value]
            return _Sequence(list if kind is list else _tuple_maker(kind), parts)
        if kind is dict:
            return _Mapping(self._take_items(value, depth))
        return self._take_object(value, depth)

    def _name(self, value: Any) -> None:
        # Numbers change from batch to batch (a length, a step): they are no other kind of call.
        if value is None or isinstance(value, (bool, str)):
            self.words.append(repr(value)[:64])
        else:
            self.words.append(type(value).__name__)

    def _take_items(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        parts = {}
        for key, item in value.items():
            self.words.append(str(key)[:64])
            parts[key] = self.take(item, depth + 1)
        return parts

    def _take_object(self, value: Any, depth: int) -> Any:
        kind: Any = type(value)
        self.words.append(kind.__qualname__)
        if callable(value) or not hasattr(value, "__dict__"):
            return value
        quiet = _Taker()  # an object's insides are not part of what the call is called
        quiet.tensors = self.tensors
        before = len(self.tensors)
        attributes = {k: quiet.take(v, depth + 1) for k, v in vars(value).items()}
        items: Any = None
        if isinstance(value, dict):
            items = {k: quiet.take(v, depth + 1) for k, v in value.items()}
        elif isinstance(value, list):
            items = [quiet.take(v, depth + 1) for v in value]
        if len(self.tensors) == before and not self._may_grow(value):
            return value
        try:
            empty = object.__new__(kind) if items is None else kind.__new__(kind)
        except TypeError:  # made in a way of its own: what it is now must do
            return value
        return _Object(empty, attributes, items)

    @staticmethod
    def _may_grow(value: Any) -> bool:
        # An empty cache holds no tensor yet, and the call will put some in.
        return any(isinstance(item, (list, dict)) for item in vars(value).values())


class Template:
    """Arguments without their tensors."""

    __slots__ = ("_args", "_kwargs")

    def __init__(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._args = args
        self._kwargs = kwargs

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args = tuple(_rebuild(part, tensors) for part in self._args)
        return args, {name: _rebuild(part, tensors) for name, part in self._kwargs.items()}


def take_apart(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Template, list[torch.Tensor], str]:
    """The template, the tensors in order, and a word for what else the call depends on."""
    taker = _Taker()
    parts = [taker.take(value) for value in args]
    named = {}
    for name, value in kwargs.items():
        taker.words.append(name)
        named[name] = taker.take(value)
    return Template(parts, named), taker.tensors, ",".join(taker.words)


def tensors_in(value: Any, depth: int = 0) -> list[torch.Tensor]:
    """Tensors in nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth >= _DEEPEST:
        return []
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item, depth + 1)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item, depth + 1)]
    return []
