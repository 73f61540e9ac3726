"""Layers run again: the native side calls back here when it tries a layer and when a backward
needs a layer's tensors."""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import itertools
import logging
import threading
import weakref
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from . import _python_random, _undoing
from ._arguments import Template, tensors_in
from ._foreign import (
    GeneratorStates,
    Kept,
    set_parameters,
    set_training,
    set_wanted_gradients,
)
from ._held import Held
from ._inner_hooks import take_hooks, watch
from ._parts import Parts

_log = logging.getLogger("pudica")
_tokens = itertools.count(1)
_version = attrgetter("_version")
_DONE, _FAILED, _OUT_OF_MEMORY, _DEVIATES = 0, 1, 2, 3
_STOP = "pudica: recompute complete"  # thrown in an operator of the layer once all is recovered


class _Deviates(RuntimeError):
    """The layer did not do what it did in the forward: nothing that it saved again is to be used,
    also where all that was asked for had been saved by then."""


class _Call:
    """A layer call whose frame lives: what the layer's result depends on beside tensors that were
    passed. Those are not here but in the frame: what the native side frees is free. What `held`
    names goes when the next forward begins."""

    __slots__ = (
        "attributes",
        "changing_hooks",
        "held",
        "module",
        "modules",
        "owned",
        "parameters",
        "python_random",
        "template",
        "training",
        "versions",
        "wants",
    )

    def __init__(self, module: nn.Module, template: Template, parts: Parts) -> None:
        self.module = module
        self.template = template
        self.modules = parts.modules
        self.parameters = parts.parameters
        self.owned = parts.owned
        self.training = parts.training
        self.wants = parts.wants
        self.held: list[Held] = []
        self.versions = list(map(_version, parts.parameters))
        self.attributes: list[dict[str, Any]] = []  # by module, of plain values
        # The state of Python's generator as the forward began; None: it did not draw from it.
        self.python_random: Any = None
        self.changing_hooks: set[int] = set()  # inside it, that the forward was changed by

    def finds_its_parameters(self) -> bool:
        """Its modules have the very parameters that the forward read."""
        return self.owned.are_of(self.modules)

    def initialises_itself(self) -> bool:
        """On trial: its forward wrote parameters, and no other of this module had before."""
        if list(map(_version, self.parameters)) == self.versions:
            return False
        if self.module in _wrote_parameters:
            return False
        _wrote_parameters.add(self.module)
        return True

    def check_parameters(self) -> None:
        for parameter, then in zip(self.parameters, self.versions, strict=True):
            if parameter._version != then:
                names = {id(p): name for name, p in self.module.named_parameters()}
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: parameter {names.get(id(parameter), '')} of a "
                    f"{type(self.module).__name__} that is recomputed is at version "
                    f"{parameter._version}; expected version {then} instead"
                )

    def run(self, tensors: list[torch.Tensor], *, on_trial: bool) -> Any:
        """The layer's output again; its modules, what they and their classes keep on themselves,
        and generators that torch does not put back, are then as they were. Raises _Deviates where
        such a generator was drawn from (Python's is as it was in the forward), or a tensor that is
        no buffer written: nobody knows what it was in the forward. numpy's may have been drawn from
        by another thread: once all that was asked for is there, that is not told."""
        args, kwargs = self.template.rebuild(tensors)
        kept = Kept(self.modules, copies=on_trial)
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Generator)]
        states = GeneratorStates([*kept.generators(), *given])
        begin = _undoing.mark()
        _undoing.tell(states.restore)
        _undoing.tell(kept.restore)
        stopped = failed = False
        try:
            if self.python_random is not None:
                _undoing.tell(functools.partial(_python_random.restore, _python_random.state()))
                _python_random.restore(self.python_random)
            # The user may have called eval() since.
            set_training(self.modules, self.training)
            # And given a module another parameter, or frozen one.
            set_parameters(self.modules, self.owned)
            set_wanted_gradients(self.parameters, self.wants)
            # And chosen another adapter, or put other conditioning on a module.
            for part, attributes in zip(self.modules, self.attributes, strict=False):
                part.__dict__.update(attributes)
            for held in self.held:
                held.put_back(_undoing.tell)
            # forward(), not the call.
            take_hooks(self.modules, self.changing_hooks)
            return self.module.forward(*args, **kwargs)
        except Exception as error:
            stopped = _is_stop(error)
            failed = not stopped
            raise
        except BaseException:
            failed = True
            raise
        finally:
            *_, (written, changed), (drawn, drew_numpys) = _undoing.undo(begin)
            if changed:
                torch.ops.pudica.note_layer_state()
            if drew_numpys and not stopped:
                drawn = "numpy's random"
            if drawn and not failed:
                raise _Deviates(f"it draws from {drawn}")
            if written and not failed:
                raise _Deviates(f"it writes its tensor {written} in place, which is no buffer")


_calls: dict[int, _Call] = {}  # by token
_wrote_parameters: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # in their forward, once
# Of the layer call that ends just now, on this thread: its token and what its forward gave. What is
# run again meanwhile is its trial.
_ending = threading.local()


def new_token() -> int:
    return next(_tokens)


def remember(
    token: int, module: nn.Module, template: Template, parts: Parts, held: list[Held]
) -> None:
    call = _calls[token] = _Call(module, template, parts)
    call.held = held


def let_go_before(token: int) -> None:
    """What calls before that one hold of their modules' attributes: a step whose backward never
    comes may be held by what those name, for ever."""
    for earlier, call in list(_calls.items()):
        if earlier >= token:
            return
        for one in call.held:
            one.let_go()
        if any(type(value) is list for plain in call.attributes for value in plain.values()):
            call.attributes = [
                {name: value for name, value in plain.items() if type(value) is not list}
                for plain in call.attributes
            ]


class Forwards:
    """The latest ones of a handle, by what was the latest call when they began."""

    _MOST = 32  # that wait for a common backward and find all that they found

    def __init__(self) -> None:
        self._before: collections.deque[int] = collections.deque(maxlen=self._MOST)

    def begins(self, latest: int) -> None:
        forget_dead()
        if len(self._before) == self._MOST:
            let_go_before(self._before[0])
        self._before.append(latest)


def forward_begins(token: int, parts: Parts) -> None:
    """What a layer's modules have on themselves as its forward begins, and may not have any more
    in the backward; and what Python's generator is at."""
    call = _calls[token]
    call.python_random = _python_random.state()
    if parts.hooks:
        call.changing_hooks = watch(call.modules)
    call.attributes = parts.attributes


def forward_ends(token: int, mark: int) -> None:
    """`mark`: of _undoing, before forward_begins()."""
    _undoing.undo(mark)
    call = _calls.get(token)
    if call is None:
        return
    if _python_random.state() == call.python_random:
        call.python_random = None
    try:
        call.held = [one for one in call.held if one.is_as_it_was()]
    except Exception:  # noqa: BLE001  (objects of the user's)
        call.held = []


def finds_its_parameters(token: int) -> bool:
    """False: a call that is over would find others. Those of FSDP2 are there from just before a
    layer's forward or backward until just after it."""
    call = _calls.get(token)
    return call is None or call.finds_its_parameters()


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


def _trial_of(token: int) -> list[torch.Tensor] | None:
    """What the forward gave, where this is the call's trial."""
    call = getattr(_ending, "call", None)
    return None if call is None or call[0] != token else call[1]


def _compare(then: list[torch.Tensor], now: list[torch.Tensor]) -> None:
    if len(then) != len(now):
        raise RuntimeError(f"it gives {len(now)} tensors, {len(then)} in the forward")
    for index, (left, right) in enumerate(zip(now, then, strict=True)):
        if not _same_bits(left, right):
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
    module = _calls[token].module if token in _calls else None
    if module is None or _is_stop(error) or _trial_of(token) is not None:
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


def undo_left() -> None:
    """What a rerun on this thread could not put back because it was struck."""
    if _undoing.mark() and not torch.ops.pudica.rerun_is_running():
        _undoing.undo()


def live_calls() -> int:
    forget_dead()
    return len(_calls)


def _run(token: int) -> int:
    ops: Any = torch.ops.pudica
    try:
        call = _calls[token]
        given = _trial_of(token)
        if given is not None and call.initialises_itself():
            ops.rerun_failed("its forward wrote parameters of its own, which may have been once")
            return _OUT_OF_MEMORY  # no verdict: another call is tried
        call.check_parameters()
        outputs = tensors_in(call.run(ops.rerun_inputs(), on_trial=given is not None))
        if given is not None:
            _compare(given, outputs)
        ops.rerun_done(outputs)
        return _DONE
    except torch.OutOfMemoryError as error:
        ops.rerun_failed(str(error))
        return _OUT_OF_MEMORY
    except _Deviates as error:
        ops.rerun_failed(str(error))
        return _DEVIATES
    except Exception as error:  # noqa: BLE001  (others, Ctrl-C, go on through the backward)
        with contextlib.suppress(Exception):
            _say_what_failed(token, error)
            kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
            ops.rerun_failed(kind + str(error))
        return _FAILED


_kernels: list[Any] = []  # they go with the interpreter


def install() -> None:
    """Once, when the library is loaded. At exit the native side stops calling us."""
    libraries: Any = torch.library
    _kernels.append(libraries.Library("pudica", "IMPL"))
    _kernels[-1].impl("rerun", _run, "CPU")
    torch.ops.pudica.open_reruns(True)
    atexit.register(torch.ops.pudica.open_reruns, False)
