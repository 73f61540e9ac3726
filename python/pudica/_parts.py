"""A layer as it is at one call: its modules, parameters and buffers, which may have changed since
attach() (an adapter put in, half a model frozen, buffers that a cast or the layer itself replaced).

All of it is read at each call, where the host may be what a step waits for: the loops are those of
the interpreter, and what most calls find alike is made once.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, filterfalse, islice
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad

from ._attributes import Choices, OddModule, Own
from ._held import Held, HeldKind, hold
from ._inner_hooks import code_of, inner_hooks

_own = attrgetter("__dict__")
_of_each = itemgetter("_parameters", "_modules", "_buffers", "_forward_hooks", "_forward_pre_hooks")
_ALWAYS_THERE = ("_parameters", "_modules", "_buffers", "training")
_parameters = itemgetter("_parameters")
_wants_gradient = attrgetter("requires_grad")
_is_inference = torch.Tensor.is_inference
_innermost_transform = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)
_MOST_TREES = 1 << 12
_USUAL = frozenset((nn.Parameter, type(None)))


# In one order, also of an OrderedDict (modules that were pickled long ago), which may have its own.
def _all_names(dictionaries: Iterable[dict[str, Any]]) -> list[str]:
    return [*chain.from_iterable(map(dict.keys, filter(None, dictionaries)))]


def _all_values(dictionaries: Iterable[dict[str, Any]]) -> list[Any]:
    return [*chain.from_iterable(map(dict.values, filter(None, dictionaries)))]


def _ids_of(children: Sequence[dict[str, Any]]) -> tuple[list[int], list[int]]:
    return [*map(len, children)], [*map(id, _all_values(children))]


def _is_odd(module: nn.Module) -> bool:
    own = vars(module)
    return any(name not in own for name in _ALWAYS_THERE) or any(
        type(own[name]) is not dict for name in ("_parameters", "_modules", "_buffers")
    )


def _owns(modules: Sequence[nn.Module], odd: Sequence[int]) -> list[Own]:
    owns: list[Own] = [*map(_own, modules)]
    for place in odd:
        owns[place] = OddModule(modules[place])
    return owns


class Names:
    """Of the parameters that each of some modules has of its own."""

    __slots__ = ("_names", "counts")

    def __init__(self, dictionaries: Sequence[dict[str, Any]]) -> None:
        self.counts = [*map(len, dictionaries)]
        self._names = _all_names(dictionaries)

    def are_of(self, dictionaries: Sequence[dict[str, Any]]) -> bool:
        return (
            [*map(len, dictionaries)] == self.counts
            and _all_names(dictionaries) == self._names
        )

    def by_module(self, values: Iterable[Any]) -> list[dict[str, Any]]:
        pairs = zip(self._names, values)
        return [dict(islice(pairs, count)) for count in self.counts]


class Owned:
    """The parameters that each of some modules has of its own."""

    __slots__ = ("_names", "_odd", "_values")

    def __init__(
        self, names: Names, dictionaries: Sequence[dict[str, Any]], odd: Sequence[int]
    ) -> None:
        self._names = names
        self._odd = odd
        self._values: list[nn.Parameter | None] = _all_values(dictionaries)

    def are_of(self, modules: Sequence[nn.Module]) -> bool:
        """Whether the modules have these very ones, in this order."""
        now = [*map(_parameters, _owns(modules, self._odd))]
        return [*map(len, now)] == self._names.counts and all(
            map(is_, _all_values(now), self._values)
        )

    def by_module(self) -> list[dict[str, nn.Parameter | None]]:
        return self._names.by_module(self._values)

    def present(self) -> list[nn.Parameter]:
        return [parameter for parameter in self._values if parameter is not None]


class Tree:
    """The modules of a layer, in the order of modules(), until one is put in or taken out; and what
    was found of them last. Keeps none of them alive. Any thread."""

    __slots__ = ("_children", "_ids", "_modules", "_odd", "_signature", "choices", "names")

    def __init__(self, layer: nn.Module) -> None:
        modules = list(layer.modules())
        self._modules = [weakref.ref(module) for module in modules]
        self._ids = tuple(map(id, modules))
        self._odd = [place for place, module in enumerate(modules) if _is_odd(module)]
        owns = _owns(modules, self._odd)
        self._children = _ids_of([own["_modules"] for own in owns])
        self.choices = Choices(owns)
        self.names = Names([own["_parameters"] for own in owns])
        self._signature: tuple[Any, ...] = (None, None, None)

    def parts(self) -> Parts | None:
        """None: the layer has other modules by now."""
        modules = [module for ref in self._modules if (module := ref()) is not None]
        if len(modules) != len(self._modules):
            return None
        owns = _owns(modules, self._odd)
        parameters, children, buffers, hooks, pre_hooks = zip(*map(_of_each, owns))
        if _ids_of(children) != self._children:
            return None
        choices = self.choices
        if not choices.are_of(owns):
            choices = self.choices = Choices(owns)
        names = self.names
        if not names.are_of(parameters):
            names = self.names = Names(parameters)
        parts = Parts(modules, Owned(names, parameters, self._odd), buffers)
        parts.training = choices.training
        parts.attributes = choices.attributes(owns)
        parts.put_there = choices.held
        if any(hooks[1:]) or any(pre_hooks[1:]):
            parts.hooks = [id(code_of(hook)) for part in modules[1:] for hook in inner_hooks(part)]
        parts.signature = self._sign(choices, parts)
        return parts

    def _sign(self, choices: Choices, parts: Parts) -> Hashable:
        wants = parts.wants = tuple(map(_wants_gradient, parts.parameters))
        signed_choices, signed_wants, signature = self._signature
        if signed_choices is not choices or signed_wants != wants:
            first = choices.training[0]
            signature = self._ids, tuple(one is first for one in choices.training), wants
            self._signature = choices, wants, signature
        return (signature, *parts.hooks) if parts.hooks else signature


def _transform() -> str:
    """Under which tensors carry what a run in the backward would not have."""
    if getattr(forward_ad, "_current_level", -1) >= 0:
        return "under forward-mode differentiation (torch.autograd.forward_ad)"
    if _innermost_transform() is not None:
        return "inside a transform of torch.func"
    return ""


class Parts:
    """Of one layer; in the order of modules()."""

    __slots__ = (
        "attributes", "buffers", "hooks", "modules", "owned", "parameters", "put_there",
        "signature", "strange", "training", "wants",
    )

    training: list[bool]  # by module
    attributes: list[dict[str, Any]]  # by module, the plain ones; not to be written
    put_there: list[tuple[int, str, HeldKind]]  # by module and name the others
    wants: tuple[bool, ...]  # by parameter, a gradient
    # Equal as long as the layer's operators are of one kind.
    signature: Hashable

    def __init__(
        self, modules: list[nn.Module], owned: Owned, buffers: Iterable[dict[str, Any]]
    ) -> None:
        self.modules = modules
        self.owned = owned
        present = owned.present()
        # How the call is none that another one like it repeats: of what it is called with; empty:
        # it is an ordinary one.
        self.strange = _transform()
        if not _USUAL.issuperset(map(type, present)) and not all(
            isinstance(parameter, nn.Parameter) for parameter in present
        ):
            self.strange = "with tensors in place of its parameters (torch.func.functional_call)"
        self.parameters = list(filterfalse(_is_inference, present))
        self.buffers: list[torch.Tensor] = [b for b in _all_values(buffers) if b is not None]
        # The code of the user's forward hooks on modules inside it.
        self.hooks: list[int] = []

    def hold(self) -> list[Held]:
        """What the forward that begins finds there beside the plain ones."""
        return [hold(kind, vars(self.modules[at]), name) for at, name, kind in self.put_there]


def parts_of(layer: nn.Module, trees: dict[int, Tree]) -> Parts:
    """`trees`: of layers by their id, kept from call to call."""
    tree = trees.get(id(layer))
    parts = tree.parts() if tree is not None else None
    if parts is None or parts.modules[0] is not layer:
        if len(trees) >= _MOST_TREES:  # of copies that are gone
            trees.clear()
        tree = trees[id(layer)] = Tree(layer)
        parts = tree.parts()
        assert parts is not None
    return parts
