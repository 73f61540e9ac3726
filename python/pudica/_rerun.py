"""Layers run again: the native side calls back here when it tries a layer and when a backward
needs a layer's tensors."""

from __future__ import annotations

import atexit
import collections
import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from . import _undoing
from ._arguments import Template, tensors_in
from ._found import Found
from ._held import Held
from ._layer_call import Deviates, LayerCall, is_stop
from ._parts import Parts

_log = logging.getLogger("pudica")
_tokens = itertools.count(1)
_DONE, _FAILED, _OUT_OF_MEMORY, _DEVIATES = 0, 1, 2, 3


_calls: dict[int, LayerCall] = {}  # by token
# Of the layer call that ends just now, on this thread: its token and what its forward gave. What is
# run again meanwhile is its trial.
_ending = threading.local()


def new_token() -> int:
    return next(_tokens)


def remember(
    token: int, module: nn.Module, template: Template, parts: Parts, held: list[Held]
) -> None:
    call = _calls[token] = LayerCall(module, template, parts)
    call.held = held or ()


def let_go_before(token: int) -> None:
    """What calls before that one hold of their modules' attributes: a step whose backward never
    comes may be held by what those name, for ever."""
    for earlier, call in list(_calls.items()):
        if earlier >= token:
            return
        call.let_go()


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
    _calls[token].begins(parts)


def forward_ends(token: int, mark: int) -> None:
    """`mark`: of _undoing, before forward_begins()."""
    _undoing.undo(mark)
    call = _calls.get(token)
    if call is None:
        return
    call.ends()


def finds_again(token: int, found: Found | None) -> None:
    """A call that does what its class was not tried with: what it found, and changed; None: nobody
    has that any more."""
    if (call := _calls.get(token)) is not None:
        call.found = found
        call.is_lost = found is None


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


def _say_what_failed(token: int, error: BaseException) -> None:
    """Of a call that a backward needed: the user sees the native side's error, which does not know
    the layer's name nor what happened in it."""
    module = _calls[token].module if token in _calls else None
    if module is None or is_stop(error) or _trial_of(token) is not None:
        return
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and len(chain) < 16:
        chain.append(one)
        one = one.__context__
    if any(is_stop(e) for e in chain):
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
    except Deviates as error:
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
