"""Steps that rest: all is kept as it is, and the layers' hooks let their calls pass by."""

from __future__ import annotations

import weakref
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch import nn

_own = attrgetter("__dict__")
_training = itemgetter("training")
_children = itemgetter("_modules")
_parameters = itemgetter("_parameters")
_wants_gradient = attrgetter("requires_grad")


_Form = list[Any]  # of a layer call: sizes and types of the tensors that it is given
_MOST_STEPS = 4096


class Rest:
    """Of one handle: which step rests, and whether its layers are given what they were given in
    the steps that were looked at."""

    def __init__(self, model: nn.Module) -> None:
        self.rests = False  # the forward under way
        self._model = weakref.ref(model)
        self._anatomy: Anatomy | None = None  # of the model, since steps may rest
        self._native: Any = None  # of the step under way
        self._forms: dict[Any, list[_Form]] = {}  # by step: of its layer calls, as seen last
        self._seen: list[_Form] | None = None  # of the step under way; None: nobody asks
        self._passed = 0

    def begin(self, native: Any, may_rest: bool, step: Any) -> None:
        """The native step has begun; it is like all others that `step` equals."""
        self.rests = False
        self._seen = None
        model = self._model()
        if not may_rest or model is None:
            return
        same = self._anatomy is not None and self._anatomy.is_of(model)
        if not same:
            self._anatomy = Anatomy(model)
            self._forms.clear()
        self._native, self._passed = native, 0
        if native.rest(same):
            self._seen = self._forms.get(step)
            if self._seen is not None:
                self.rests = True
                return
            native.wake(0)
        if len(self._forms) >= _MOST_STEPS:
            self._forms.clear()
        self._seen = self._forms[step] = []

    def looks_at(self, args: Any, kwargs: Any) -> None:
        """At a layer call of a step that does not rest."""
        if self._seen is not None:
            self._seen.append(_form(args, kwargs))

    def passes(self, args: Any, kwargs: Any) -> bool:
        """Whether a layer call of a step that rests may be passed by. False: nor may those behind
        it."""
        seen, place = self._seen, self._passed
        if seen is not None and place < len(seen) and seen[place] == _form(args, kwargs):
            self._passed = place + 1
            return True
        self.rests = False
        self._seen = None
        self._native.wake(place)
        return False


def _form(args: Any, kwargs: Any) -> _Form:
    form: _Form = []
    for value in args:
        if isinstance(value, torch.Tensor):
            form += (value.shape, value.dtype)
    for value in kwargs.values():
        if isinstance(value, torch.Tensor):
            form += (value.shape, value.dtype)
    return form


class Anatomy:
    """What changes what a forward needs, and can be told from the model alone: which modules and
    parameters it has, which of them train and want gradients. Keeps none of them alive."""

    __slots__ = ("_modules", "_parts")

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._modules = [weakref.ref(module) for module in modules]
        self._parts = _parts(modules)

    def is_of(self, model: nn.Module) -> bool:
        """Whether the model is still the very same."""
        modules = [module for ref in self._modules if (module := ref()) is not None]
        return (
            len(modules) == len(self._modules)
            and modules[0] is model
            and _parts(modules) == self._parts
        )


def _parts(modules: list[nn.Module]) -> list[Any]:
    # Each step asks for this: its loops are those of the interpreter.
    own = list(map(_own, modules))
    values = [p for p in _values(map(_parameters, own)) if p is not None]
    return [
        *map(id, _values(map(_children, own))),
        *map(_training, own),
        *map(_wants_gradient, values),
    ]


def _values(dictionaries: Any) -> Any:
    return chain.from_iterable(map(dict.values, dictionaries))
