"""What a layer may use that running it again does not find as it was: generators that are not
torch's, and state that it keeps on itself."""

from __future__ import annotations

import copy
import functools
import operator
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from . import _numpy_random, _undoing
from ._attributes import OF_EVERY_MODULE
from ._held import CONTAINERS, has_changed, refill
from ._parts import Owned

_PLAIN = (bool, int, float, str, type(None), torch.Tensor, *CONTAINERS)
_NEVER_PLAIN = frozenset((types.FunctionType, property, staticmethod, classmethod))  # most are
_NOT_THE_USERS = ("torch", "builtins")


class GeneratorStates:
    """numpy's, and those of the generators that are nobody's default."""

    def __init__(self, generators: Iterable[torch.Generator]) -> None:
        own = {id(generator): generator for generator in generators if not _is_default(generator)}
        self._own = [(generator, generator.get_state()) for generator in own.values()]
        self._numpy = _numpy_random.state()

    def restore(self) -> tuple[str, bool]:
        """Puts them back; which of `values` was drawn from in between, empty: none; and whether
        numpy's was."""
        drawn = ""
        for generator, state in self._own:
            if not torch.equal(generator.get_state(), state):
                generator.set_state(state)
                drawn = "a torch.Generator of its own"
        return drawn, _numpy_random.restore(self._numpy)


def _is_default(generator: torch.Generator) -> bool:
    cuda = torch.cuda.default_generators if generator.device.type == "cuda" else ()
    return any(generator is one for one in (torch.default_generator, *cuda))


class Kept:
    """What modules and those of their classes that are not torch's keep on themselves: of modules
    all that attributes and buffers name, of classes plain values and tensors; of lists, dicts and
    sets what is in them. `copies`: also the values of tensors that are no buffers."""

    def __init__(self, modules: Iterable[nn.Module], *, copies: bool) -> None:
        modules = list(modules)
        self._of_modules = [
            (attributes := vars(m), _kept_in(attributes, attributes.keys() - OF_EVERY_MODULE))
            for m in modules
        ]
        self._buffers = [(m._buffers, dict(m._buffers)) for m in modules if m._buffers]
        self._of_classes = [
            (kind, _kept_in(vars(kind), _plain_names(vars(kind))))
            for kind in _users_classes(modules)
        ]
        tensors = [
            (name, value)
            for _, values in [*self._of_modules, *self._of_classes]
            for name, value in values.items()
            if issubclass(type(value), torch.Tensor)
        ]
        self._tensors = [
            (name, tensor, tensor._version, tensor.detach().clone() if copies else None)
            for name, tensor in tensors
            if not tensor.is_inference()
        ]

    def generators(self) -> list[torch.Generator]:
        """Among what is kept."""
        return [
            value
            for _, values in [*self._of_modules, *self._of_classes]
            for value in values.values()
            if issubclass(type(value), torch.Generator)
        ]

    def restore(self) -> tuple[str, bool]:
        """What of it changed since; containers stay the same objects. Gives the name of a tensor
        that was written in place, empty: none; and whether anything else had changed."""
        changed = False
        for attributes, values in [*self._of_modules, *self._buffers]:
            changed |= _put_back(attributes, values, attributes.__setitem__)
        for kind, values in self._of_classes:
            put = functools.partial(type.__setattr__, kind)
            changed |= _put_back(vars(kind), values, put)
        written = ""
        for name, tensor, version, before in self._tensors:
            if tensor._version != version:
                written = name
                if before is not None:
                    tensor.data.copy_(before)  # .data: backwards count the versions they see
        return written, changed


def _plain_names(attributes: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in attributes.items()
        if type(value) not in _NEVER_PLAIN
        and issubclass(type(value), _PLAIN)
        and not name.startswith("__")
    ]


def _users_classes(modules: Iterable[nn.Module]) -> list[type]:
    """The classes of modules and their bases, but for torch's."""
    kinds = {base for kind in set(map(type, modules)) for base in kind.__mro__}
    return [kind for kind in kinds if kind.__module__.partition(".")[0] not in _NOT_THE_USERS]


def _kept_in(attributes: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {
        name: copy.copy(value) if type(value := attributes[name]) in CONTAINERS else value
        for name in names
    }


def _put_back(
    now: Mapping[str, Any], then: dict[str, Any], put: Callable[[str, Any], None]
) -> bool:
    """Whether anything had changed; containers are refilled."""
    changed = False
    for key, value in then.items():
        present = now.get(key)
        if type(value) not in CONTAINERS:
            if present is not value:
                put(key, value)
                changed = True
        elif type(present) is type(value) and has_changed(present, value):
            refill(present, value)
            changed = True
    return changed


def set_training(modules: Iterable[nn.Module], training: Iterable[bool]) -> None:
    """Sets the modules' mode, to be undone."""
    for module, wanted in zip(modules, training, strict=True):
        if module.training is not wanted:
            _undoing.tell(functools.partial(setattr, module, "training", module.training))
            module.training = wanted


def set_wanted_gradients(parameters: Sequence[torch.Tensor], wanted: Sequence[bool]) -> None:
    """Sets which of them want a gradient, to be undone."""
    for parameter, wants in zip(parameters, wanted, strict=True):
        if parameter.requires_grad is not wants:
            _undoing.tell(functools.partial(parameter.requires_grad_, not wants))
            parameter.requires_grad_(wants)


def set_parameters(modules: Iterable[nn.Module], owned: Owned) -> None:
    """Gives each module these parameters of its own, to be undone. Raises RuntimeError where one
    has been freed."""
    modules = list(modules)
    if owned.are_of(modules):
        return
    for module, wanted in zip(modules, owned.by_module(), strict=True):
        attributes = vars(module)
        now = attributes["_parameters"].values()
        if len(now) == len(wanted) and all(map(operator.is_, now, wanted.values())):
            continue
        for name, parameter in wanted.items():
            if parameter is not None and _is_freed(parameter):
                raise RuntimeError(f"its parameter {name} was freed after its forward")
        _undoing.tell(functools.partial(attributes.update, _parameters=attributes["_parameters"]))
        attributes["_parameters"] = wanted


def _is_freed(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0
