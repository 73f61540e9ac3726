"""What the user's code has put on a layer's modules that chooses what its forward does."""

from __future__ import annotations

import types
from collections.abc import Sequence
from itertools import compress
from operator import is_, itemgetter
from typing import Any, Union

from torch import nn

from ._held import kind_of

OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_OURS = "_call_impl"  # there while a forward runs (Guard)
_LONGEST = 16  # of a list that is looked through at every call
_ATOMS = frozenset((bool, int, float, str, type(None)))
_SIMPLE = _ATOMS | {types.FunctionType, types.BuiltinFunctionType}


class OddModule:
    """Stands for the dictionary of a module that keeps elsewhere what others have there (a scripted
    one)."""

    __slots__ = ("_module",)

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __getitem__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return dict(value.items()) if name in OF_EVERY_MODULE and hasattr(value, "items") else value

    def __len__(self) -> int:
        return len(vars(self._module))

    def keys(self) -> Any:
        return vars(self._module).keys()


Own = Union[dict[str, Any], OddModule]  # what a module has on itself, by name


def _plain(own: Own) -> dict[str, Any]:
    return {
        name: value
        for name in own.keys() - OF_EVERY_MODULE
        if type(value := own[name]) in _SIMPLE
        or (type(value) in (list, tuple) and _is_simple_list(value))
    }


def _is_simple_list(values: Any) -> bool:
    return len(values) <= _LONGEST and all(type(value) in _SIMPLE for value in values)


def _is_settled(value: Any) -> bool:
    """It holds nothing that could be changed, or that it would keep alive."""
    if type(value) is tuple:
        return len(value) <= _LONGEST and all(type(item) in _ATOMS for item in value)
    return type(value) in _ATOMS


class Choices:
    """Of modules at one call: which of them train; and numbers, names, switches and functions that
    the user's code has put on them, and short lists of such. Most calls share the one that another
    found. Keeps alive none but settled values. Any thread."""

    __slots__ = ("_attributes", "_is_settled", "_kinds", "_many", "_others", "_readers", "_settled",
                 "held", "training")

    def __init__(self, owns: Sequence[Own]) -> None:
        names = [sorted(own.keys() - OF_EVERY_MODULE) for own in owns]
        self._many = list(map(len, owns))
        # Each of two names or more, so that it gives a tuple.
        self._readers = [itemgetter("training", "training", *these) for these in names]
        self.training: list[bool] = [own["training"] for own in owns]
        values = self._values(owns)
        self._kinds = list(map(type, values))
        self._is_settled = list(map(_is_settled, values))
        self._settled = list(compress(values, self._is_settled))
        # Modules with others (functions, lists, objects), which are read anew each time.
        self._others = [
            place
            for place, (own, these) in enumerate(zip(owns, names))
            if not all(_is_settled(own[name]) for name in these)
        ]
        # Where and under which names those are that are no plain values.
        self.held = [
            (place, name, kind_of(value))
            for place in self._others
            if isinstance(own := owns[place], dict)
            for name in names[place]
            if type(value := own[name]) not in _SIMPLE
            and not _is_settled(value)
            and name != _OURS
        ]
        self._attributes = [_plain(own) for own in owns]
        for place in self._others:
            self._attributes[place] = {}

    def _values(self, owns: Sequence[Own]) -> list[Any]:
        return [value for read, own in zip(self._readers, owns) for value in read(own)]

    def are_of(self, owns: Sequence[Own]) -> bool:
        """Whether they are these modules' now, but for what is read anew."""
        if list(map(len, owns)) != self._many:
            return False
        try:
            values = self._values(owns)
        except (KeyError, AttributeError):
            return False
        return list(map(type, values)) == self._kinds and all(
            map(is_, compress(values, self._is_settled), self._settled)
        )

    def attributes(self, owns: Sequence[Own]) -> list[dict[str, Any]]:
        """By module, the plain ones as they are now. Not to be written."""
        if not self._others:
            return self._attributes
        found = list(self._attributes)
        for place in self._others:
            found[place] = _plain(owns[place])
        return found
