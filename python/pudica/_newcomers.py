"""Layers that come after attach(): a model that grows, a layer that is put in another's place."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy


def is_odd(layer: nn.Module) -> bool:
    """A layer that cannot be planned, or not yet: compiled, scripted, or without its parameters."""
    if isinstance(layer, torch.jit.ScriptModule) or layer._compiled_call_impl is not None:
        return True
    return any(map(is_lazy, (*layer.parameters(), *layer.buffers())))


class _Parent(NamedTuple):
    module: weakref.ref[nn.Module]
    types: set[type]  # of the layers in it
    children: list[weakref.ref[nn.Module]]  # as they were seen last

    def now(self) -> list[nn.Module]:
        module = self.module()
        return [] if module is None else [m for m in module._modules.values() if m is not None]

    def is_as_it_was(self, now: list[nn.Module]) -> bool:
        known = self.children
        return len(known) == len(now) and all(ref() is m for ref, m in zip(known, now))


class Newcomers:
    """Looks where the layers of a model lie, for others of their types. Holds none of them."""

    def __init__(self, model: nn.Module, layers: list[nn.Module]) -> None:
        chosen = {id(layer) for layer in layers}
        self._parents: list[_Parent] = []
        for module in model.modules():
            types = {type(m) for m in module.children() if id(m) in chosen}
            if not types:
                continue
            parent = _Parent(weakref.ref(module), types, [])
            parent.children.extend(map(weakref.ref, parent.now()))
            self._parents.append(parent)

    def fresh(self) -> list[nn.Module]:
        """Those that were not there the last time."""
        found = []
        for parent in self._parents:
            now = parent.now()
            if parent.is_as_it_was(now):
                continue
            known = {id(m) for ref in parent.children if (m := ref()) is not None}
            found += [m for m in now if id(m) not in known and type(m) in parent.types]
            parent.children[:] = map(weakref.ref, now)
        return found
