"""A layer as it is at one call: its modules, parameters and buffers, which may have changed since
attach() (an adapter put in, half a model frozen, buffers that a cast or the layer itself replaced).
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import is_

import torch
from torch import nn

from ._inner_hooks import code_of, inner_hooks


_NONE: dict[str, nn.Parameter | None] = {}  # of modules without parameters; nobody writes it


def has_those(module: nn.Module, parameters: dict[str, nn.Parameter | None]) -> bool:
    """Whether the module's own parameters are these very ones, in this order."""
    now = module._parameters
    return len(now) == len(parameters) and all(map(is_, now.values(), parameters.values()))


class Parts:
    """Of one layer; in the order of modules()."""

    __slots__ = ("buffers", "hooks", "lent", "modules", "own_parameters", "parameters")

    def __init__(self, layer: nn.Module) -> None:
        self.modules: list[nn.Module] = []
        self.own_parameters: list[dict[str, nn.Parameter | None]] = []  # by module
        self.parameters: list[nn.Parameter] = []
        self.buffers: list[torch.Tensor] = []
        # Tensors stand where parameters do, for this call alone (torch.func.functional_call).
        self.lent = False
        # The code of the user's forward hooks on modules inside it.
        self.hooks: list[int] = []
        self._walk(layer, set())

    # Not modules(), parameters() and buffers(): they take ten times as long, and this is each call.
    def _walk(self, module: nn.Module, seen: set[int]) -> None:
        seen.add(id(module))
        self.modules.append(module)
        if own := module._parameters:
            self.own_parameters.append(dict(own))
            for p in own.values():
                if p is None:
                    continue
                if type(p) is not nn.Parameter and not isinstance(p, nn.Parameter):
                    self.lent = True
                if not p.is_inference():
                    self.parameters.append(p)
        else:
            self.own_parameters.append(_NONE)
        if module._buffers:
            self.buffers += [b for b in module._buffers.values() if b is not None]
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                if child._forward_hooks or child._forward_pre_hooks:
                    self.hooks += [id(code_of(hook)) for hook in inner_hooks(child)]
                self._walk(child, seen)

    def signature(self) -> Hashable:
        """Equal as long as the layer's operators are of one kind."""
        training = self.modules[0].training
        return (
            *map(id, self.modules),
            *[module.training is training for module in self.modules],
            *[parameter.requires_grad for parameter in self.parameters],
            *self.hooks,
        )
