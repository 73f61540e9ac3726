"""Checkpointing of the user's, switched off while pudica is attached: stacked it saves nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

# Hugging Face's, on layers and on what runs them: the switch, and what runs a layer where it is on.
_SWITCH, _RUNNER = "gradient_checkpointing", "_gradient_checkpointing_func"

_Runner = Callable[..., Any]


def run_once(function: _Runner, *args: Any, **kwargs: Any) -> Any:
    """In the runner's place: calls the layer. Models go on as with checkpointing in all else; most
    make no cache of keys and values then, which may hold as much as a layer's input."""
    return function(*args, **kwargs)


class Takeover:
    """Of layers and of the modules that they lie in."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules = [weakref.ref(module) for module in modules if hasattr(module, _SWITCH)]
        # With the runner that it had; None: it has none, and its switch was turned.
        self._taken: list[tuple[weakref.ref[nn.Module], _Runner | None]] = []

    def take(self) -> bool:
        """Switches off what is on; True where that was anything."""
        found = False
        for ref in self._modules:
            module = ref()
            if module is None or getattr(module, _SWITCH) is not True:
                continue
            runner: _Runner | None = module.__dict__.get(_RUNNER)
            if runner is run_once:
                continue
            self._taken.append((ref, runner))
            if runner is None:
                setattr(module, _SWITCH, False)
            else:
                setattr(module, _RUNNER, run_once)
            found = True
        return found

    def give_back(self) -> None:
        for ref, runner in reversed(self._taken):
            module = ref()
            if module is None:
                continue
            if runner is None:
                setattr(module, _SWITCH, True)
            elif module.__dict__.get(_RUNNER) is run_once:
                setattr(module, _RUNNER, runner)
        self._taken.clear()
