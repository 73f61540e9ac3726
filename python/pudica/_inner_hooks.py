"""Forward hooks of the user's on modules inside a layer.

They run once, in the forward, where what they collect may still be under way; but those that
changed what goes through the layer then are part of what it did, and run when it is run again.
So are those that make a weight anew before each forward, of parameters that have its name
(`weight_norm`, `spectral_norm`, `prune`). Whatever else a hook leaves on its module is no part of
it: hooks that only look may count as well, or draw, and must not do so twice. What such a hook
leaves and the forward reads is put there again where it is small; a layer that reads what is large
does not reproduce itself.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from . import _undoing
from ._atoms import VALUES
from ._hooks import is_ours

_KINDS = ("_forward_pre_hooks", "_forward_hooks")
_OF_ALL = ("_global_forward_pre_hooks", "_global_forward_hooks")
_SMALL = 1 << 16  # bytes


def inner_hooks(module: nn.Module) -> list[Any]:
    """The user's forward hooks on one module."""
    return [hook for kind in _KINDS for hook in vars(module)[kind].values() if not is_ours(hook)]


def _function_of(hook: Any) -> Any:
    """Of a method or a partial."""
    return getattr(hook, "__func__", getattr(hook, "func", hook))


def code_of(hook: Any) -> Any:
    """The same for closures that are made anew each time."""
    return getattr(_function_of(hook), "__code__", type(hook))


def name_of(hook: Any) -> str:
    return getattr(_function_of(hook), "__qualname__", type(hook).__qualname__)


ABSENT = object()
WRITTEN = object()


class Left(NamedTuple):
    """What a hook put on its module in a forward."""

    hook: int
    module: nn.Module
    name: str
    is_new: bool  # there was nothing of that name
    value: Any  # ABSENT: too large to be held; WRITTEN: the hook wrote into what was there

    def put(self) -> None:
        """For the layer's run, to be undone. What is not held is as the forward found it."""
        if self.value is WRITTEN:
            return
        attributes = vars(self.module)
        now = attributes.get(self.name, ABSENT)
        _undoing.tell(functools.partial(_set, attributes, self.name, now))
        if self.value is not ABSENT or self.is_new:
            _set(attributes, self.name, self.value)


def _set(attributes: dict[str, Any], name: str, value: Any) -> None:
    if value is ABSENT:
        attributes.pop(name, None)
    else:
        attributes[name] = value


def _small(value: Any) -> Any:
    """Itself, where it holds little memory and no graph."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage().nbytes() if value.layout == torch.strided else _SMALL + 1
        return value if value.grad_fn is None and storage <= _SMALL else ABSENT
    return value if type(value) in VALUES else ABSENT


class _Watched:
    """Stands for a hook while its layer's forward runs."""

    __slots__ = ("changing", "hook", "is_first", "left", "number")

    def __init__(
        self, hook: Any, number: int, changing: set[int], left: list[Left], is_first: bool
    ) -> None:
        self.hook = hook
        self.number = number
        self.changing = changing
        self.left = left
        self.is_first = is_first  # runs before the module's forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = args[0]
        before = _versions(args)
        weights = _made_weights(module) if self.is_first else {}
        found = dict(vars(module))
        versions = _versions_by_name(found)
        result = self.hook(*args, **kwargs)
        for name, value in vars(module).items():
            then = found.get(name, ABSENT)
            if then is not value:
                self.left.append(Left(self.number, module, name, then is ABSENT, _small(value)))
        for name, version in _versions_by_name(found).items():
            if version != versions[name]:
                self.left.append(Left(self.number, module, name, False, WRITTEN))
        changes = result is not None or _versions(args) != before
        if changes or (self.is_first and _are_new(weights, _made_weights(args[0]))):
            self.changing.add(self.number)
        return result


def _made_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that lie on a module in a parameter's place, made of its parameters: `weight`, of
    `weight_g` and `weight_v`."""
    names = module._parameters
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
        and value.grad_fn is not None
        and any(of.startswith(f"{name}_") for of in names)
    }


def _are_new(before: dict[str, torch.Tensor], now: dict[str, torch.Tensor]) -> bool:
    return any(before.get(name) is not weight for name, weight in now.items())


def _versions_by_name(attributes: dict[str, Any]) -> dict[str, int]:
    return {
        name: value._version
        for name, value in attributes.items()
        if isinstance(value, torch.Tensor) and not value.is_inference()
    }


def _versions(values: Iterable[Any]) -> list[int]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            if not value.is_inference():
                found.append(value._version)
        elif isinstance(value, (tuple, list)):
            found += _versions(value)
        elif isinstance(value, dict):
            found += _versions(value.values())
    return found


def watch(modules: list[nn.Module]) -> tuple[set[int], list[Left]]:
    """Those inside a layer (its first module), to be undone. Gives the numbers of the hooks that
    change something, as they do, and what hooks leave on their modules."""
    changing: set[int] = set()
    left: list[Left] = []
    for module in modules[1:]:
        for kind in _KINDS:
            hooks = vars(module)[kind]
            for number, hook in list(hooks.items()):
                if not is_ours(hook):
                    watched = _Watched(hook, number, changing, left, kind == _KINDS[0])
                    _undoing.tell(functools.partial(_unwatch, hooks, number, watched))
                    hooks[number] = watched
    return changing, left


def _unwatch(hooks: Any, number: int, watched: _Watched) -> None:
    if hooks.get(number) is watched:  # else the user has removed it
        hooks[number] = watched.hook


def take_hooks(modules: Iterable[nn.Module], changing: set[int]) -> None:
    """Takes the forward hooks of modules away but for these, to be undone; those on all modules
    there are as well."""
    for kind in _OF_ALL:
        if of_all := getattr(torch_modules, kind):
            _undoing.tell(functools.partial(setattr, torch_modules, kind, of_all))
            setattr(torch_modules, kind, OrderedDict())
    for module in modules:
        attributes = vars(module)
        hooks = {kind: attributes[kind] for kind in _KINDS if attributes.get(kind)}
        if hooks:
            _undoing.tell(functools.partial(attributes.update, hooks))
            for kind, these in hooks.items():
                attributes[kind] = OrderedDict(
                    (number, hook) for number, hook in these.items() if number in changing
                )
