"""The hooks on a model's modules. They hold the handle; the modules themselves stay unchanged but
for the length of a forward (Guard).

Each is an object of its own class rather than a bound method, so that a copy or a pickle of the
model carries hooks that do nothing, and needs no pudica to be loaded. While torch.compile traces
them they leave a word for the handle and do nothing else.
"""

from __future__ import annotations

import contextlib
import copy
import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from ._handle import Handle

_INERT = (getattr, (contextlib.nullcontext(), "__exit__"))  # takes anything, gives None


class _Hook:
    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _INERT[0](*_INERT[1])

    def __reduce__(self) -> Any:
        return _INERT


def is_ours(hook: Any) -> bool:
    return isinstance(hook, _Hook)


def take_copied_hooks(module: torch.nn.Module) -> None:
    """Those that a copy of a module with hooks carries and that do nothing."""
    inert = contextlib.nullcontext.__exit__
    for kind, hooks in vars(module).items():
        if kind not in ("_forward_hooks", "_forward_pre_hooks"):
            continue
        for number in [n for n, hook in hooks.items() if getattr(hook, "__func__", None) is inert]:
            for of_kind, its in vars(module).items():
                if of_kind.startswith(kind):  # with keywords, always called
                    its.pop(number, None)


class ForwardBegin(_Hook):
    """Before the forward of a module that the layers lie in."""

    def __call__(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self.handle._forward_begins(module, args, kwargs)


class ForwardEnd(_Hook):
    """After it, also where it threw."""

    def __call__(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            self.handle._forward_ends(module, output)
        elif torch.is_grad_enabled():
            self.handle._compiled = type(module).__name__  # over what its layers left


class LayerBegin(_Hook):
    """The last of a layer's forward pre-hooks: sees the arguments that the forward sees."""

    def __call__(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        handle = self.handle
        if not torch.is_grad_enabled():
            return
        if torch.compiler.is_compiling():
            handle._compiled = type(module).__name__
            return
        if handle._opener is None:
            handle._say_alone(type(module).__name__)
            return
        handle._came_to_a_layer = True
        if handle._late is not None:
            handle._comes_to_a_layer()
        if handle._rest.rests and handle._rest.passes(module, args, kwargs):
            handle._words.passed_by(module)
            return
        hooks = module._forward_pre_hooks
        if next(reversed(hooks.values())) is not self:
            _move(hooks, self, last=True)  # added in this very forward: right from the next
            return
        handle._layer_begins(module, args, kwargs)


class LayerEnd(_Hook):
    """The first of a layer's forward hooks: sees the output that the forward gave."""

    def __call__(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        rest = self.handle._rest
        if rest.rests:
            if not rest.watched:
                self.handle._at_rest(rest.passed, output)
            return
        hooks = module._forward_hooks
        if next(iter(hooks.values())) is not self:
            _move(hooks, self, last=False)
            self.handle._layer_ends(module, None)
        else:
            self.handle._layer_ends(module, output)


class Guard:
    """Stands for a layer's `_call_impl` while a forward is under way: torch tells no hook of an
    exception that is none of Exception's (Ctrl-C), and a layer that it leaves is still open."""

    def __init__(self, handle: Handle, module: torch.nn.Module) -> None:
        self._handle = weakref.ref(handle)  # no circle: a handle goes with its last user
        self._module = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module: Any = self._module()
        try:
            return type(module)._call_impl(module, *args, **kwargs)
        except Exception:
            raise
        except BaseException:
            if (handle := self._handle()) is not None:
                handle._layer_broken_off()
            raise

    def put(self) -> None:
        module = self._module()
        if module is not None:
            vars(module).setdefault("_call_impl", self)

    def take(self) -> None:
        module = self._module()
        if module is not None and vars(module).get("_call_impl") is self:
            del vars(module)["_call_impl"]

    # In copies and pickles, where it is still put (Ctrl-C outside the layers), the copy's own.
    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._module(), memo)._call_impl  # type: ignore[union-attr]

    def __reduce__(self) -> Any:
        return getattr, (self._module(), "_call_impl")


class Place:
    """A layer's hook keeps to one end of the hooks there, also of those the user adds later."""

    def __init__(self, handle: RemovableHandle, *, last: bool) -> None:
        self._handle = handle
        self._last = last

    def take(self) -> None:
        hooks = self._handle.hooks_dict_ref()
        if not hooks:
            return
        end = next(reversed(hooks)) if self._last else next(iter(hooks))
        if end != self._handle.id and self._handle.id in hooks:
            hooks.move_to_end(self._handle.id, last=self._last)


def _move(hooks: Any, hook: _Hook, *, last: bool) -> None:
    for key, value in hooks.items():
        if value is hook:
            hooks.move_to_end(key, last=last)
            return
