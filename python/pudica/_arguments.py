"""A call's arguments taken apart into tensors and a template that puts them together again."""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ._atoms import ATOMS

_DEEPEST = 8  # objects nested deeper than this are taken as they are
_MOST_OBJECTS = 256  # of a call; further ones are taken as they are
_Made = dict[int, Any]  # objects made in a rebuild, by the id of their node


class _Node:
    """A part of a template that holds tensors somewhere below."""

    __slots__ = ()

    def rebuild(self, tensors: Sequence[torch.Tensor], made: _Made) -> Any:
        raise NotImplementedError

    def parts(self) -> Iterable[Any]:
        return ()


class _Tensor(_Node):
    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def rebuild(self, tensors: Sequence[torch.Tensor], made: _Made) -> Any:
        return tensors[self.index]


class _Sequence(_Node):
    __slots__ = ("items", "make")

    def __init__(self, make: Callable[[list[Any]], Any], items: list[Any]) -> None:
        self.make = make
        self.items = items

    def rebuild(self, tensors: Sequence[torch.Tensor], made: _Made) -> Any:
        return self.make([_rebuild(item, tensors, made) for item in self.items])

    def parts(self) -> Iterable[Any]:
        return self.items


class _Mapping(_Node):
    __slots__ = ("items",)

    def __init__(self, items: dict[Any, Any]) -> None:
        self.items = items

    def rebuild(self, tensors: Sequence[torch.Tensor], made: _Made) -> Any:
        return {key: _rebuild(value, tensors, made) for key, value in self.items.items()}

    def parts(self) -> Iterable[Any]:
        return self.items.values()


class _Object(_Node):
    """An object with attributes (a KV cache, a model's output): made anew on every rebuild, so that
    what the layer does to it stays where it is."""

    __slots__ = ("attributes", "empty", "items")

    def __init__(self, empty: Any, attributes: dict[str, Any], items: Any) -> None:
        self.empty = empty
        self.attributes = attributes
        self.items = items  # of a dict or list subclass

    def rebuild(self, tensors: Sequence[torch.Tensor], made: _Made) -> Any:
        if id(self) in made:
            return made[id(self)]
        one = made[id(self)] = copy.copy(self.empty)  # in `made` first: objects may form circles
        for name, part in self.attributes.items():
            one.__dict__[name] = _rebuild(part, tensors, made)
        if isinstance(self.items, dict):
            for key, value in self.items.items():
                _set_item(one, key, _rebuild(value, tensors, made))
        elif self.items is not None:
            list.extend(one, [_rebuild(value, tensors, made) for value in self.items])
        return one

    def parts(self) -> Iterable[Any]:
        items = self.items.values() if isinstance(self.items, dict) else self.items or ()
        return (*self.attributes.values(), *items)


def _rebuild(part: Any, tensors: Sequence[torch.Tensor], made: _Made) -> Any:
    return part.rebuild(tensors, made) if isinstance(part, _Node) else part


def _add_leaves(part: Any, found: list[Any], seen: set[int]) -> None:
    if not isinstance(part, _Node):
        found.append(part)
    elif id(part) not in seen:
        seen.add(id(part))  # objects may form circles
        for inner in part.parts():
            _add_leaves(inner, found, seen)


def _set_item(made: dict[Any, Any], key: Any, value: Any) -> None:
    # Past a subclass's own __setitem__, but not past what keeps the order.
    kind = OrderedDict if isinstance(made, OrderedDict) else dict
    kind.__setitem__(made, key, value)


def _empty_like(value: Any, items: Any) -> Any:
    """An object of the same class without attributes and items. Raises TypeError where that takes
    more than __new__."""
    kind: Any = type(value)
    if any(getattr(base, "__slots__", ()) for base in kind.__mro__):
        raise TypeError("what is in slots cannot be taken apart")
    return object.__new__(kind) if items is None else kind.__new__(kind)


def _tuple_maker(kind: type) -> Callable[[list[Any]], Any]:
    if hasattr(kind, "_fields"):
        return lambda items: kind(*items)
    return kind


class _Taker:
    """Walks one call's arguments."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.inner: list[torch.Tensor] = []  # in objects; they come last, in reverse
        self.inside = False
        self.words: list[str] = []  # what changes the layer's operators, beside the tensors
        self.objects: dict[int, _Object] = {}  # by id: one that is passed twice is made once

    def take(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, torch.Tensor):
            if self.inside:
                self.inner.append(value)
                return _Tensor(-len(self.inner))
            self.tensors.append(value)
            return _Tensor(len(self.tensors) - 1)
        if isinstance(value, ATOMS):
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
        self.words.append(type(value).__qualname__)
        if callable(value) or not hasattr(value, "__dict__") or len(self.objects) >= _MOST_OBJECTS:
            return value
        known = self.objects.get(id(value))
        if known is not None:
            return known
        items: Any = {} if isinstance(value, dict) else [] if isinstance(value, list) else None
        try:
            node = _Object(_empty_like(value, items), {}, items)
        except TypeError:  # made in a way of its own: what it is now must do
            return value
        self.objects[id(value)] = node
        quiet = _Taker()  # an object's insides are not part of what the call is called
        quiet.inner, quiet.objects, quiet.inside = self.inner, self.objects, True
        for name, part in vars(value).items():
            node.attributes[name] = quiet.take(part, depth + 1)
        if isinstance(value, dict):
            items.update({k: quiet.take(v, depth + 1) for k, v in dict.items(value)})
        elif isinstance(value, list):
            items.extend(quiet.take(v, depth + 1) for v in list.__iter__(value))
        return node


class Template:
    """Arguments without their tensors."""

    __slots__ = ("_args", "_kwargs")

    def __init__(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._args = args
        self._kwargs = kwargs

    def passed_as_they_are(self) -> list[Any]:
        """What is no part of a copy that a rebuild makes."""
        found: list[Any] = []
        seen: set[int] = set()
        for part in (*self._args, *self._kwargs.values()):
            _add_leaves(part, found, seen)
        return found

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        made: _Made = {}
        args = tuple(_rebuild(part, tensors, made) for part in self._args)
        return args, {name: _rebuild(part, tensors, made) for name, part in self._kwargs.items()}


def take_apart(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Template, list[torch.Tensor], int, str]:
    """The template, the tensors in order, how many of them lie in no object (they come first), and
    a word for what else the call depends on."""
    taker = _Taker()
    parts = [taker.take(value) for value in args]
    named = {}
    for name, value in kwargs.items():
        taker.words.append(name)
        named[name] = taker.take(value)
    tensors = taker.tensors + taker.inner[::-1]
    return Template(parts, named), tensors, len(taker.tensors), ",".join(taker.words)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Tensors in nested tuples, lists, dicts and dataclasses; where there is none, in attributes of
    other objects among them."""
    if found := _tensors_in(value, 0, None):
        return found
    try:
        return _tensors_in(value, 0, set())
    except Exception:  # noqa: BLE001  (objects of the user's: a weak proxy of what is gone)
        return []


def _tensors_in(value: Any, depth: int, objects: set[int] | None) -> list[torch.Tensor]:
    """`objects`: those that were looked into; None: none is."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth >= _DEEPEST:
        return []
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors_in(item, depth + 1, objects)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors_in(item, depth + 1, objects)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        return [tensor for item in fields for tensor in _tensors_in(item, depth + 1, objects)]
    inside = getattr(value, "__dict__", None)
    if objects is None or type(inside) is not dict or callable(value) or id(value) in objects:
        return []
    if len(objects) >= _MOST_OBJECTS:
        return []
    objects.add(id(value))
    return [t for item in inside.values() for t in _tensors_in(item, depth + 1, objects)]
