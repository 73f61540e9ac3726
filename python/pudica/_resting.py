"""Steps that rest: all is kept as it is, and the layers' hooks let their calls pass by."""

from __future__ import annotations

import itertools
import threading
import weakref
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch import nn

from ._arguments import tensors_in

_MOST_STEPS = 4096
_DEEPEST = 6  # what is nested deeper is not looked into
_LONGEST = 512  # nor what comes behind so many words of one call

_unlike = itertools.count(1 << 64)

_own = attrgetter("__dict__")
_training = itemgetter("training")
_children = itemgetter("_modules")
_parameters = itemgetter("_parameters")
_hooks = itemgetter("_forward_hooks")
_pre_hooks = itemgetter("_forward_pre_hooks")
_wants_gradient = attrgetter("requires_grad")


class Rest:
    """Of one handle: which step rests, and whether its layers are those, and are given what they
    were given, of the steps that were looked at."""

    def __init__(self, model: nn.Module) -> None:
        self.rests = False  # the forward under way
        self._model: weakref.ref[nn.Module] | None = weakref.ref(model)
        self._anatomy: Anatomy | None = None  # of the model, since steps may rest
        self._native: Any = None  # of the step under way
        # By step: the forms of its layer calls as seen last, and in the lowest bit whether they
        # were entered.
        self._forms: dict[Any, list[int]] = {}
        self._seen: list[int] | None = None  # of the step under way; None: nobody asks
        self._place = 0  # in it
        self._passed = 0  # that would have been entered
        self.watched = False  # how far the backward of the step under way is
        self._thread = 0
        self._gives = False  # the model, an output

    def begin(self, native: Any, may_rest: bool, step: Any) -> None:
        """The native step has begun; it is like all others that `step` equals."""
        self.rests = False
        self._seen = None
        model = self._model() if self._model is not None else None
        if not may_rest or model is None:
            return
        same = self._anatomy is not None and self._anatomy.is_of(model)
        if not same:
            self._anatomy = Anatomy(model)
            self._forms.clear()
        self._native, self._place, self._passed, self.watched = native, 0, 0, False
        self._thread = threading.get_ident()
        if native.rest(same):
            self._seen = self._forms.get(step)
            if self._seen is not None:
                self.rests = True
                return
            native.wake(0)
        if len(self._forms) >= _MOST_STEPS:
            del self._forms[next(iter(self._forms))]
        self._seen = self._forms[step] = []

    def give_up(self) -> None:
        """No step rests any more."""
        self.rests = False
        self._model = self._seen = None

    def end(self, output: Any) -> bool:
        """The forward is over; whether it rested to the end. With an exception torch gives no
        output: of a model that never gave one, what has been through all layers did not throw."""
        self._gives = self._gives or output is not None
        if not self.rests:
            return False
        self.rests = False
        whole = self._seen is not None and self._place == len(self._seen)
        if output is not None or (whole and not self._gives):
            self._native.rested(self._passed, tensors_in(output))
        return True

    def passed(self, output: Any) -> None:
        """A layer call that was passed by has given this. Of the first through which a gradient
        may flow the native step is told: as far as there the step's backward goes."""
        if threading.get_ident() != self._thread:
            return
        outputs = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
        if outputs:
            self.watched = True
            self._native.rested(-1, outputs)

    def looks_at(self, module: nn.Module, args: Any, kwargs: Any, *, entered: bool) -> None:
        """At a layer call that was not passed by."""
        if self._seen is not None and not self.rests and threading.get_ident() == self._thread:
            self._seen.append(_form(module, args, kwargs) << 1 | entered)

    def passes(self, module: nn.Module, args: Any, kwargs: Any) -> bool:
        """Whether a layer call of a step that rests may be passed by. False: nor may those behind
        it, on its thread."""
        if threading.get_ident() != self._thread:
            return False
        seen, place = self._seen, self._place
        if seen is not None and place < len(seen):
            known = seen[place]
            if known >> 1 == _form(module, args, kwargs):
                entered = known & 1
                if not entered or self._native.passes(self._passed):
                    self._place = place + 1
                    self._passed += entered
                    return True
        self.rests = False
        self._seen = None
        self._native.wake(self._passed)
        return False


def _form(module: nn.Module, args: Any, kwargs: Any) -> int:
    """Of what tells one layer call from another: equal ones have equal forms."""
    # What is called in a checkpoint of the user's saves nothing itself.
    form = [id(module), torch._C._autograd._top_saved_tensors_default_hooks(False) is None]
    try:
        for value in args:
            _add(form, value, 0)
        for name, value in kwargs.items():
            form.append(name)
            _add(form, value, 0)
        return hash(tuple(form))
    except Exception:  # noqa: BLE001  (an object that cannot be looked at is like no other)
        return next(_unlike)


def _add(form: list[Any], value: Any, depth: int) -> None:
    if isinstance(value, torch.Tensor):
        if value.is_nested or value.layout is not torch.strided:
            form += value.dtype, value.requires_grad
        else:
            form += value.shape, value.dtype, value.requires_grad, value.is_contiguous()
    elif value is None or isinstance(value, (bool, str)):
        form.append(value)
    elif depth >= _DEEPEST or len(form) > _LONGEST:
        form.append(type(value))
    elif isinstance(value, (list, tuple)):
        form.append(len(value))
        for item in value:
            _add(form, item, depth + 1)
    elif isinstance(value, dict):
        form.append(len(value))
        for item in value.values():
            _add(form, item, depth + 1)
    else:
        form.append(type(value))
        if not callable(value):
            for item in getattr(value, "__dict__", {}).values():
                _add(form, item, depth + 1)


class Anatomy:
    """What changes what a forward needs, and can be told from the model alone: which modules,
    parameters and hooks it has, which of them train and want gradients. Keeps none of them
    alive."""

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
    # Each step asks for this: the loops are those of the interpreter.
    own = list(map(_own, modules))
    try:
        values = [p for p in _values(map(_parameters, own)) if p is not None]
        return [
            *map(id, _values(map(_children, own))),
            *map(_training, own),
            *map(_wants_gradient, values),
            sum(map(len, map(_hooks, own))),
            sum(map(len, map(_pre_hooks, own))),
        ]
    except (KeyError, TypeError):  # modules of other kinds (scripted, compiled) keep it elsewhere
        return [
            *(id(child) for module in modules for child in module.children()),
            *(module.training for module in modules),
            *(p.requires_grad for module in modules for p in module.parameters(recurse=False)),
        ]


def _values(dictionaries: Any) -> Any:
    return itertools.chain.from_iterable(map(dict.values, dictionaries))
