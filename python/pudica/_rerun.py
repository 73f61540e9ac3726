"""Layers run again: the native side calls back here when it tries a layer and when a backward
needs a layer's tensors."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import itertools
import logging
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ._arguments import Template, tensors_in
from ._foreign import (
    plain_attributes,
    plain_class_attributes,
    random_states,
    restore_plain_attributes,
    restore_plain_class_attributes,
    restore_random_states,
    users_classes,
    without_hooks,
)

_Parts = tuple[list[nn.Module], list[tuple[str, nn.Parameter]]]
# The same by weak references: a value that held its key would keep the model for ever.
_WeakParts = tuple[list["weakref.ref[nn.Module]"], list[tuple[str, "weakref.ref[nn.Parameter]"]]]

_log = logging.getLogger("pudica")
_tokens = itertools.count(1)
_parts: weakref.WeakKeyDictionary[nn.Module, _WeakParts] = weakref.WeakKeyDictionary()
_DONE, _FAILED, _OUT_OF_MEMORY = 0, 1, 2
_STOP = "pudica: recompute complete"  # thrown in an operator of the layer once all is recovered


def _parts_of(module: nn.Module) -> _Parts:
    known = _parts.get(module)
    if known is None:
        named = [(n, p) for n, p in module.named_parameters() if not p.is_inference()]
        known = _parts[module] = (
            [weakref.ref(part) for part in module.modules()],
            [(name, weakref.ref(parameter)) for name, parameter in named],
        )
    modules = [part for ref in known[0] if (part := ref()) is not None]
    return modules, [(name, p) for name, ref in known[1] if (p := ref()) is not None]


class _Call:
    """A layer call whose frame lives: what the layer's result depends on beside tensors that were
    passed. Those are not here but in the frame: what the native side frees is free."""

    __slots__ = ("module", "template", "training", "versions")

    def __init__(self, module: nn.Module, template: Template) -> None:
        modules, parameters = _parts_of(module)
        self.module = module
        self.template = template
        self.training = [part.training for part in modules]
        self.versions = [parameter._version for _, parameter in parameters]

    def check_parameters(self) -> None:
        for (name, parameter), then in zip(_parts_of(self.module)[1], self.versions, strict=True):
            if parameter._version != then:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: parameter {name} of a {type(self.module).__name__} that "
                    f"is recomputed is at version {parameter._version}; expected version {then} "
                    "instead"
                )

    def run(self, tensors: list[torch.Tensor]) -> Any:
        """The layer's output again; its modules, what their classes keep in plain values, and
        generators that are not torch's, are then as they were. Raises RuntimeError where such a
        generator was drawn from: nobody knows what it gave in the forward."""
        modules = _parts_of(self.module)[0]
        args, kwargs = self.template.rebuild(tensors)
        states = random_states()
        plain = plain_attributes(modules)
        of_classes = plain_class_attributes(users_classes(modules))
        hooked = without_hooks(modules)
        # The user may have called eval() since.
        for part, training in zip(modules, self.training, strict=True):
            if part.training is not training:
                part.training = training
        try:
            # forward(), not the call, and no hooks below: they ran once, in the forward, where what
            # they collect may still be under way.
            output = self.module.forward(*args, **kwargs)
        finally:
            for attributes, hooks in hooked:
                attributes.update(hooks)
            restore_plain_attributes(plain)
            restore_plain_class_attributes(of_classes)
            drawn = restore_random_states(states)
        if drawn:
            raise RuntimeError(f"it draws from {drawn} random")
        return output


_calls: dict[int, _Call] = {}  # by token
# Of the layer call that ends just now, on this thread: its token and what its forward gave. What is
# run again meanwhile is its trial.
_ending = threading.local()


def new_token() -> int:
    return next(_tokens)


def remember(token: int, module: nn.Module, template: Template) -> None:
    _calls[token] = _Call(module, template)


def forget(token: int) -> None:
    _calls.pop(token, None)


def forget_dead() -> None:
    for token in torch.ops.pudica.dead_tokens():
        _calls.pop(token, None)


@contextlib.contextmanager
def ending(token: int, outputs: list[torch.Tensor]) -> Iterator[None]:
    """Inside, the call's trial compares its outputs as well: the native side compares what is
    saved, and in a joint segment the next layer runs on what this one gives."""
    _ending.call = token, outputs
    try:
        yield
    finally:
        _ending.call = None


def _compare(token: int, outputs: list[torch.Tensor]) -> None:
    call = getattr(_ending, "call", None)
    if call is None or call[0] != token:
        return
    if len(call[1]) != len(outputs):
        raise RuntimeError(f"it gives {len(outputs)} tensors, {len(call[1])} in the forward")
    for index, (now, then) in enumerate(zip(outputs, call[1], strict=True)):
        if not _same_bits(now, then):
            raise RuntimeError(f"output {index} has other values than in the forward")


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype or left.layout != right.layout:
        return False
    if left.layout != torch.strided:
        return bool(torch.equal(left, right))
    with torch.no_grad():
        flat = (t.detach().resolve_conj().resolve_neg().flatten() for t in (left, right))
        return torch.equal(*(t.view(torch.uint8) for t in flat))


def _is_stop(error: BaseException) -> bool:
    return str(error).startswith(_STOP)


def _say_what_failed(token: int, error: BaseException) -> None:
    """Of a call that a backward needed: the user sees the native side's error, which does not know
    the layer's name nor what happened in it."""
    ending_call = getattr(_ending, "call", None)
    module = _calls[token].module if token in _calls else None
    if module is None or _is_stop(error) or (ending_call and ending_call[0] == token):
        return
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and len(chain) < 16:
        chain.append(one)
        one = one.__context__
    if any(_is_stop(e) for e in chain):
        return  # the layer made another exception of the stop: all is recovered
    first = str(error).split("\n", 1)[0]
    _log.warning(
        "a %s failed when it was run again in the backward (%s: %s)",
        type(module).__name__, type(error).__name__, first,
    )


def live_calls() -> int:
    forget_dead()
    return len(_calls)


def _interrupt_later(thread: int) -> None:
    """Interrupts once that thread is out of _run(): what is raised in there reaches nobody."""
    while True:
        frame = sys._current_frames().get(thread)
        while frame is not None and frame.f_code is not _run.__code__:
            frame = frame.f_back
        if frame is None:
            _thread.interrupt_main()
            return
        time.sleep(0.001)


def _run(token: int) -> int:
    ops: Any = torch.ops.pudica
    try:
        call = _calls[token]
        call.check_parameters()
        outputs = tensors_in(call.run(ops.rerun_inputs()))
        _compare(token, outputs)
        ops.rerun_done(outputs)
        return _DONE
    except torch.OutOfMemoryError as error:
        ops.rerun_failed(str(error))
        return _OUT_OF_MEMORY
    except KeyboardInterrupt:
        ops.rerun_failed("pudica: interrupted while a layer was recomputed")
        threading.Thread(
            target=_interrupt_later, args=(threading.get_ident(),), name="pudica interrupt",
            daemon=True,
        ).start()
        return _FAILED
    except BaseException as error:  # noqa: BLE001  (a C caller is waiting for a number)
        with contextlib.suppress(Exception):
            _say_what_failed(token, error)
            kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
            ops.rerun_failed(kind + str(error))
        return _FAILED


_callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)(_run)
_installed = threading.Lock()


def install() -> None:
    """Once, when the library is loaded. At exit the native side stops calling us."""
    with _installed:
        address = ctypes.cast(_callback, ctypes.c_void_p).value
        torch.ops.pudica.set_rerun_callback(address)
        atexit.register(torch.ops.pudica.set_rerun_callback, 0)
