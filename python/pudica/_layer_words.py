"""The class that each layer call is told as. Layers of one class run the same operators, and may
differ all the same in what else they do: one counts in an object, writes a parameter through
`.data`. It is seen as they first run; they are of a class of their own then, tried on its own."""

from __future__ import annotations

import zlib
from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import nn

from . import _rerun
from ._arguments import Template
from ._classes import LayerClasses
from ._found import Found
from ._parts import Parts, Tree, parts_of
from ._reach import Reach
from ._tensor_state import hash_of

_MOST_WORDS = 1 << 14
_LOOKS = 2  # at a layer's first calls; some set up in the first what they change from then on
_LARGE = "a large tensor"
_MOST_BEGUN = 8  # of which some are not followed


class _Usual(NamedTuple):
    """Of a class: what the layer changes that was looked at first. As a rule the class is tried by
    it."""

    layer: int  # its id
    names: set[str]


class _Open(NamedTuple):
    reach: Reach
    large: list[int]  # what its large tensors hold, hashed
    layer: int
    word: str

    def changed(self) -> tuple[set[str], Found | None]:
        """Names; and what it found, None: that is not there any more."""
        names, found = self.reach.changed()
        if [*map(hash_of, self.reach.large_tensors)] != self.large:
            return names | {_LARGE}, None
        return names, found


def _casts_stay() -> bool:
    """Of weights, until the outermost autocast is left: a layer that is called again in a forward
    finds them, and its backward leaves none of what the first call's does."""
    return torch.is_autocast_cache_enabled() and (
        torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    )


class LayerWords:
    """Of the layers of a handle, kept by their ids. Holds no layer but while a look is open."""

    def __init__(self, layers: list[nn.Module]) -> None:
        self._classes = LayerClasses(layers)
        # By layer and signature, the id of each one's class as it was first.
        self._words: dict[Hashable, str] = {}
        self._looks: dict[int, int] = {}  # how many were, and how many were begun
        self._begun: dict[int, int] = {}
        self._usual: dict[str, _Usual] = {}
        self._unlike: dict[int, set[str]] = {}  # by layer, what its class does not change
        self._open: dict[int, _Open] = {}  # by token
        self._passed: set[int] = set()  # in this forward
        self.trees: dict[int, Tree] = {}
        for layer in layers:
            self._word(layer, parts_of(layer, self.trees))

    def known(self) -> set[str]:
        return set(self._words.values())

    def of(self, layer: nn.Module, parts: Parts) -> str:
        word = self._word(layer, parts)
        if unlike := self._unlike.get(id(layer)):
            word += f"~{zlib.crc32('|'.join(sorted(unlike)).encode()):08x}"
        if id(layer) in self._passed:
            return word + "+" if _casts_stay() else word
        self._passed.add(id(layer))
        return word

    def passed_by(self, layer: nn.Module) -> None:
        """It was called, and not asked for its class."""
        self._passed.add(id(layer))

    def forward_begins(self) -> None:
        self._passed.clear()

    def begins(
        self, token: int, layer: nn.Module, template: Template, parts: Parts, *, is_inner: bool
    ) -> None:
        """Before anything of the call is metered. `is_inner`: in another's, which is open."""
        if not is_inner:
            self._open.clear()  # what was broken off
        times = self._looks.get(id(layer), 0)
        if times >= _LOOKS or self._begun.get(id(layer), 0) >= _MOST_BEGUN:
            return
        self._begun[id(layer)] = self._begun.get(id(layer), 0) + 1
        reach = Reach(parts.modules, template.passed_as_they_are(), parts.parameters)
        large = [*map(hash_of, reach.large_tensors)]
        self._open[token] = _Open(reach, large, id(layer), self._word(layer, parts))

    def ends(self, token: int) -> None:
        """After all else of it; a trial has put back what it changed."""
        if (one := self._open.pop(token, None)) is None:
            return
        self._looks[one.layer] = self._looks.get(one.layer, 0) + 1
        changed, found = one.changed()
        usual = self._usual.setdefault(one.word, _Usual(one.layer, set()))
        if usual.layer == one.layer:
            usual.names.update(changed)
        elif unlike := changed - usual.names:
            self._unlike.setdefault(one.layer, set()).update(unlike)
            _rerun.finds_again(token, found)

    def lets_go(self, token: int) -> None:
        """Of a call that is not followed."""
        self._open.pop(token, None)

    def _word(self, layer: nn.Module, parts: Parts) -> str:
        key = parts.signature
        if (known := self._words.get(key)) is not None:
            return known
        if len(self._words) >= _MOST_WORDS:
            self._words.clear()
        word = self._words[key] = self._classes.id_of(layer)
        return word
