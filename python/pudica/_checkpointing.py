"""Checkpointing of the user's, switched off while pudica is attached: stacked it saves nothing."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from torch import nn

_SWITCH = "gradient_checkpointing"  # Hugging Face's, on layers and on what runs them


class Takeover:
    """Of layers and of the modules that they lie in."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules = [weakref.ref(module) for module in modules if hasattr(module, _SWITCH)]
        self._taken: list[weakref.ref[nn.Module]] = []

    def take(self) -> bool:
        """Switches off what is on; True where that was anything."""
        found = False
        for ref in self._modules:
            module = ref()
            if module is not None and getattr(module, _SWITCH) is True:
                setattr(module, _SWITCH, False)
                self._taken.append(ref)
                found = True
        return found

    def give_back(self) -> None:
        for ref in self._taken:
            if (module := ref()) is not None:
                setattr(module, _SWITCH, True)
        self._taken.clear()
