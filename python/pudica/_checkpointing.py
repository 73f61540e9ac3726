"""Checkpointing of the user's: switched off while pudica is attached, since stacked it saves
nothing, and told from forwards that are steps."""

from __future__ import annotations

import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

# Hugging Face's, on layers and on what runs them: the switch, and what runs a layer where it is on.
_SWITCH, _RUNNER = "gradient_checkpointing", "_gradient_checkpointing_func"
_OF_CHECKPOINT = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug",
                  "early_stop")

_CHECKPOINT = "torch.utils.checkpoint"
_OF_FUNCTIONS = torch.autograd.function.BackwardCFunction.apply.__code__  # of their backwards

_Runner = Callable[..., Any]


class RunOnce:
    """In a runner's place: calls the layer. Models go on as with checkpointing in all else; most
    make no cache of keys and values then, which may hold as much as a layer's input.

    A copy of the model, or a pickle, has the runner itself."""

    def __init__(self, runner: _Runner) -> None:
        self.runner = runner

    def __call__(self, function: _Runner, *args: Any, **kwargs: Any) -> Any:
        for name in _OF_CHECKPOINT:
            kwargs.pop(name, None)
        return function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.itemgetter(0), ((self.runner,),)


def _is_framework(module: str) -> bool:
    hugging_face = module.startswith("transformers.")
    return module.startswith("torch.") or (
        hugging_face and not module.startswith("transformers.models."))


def _methods(kind: type) -> Iterator[types.CodeType]:
    """The code of a class's own methods, and of what decorators wrapped."""
    members: dict[str, Any] = {}
    for of in reversed(kind.__mro__):
        members.update({} if _is_framework(of.__module__) else vars(of))
    for member in members.values():
        while member is not None:
            if isinstance(member, types.FunctionType):
                yield member.__code__
            member = getattr(member, "__wrapped__", None)


_known: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def _checkpoints_itself(kind: type) -> bool:
    """Its switch is on for code of its own that calls checkpoint(), whatever the runner is."""
    if kind not in _known:
        names = [set(code.co_names) for code in _methods(kind)]
        _known[kind] = any("checkpoint" in seen and _RUNNER not in seen for seen in names)
    return _known[kind]


class Takeover:
    """Of layers and of the modules that they lie in."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules = [weakref.ref(module) for module in modules if hasattr(module, _SWITCH)]
        # With what took its runner's place; None: its switch was turned.
        self._taken: list[tuple[weakref.ref[nn.Module], RunOnce | None]] = []

    def take(self) -> bool:
        """Switches off what is on; True where that was anything."""
        found = False
        for ref in self._modules:
            module = ref()
            if module is None or getattr(module, _SWITCH) is not True:
                continue
            runner = module.__dict__.get(_RUNNER)
            if isinstance(runner, RunOnce):
                continue
            if runner is None or _checkpoints_itself(type(module)):
                setattr(module, _SWITCH, False)
                self._taken.append((ref, None))
            else:
                once = RunOnce(runner)
                setattr(module, _RUNNER, once)
                self._taken.append((ref, once))
            found = True
        return found

    def give_back(self) -> None:
        for ref, once in reversed(self._taken):
            module = ref()
            if module is None:
                continue
            if once is None:
                setattr(module, _SWITCH, True)
                continue
            current: object = module.__dict__.get(_RUNNER)
            if current is once:  # and none that was set since
                setattr(module, _RUNNER, once.runner)
        self._taken.clear()


def runs_again() -> bool:
    """Of a forward within a backward: a checkpoint or another autograd.Function of the user's does
    it. A hook on a gradient may run forwards of its own (GradCache), which are steps."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _OF_FUNCTIONS or frame.f_globals.get("__name__") == _CHECKPOINT:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def in_checkpoint() -> bool:
    # A checkpoint of the user's around layers counts the tensors that are saved in it.
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return hooks is not None and getattr(hooks[0], "__module__", "") == _CHECKPOINT
