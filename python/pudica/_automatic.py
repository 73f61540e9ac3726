"""attach() without a line in the program, under `pudica run`: what python/startup calls.

An optimizer that is made shows what is trained: the modules that hold its parameters and lie in no
other are looked for, and at the first forward with gradients of the outermost of them that has
layers pudica attaches to it. Trainers get their callbacks. Each is said once, in the log
`pudica.run`, and so is why something was left alone.
"""

from __future__ import annotations

import atexit
import gc
import logging
import multiprocessing.process
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from . import attach
from ._errors import AttachError, PudicaError
from ._handle import Handle
from ._installed import attached_modules
from ._hooks import _Hook
from ._layers import find_layers
from ._session import Session

_log = logging.getLogger("pudica.run")
_process = os.getpid()  # a fork of this one is another program

handles: list[Handle] = []
# Parameters whose roots were looked for, by id.
_covered: dict[int, weakref.ref[torch.Tensor]] = {}
# Roots that were looked at, and modules for which a reason was said already.
_known: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_refused: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_reasons: list[str] = []  # why something was not planned, as it was said
_attached_otherwise: list[str] = []  # by the program itself, or by a trainer's callback
plans = True  # False: nothing is attached, for the rehearsal of a program as it is
# Of a rehearsal: called with a module that was just attached, would be or has no layers, and its
# arguments; and with each optimizer.
watchers: list[Callable[[nn.Module, Any, Any], None]] = []
optimizer_watchers: list[Callable[[torch.optim.Optimizer], None]] = []
without_layers: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # of those


def say(message: str, *arguments: Any, level: int = logging.INFO) -> None:
    """Through logging; where the program has set up none, on standard error."""
    if not _log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("pudica: %(message)s"))
        _log.addHandler(handler)
        _log.propagate = False
    if _log.level == logging.NOTSET:
        _log.setLevel(logging.INFO)
    _log.log(level, message, *arguments)


def _belongs() -> bool:
    """Whether this process trains: no worker of a loader, and no fork that nobody named one."""
    current = multiprocessing.process.current_process()
    return not current.daemon and (os.getpid() == _process or current.name != "MainProcess")


def _nothing() -> None:
    return None


# -- which models ----------------------------------------------------------------------------


def _children(module: nn.Module) -> list[nn.Module]:
    inner = module.__dict__.get("_modules") or {}  # absent before Module.__init__()
    return [child for child in inner.values() if child is not None]


def _roots(parameters: list[torch.Tensor]) -> list[nn.Module]:
    """The modules that hold some of them and lie in no other."""
    wanted = {id(p) for p in parameters}
    modules = [o for o in gc.get_objects() if issubclass(type(o), nn.Module)]
    inner = {id(child) for module in modules for child in _children(module)}
    outer = [m for m in modules if id(m) not in inner and "_parameters" in m.__dict__]
    return [m for m in outer if any(id(p) in wanted for p in m.parameters())]


def _with_layers(module: nn.Module) -> Iterator[nn.Module]:
    """It and those inside it that have layers; layers themselves are not looked into."""
    try:
        layers = {id(layer) for layer in find_layers(module)}
    except AttachError:
        return
    yield module
    for child in _children(module):
        if id(child) not in layers:
            yield from _with_layers(child)


class _Candidates:
    """Of one root: the modules of which the first that is called is attached."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.compiled = ""  # class of one that torch.compile traced
        self._hooks = [
            (weakref.ref(module), module.register_forward_pre_hook(
                _First(self), with_kwargs=True, prepend=True))  # type: ignore[arg-type]
            for module in modules
        ]

    def first(self, called: nn.Module, args: Any, kwargs: Any) -> None:
        inside = {id(module) for module in called.modules()}
        left = []
        for ref, hook in self._hooks:
            module = ref()
            if module is None or id(module) in inside or called in module.modules():
                hook.remove()
            else:
                left.append((ref, hook))
        self._hooks = left
        _begin(called, args, kwargs)


_waiting: list[_Candidates] = []


class _First(_Hook):
    """Before a candidate's forward."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        candidates: Any = self.handle
        if torch.compiler.is_compiling():
            candidates.compiled = type(module).__name__
        elif torch.is_grad_enabled():
            candidates.first(module, args, kwargs)


def _attached(module: nn.Module) -> bool:
    taken = (attached_modules.get(inner) for inner in module.modules())
    return any(ref is not None and ref() is not None for ref in taken)


def _begin(module: nn.Module, args: Any, kwargs: Any) -> None:
    if not _belongs():
        return
    if plans and _attached(module):
        _attached_otherwise.append(type(module).__name__)
    elif plans and module not in _refused:
        _attach(module, args, kwargs)
    for watcher in watchers:
        watcher(module, args, kwargs)


def _attach(module: nn.Module, args: Any, kwargs: Any) -> None:
    try:
        handle = attach(module)
    except Exception as error:  # noqa: BLE001
        _refuse(module, error)
        return
    adopt(handle, type(module).__name__)
    handle._forward_begins(module, args, kwargs)  # the hooks that were just put see the next one


def _refuse(model: nn.Module, error: Exception) -> None:
    """Nobody asked for pudica here: whatever it was, training goes on."""
    reason = str(error) if isinstance(error, PudicaError) else f"{type(error).__name__}: {error}"
    _refused.update(model.modules())
    _reasons.append(reason)
    say("%s is not planned: %s", type(model).__name__, reason, level=logging.WARNING)


def adopt(handle: Handle, name: str) -> None:
    """Notes a handle and says what it is of."""
    handle._automatic = True
    handles.append(handle)
    layers = handle.layers
    kinds = " and ".join(sorted({type(layer).__name__ for layer in layers}))
    say("attached to %s: %d layers (%s), budget %s", name, len(layers), kinds,
        handle._budget_words())


# -- what the program makes ------------------------------------------------------------------


def optimizer_made(optimizer: torch.optim.Optimizer) -> None:
    """After an optimizer's __init__."""
    for watcher in optimizer_watchers:
        watcher(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if all(_covered.get(id(p), _nothing)() is p for p in parameters):
        return  # one of many on the same model: finding roots looks at every object
    roots = _roots(parameters)
    for parameter in [*parameters, *(p for root in roots for p in root.parameters())]:
        _covered[id(parameter)] = weakref.ref(parameter)
    for root in roots:
        if root in _known:
            continue
        _known.add(root)
        modules = list(_with_layers(root))
        if modules:
            _waiting.append(_Candidates(modules))
            continue
        try:
            find_layers(root)
        except AttachError as error:
            _reasons.append(str(error))
            say("%s is not planned: %s", type(root).__name__, error)
            if watchers:
                _watch_without_layers(root)


def _watch_without_layers(root: nn.Module) -> None:
    """It, or what it calls in its place."""
    modules = [root, *_children(root)]
    without_layers.update(modules)
    _refused.update(modules)
    _waiting.append(_Candidates(modules))


class _ContainedSession(Session):
    """Of a trainer that nobody asked to be attached: a refusal is said, and training goes on."""

    def begin(self, model: nn.Module, check: Callable[[], None] | None = None) -> None:
        if not plans or not _belongs() or _attached(model):
            return
        try:
            super().begin(model, check)
        except Exception as error:  # noqa: BLE001
            _refuse(model, error)
            return
        adopt(self.handle, type(model).__name__)


def _contained(callback: Any) -> Any:
    callback.session = _ContainedSession(None, None, None, "soft", None, None)
    callback.automatic = True
    return callback


def transformers_trainer_made(trainer: Any) -> None:
    from . import transformers

    callbacks = trainer.callback_handler.callbacks
    if plans and not any(isinstance(c, transformers.PudicaCallback) for c in callbacks):
        _contained(transformers.install(trainer))


def lightning_trainer_made(trainer: Any) -> None:
    from .lightning import PudicaCallback

    if plans and not any(isinstance(c, PudicaCallback) for c in trainer.callbacks):
        trainer.callbacks.insert(0, _contained(PudicaCallback()))


@atexit.register
def _end() -> None:
    if os.getpid() != _process:
        return
    compiled = {waiting.compiled for waiting in _waiting} - {""}
    for name in compiled:
        say("%s is not planned: it runs under torch.compile; train it uncompiled, or compile parts "
            "inside the layers", name, level=logging.WARNING)
    if plans and _covered and not (handles or _attached_otherwise or compiled or _reasons):
        say("nothing was attached: no module of layers that an optimizer trains was called with "
            "gradients")
    for handle in handles:
        handle.detach()
