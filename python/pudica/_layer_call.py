"""One call of a layer, and that layer run again: what the result depends on beside the tensors that
were passed, as the forward found it."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import weakref
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from . import _numpy_random, _python_random, _undoing
from ._arguments import Template
from ._atoms import VALUES
from ._foreign import (
    GeneratorStates,
    Kept,
    set_parameters,
    set_training,
    set_wanted_gradients,
)
from ._found import Found
from ._held import Held, HeldBuffer, HeldTensors, replaced_buffers
from ._inner_hooks import WRITTEN, Left, take_hooks, watch
from ._parts import Parts
from ._reach import Reach

_version = attrgetter("_version")
_STOP = "pudica: recompute complete"  # thrown in an operator of the layer once all is recovered
# Layers of these types changed on trial what they reach, small tensors among it or not: it is put
# back after each run.
_changes_what_it_reaches: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()
# By type, names of what their forwards replace and were tried without.
_replaced_and_not_read: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()
_wrote_parameters: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # in their forward, once


class Deviates(RuntimeError):
    """The layer did not do what it did in the forward: nothing that it saved again is to be used,
    also where all that was asked for had been saved by then."""


class LayerCall:
    """A layer call whose frame lives: what the layer's result depends on beside tensors that were
    passed. Those are not here but in the frame: what the native side frees is free. What `held`
    names is let go of when many forwards have begun since (let_go)."""

    __slots__ = (
        "attributes",
        "buffers",
        "changing_hooks",
        "context",
        "found",
        "held",
        "is_lost",
        "left",
        "module",
        "modules",
        "numpys_random",
        "owned",
        "parameters",
        "python_random",
        "replaced",
        "replaced_large",
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
        # Empty ones are tuples, which the collector does not count.
        self.held: Sequence[Held] = ()
        self.buffers: Sequence[torch.Tensor] = parts.buffers  # until its forward ends
        # Of what it found, what its forward has put others in the place of; the large among it only
        # where the trial did not do without.
        self.replaced: Sequence[HeldBuffer] = ()
        self.replaced_large: Sequence[HeldBuffer | HeldTensors] = ()
        self.versions = list(map(_version, parts.parameters))
        self.attributes: list[dict[str, Any]] = []  # by module, of plain values
        # The states of Python's generator and numpy's as the forward began; None: it did not draw
        # from it.
        self.python_random: Any = None
        self.numpys_random: Any = None
        self.context: Sequence[tuple[contextvars.ContextVar[Any], Any]] = ()
        self.changing_hooks: set[int] = set()  # inside it, that the forward was changed by
        self.left: list[Left] = []  # by hooks inside it, on their modules
        # What it reached as its forward began, where that changed what its class does not.
        self.found: Found | None = None
        self.is_lost = False  # that, which cannot be put back

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

    def does_without_large(self) -> None:
        """What was large and is not there any more, calls of this type do not read from now on:
        this one is tried without, and fails if it does."""
        names = _replaced_and_not_read.setdefault(type(self.module), set())
        names.update(one.name for one in self.replaced_large)
        self.replaced_large = ()

    def begins(self, parts: Parts) -> None:
        """What its modules have on themselves as its forward begins, and may not have any more in
        the backward; and what the process's generators are at."""
        self.python_random = _python_random.state()
        self.numpys_random = _numpy_random.state()
        self.context = _found_in_context()
        if parts.hooks:
            self.changing_hooks, self.left = watch(self.modules)
        self.attributes = parts.attributes

    def ends(self) -> None:
        if _python_random.state() == self.python_random:
            self.python_random = None
        if _numpy_random.same(self.numpys_random, _numpy_random.state()):
            self.numpys_random = None
        try:
            self.note_written()
            self.note_replaced()
            self.held = [one for one in self.held if one.is_wanted()] or ()
        except Exception:  # noqa: BLE001  (objects of the user's)
            self.held = ()
        self.buffers = ()

    def let_go(self) -> None:
        """Of what may come to hold what the layer gave, which holds the call: lists in `attributes`
        as well."""
        for one in self.held:
            one.let_go()
        self.replaced_large = ()
        self.is_lost = self.is_lost or self.found is not None
        self.found = None
        if any(type(value) is list for plain in self.attributes for value in plain.values()):
            self.attributes = [
                {name: value for name, value in plain.items() if type(value) is not list}
                for plain in self.attributes
            ]

    def note_written(self) -> None:
        """By hooks that do not run again, into what the forward found on its modules."""
        for left in self.left:
            if left.value is not WRITTEN or left.hook in self.changing_hooks:
                continue
            for one in self.held:
                if isinstance(one, HeldTensors) and one.is_of(vars(left.module), left.name):
                    one.is_written()

    def note_replaced(self) -> None:
        buffers = replaced_buffers(self.buffers, self.modules) if self.buffers else []
        self.replaced = [one for one in buffers if one.is_small()] or ()
        unread = _replaced_and_not_read.get(type(self.module), ())
        large: list[HeldBuffer | HeldTensors] = [one for one in buffers if not one.is_small()]
        large += [
            one
            for one in self.held
            if isinstance(one, HeldTensors)
            and one.is_state()
            and not one.is_wanted()
            and one.is_replaced()
        ]
        self.replaced_large = [one for one in large if one.name not in unread] or ()

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

    def forward_in_context(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for var, value in self.context:
            then = value() if type(value) is weakref.ref else value
            if then is not None or value is None:
                var.set(then)
        return self.module.forward(*args, **kwargs)

    def finds_again(self) -> None:
        """What it changes and its class does not, until it has run again."""
        lost = "a large tensor" if self.is_lost else ""
        if self.found is not None:
            lost = self.found.put_back(_undoing.tell)
        if lost:
            raise Deviates(
                "its forward changed what others of its class do not change, and it cannot be put "
                f"back ({lost}); expected that it is written outside the layer's forward"
            )

    def note_changes(self, *, tensors: bool) -> None:
        before = _changes_what_it_reaches.get(type(self.module), False)
        _changes_what_it_reaches[type(self.module)] = before or tensors

    def reach(self, *, on_trial: bool) -> Reach | None:
        """Raises Deviates where what is reached cannot be put back."""
        copies = _changes_what_it_reaches.get(type(self.module))
        if not on_trial and copies is None and self.found is None:
            return None
        passed = self.template.passed_as_they_are()
        wrote = self.parameters if self.found is not None else ()
        copies = on_trial or bool(copies) or self.found is not None
        reach = Reach(self.modules, passed, wrote, copies=copies)
        if reach.iterator:
            raise Deviates(f"what it reads holds an iterator ({reach.iterator})")
        if on_trial:
            torch.ops.pudica.protect_in_trial(self.not_to_be_written(reach.large_tensors))
        return reach

    def not_to_be_written(self, reached: list[torch.Tensor]) -> list[torch.Tensor]:
        """In a trial, of what has no copy: parameters, and what is reached but for buffers."""
        buffers = [b for m in self.modules for b in m._buffers.values() if b is not None]
        of_buffers = {b.untyped_storage()._cdata for b in buffers if _is_plain(b)}
        return [
            tensor
            for tensor in filter(_is_plain, (*self.parameters, *reached))
            if tensor.untyped_storage()._cdata not in of_buffers
        ]

    def run(self, tensors: list[torch.Tensor], *, on_trial: bool) -> Any:
        """The layer's output again; its modules, what they and their classes keep on themselves,
        generators that torch does not put back, and on trial all that it reaches, are then as they
        were. Raises Deviates where a generator was drawn from that is not as the forward found it
        (one that was passed; numpy's, where the forward did not draw), or where something was
        changed that cannot be put back. numpy's may have been drawn from by another thread: once
        all that was asked for is there, that is not told."""
        args, kwargs = self.template.rebuild(tensors)
        reach = self.reach(on_trial=on_trial)
        kept = Kept(self.modules, copies=on_trial)
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Generator)]
        states = GeneratorStates([*kept.generators(), *given])
        begin = _undoing.mark()
        _undoing.tell(reach.restore if reach is not None else _nothing_reached)
        _undoing.tell(states.restore)
        _undoing.tell(kept.restore)
        stopped = failed = False
        try:
            if self.python_random is not None:
                _undoing.tell(functools.partial(_python_random.restore, _python_random.state()))
                _python_random.restore(self.python_random)
            _numpy_random.restore(self.numpys_random)
            # The user may have called eval() since.
            set_training(self.modules, self.training)
            # And given a module another parameter, or frozen one.
            set_parameters(self.modules, self.owned)
            set_wanted_gradients(self.parameters, self.wants)
            # And chosen another adapter, or put other conditioning on a module.
            for part, attributes in zip(self.modules, self.attributes, strict=False):
                part.__dict__.update(attributes)
            self.finds_again()
            for held in self.held:
                held.put_back(_undoing.tell)
            if on_trial:
                self.does_without_large()
            for one in (*self.replaced, *self.replaced_large):
                one.put_back(_undoing.tell)
            for left in self.left:
                if left.hook not in self.changing_hooks:
                    left.put()
            # forward(), not the call.
            take_hooks(self.modules, self.changing_hooks)
            if not self.context:
                return self.module.forward(*args, **kwargs)
            return contextvars.copy_context().run(self.forward_in_context, args, kwargs)
        except Exception as error:
            stopped = is_stop(error)
            failed = not stopped
            raise
        except BaseException:
            failed = True
            raise
        finally:
            *_, (written, changed), (drawn, drew_numpys), (reached, lost) = _undoing.undo(begin)
            if reached:
                self.note_changes(tensors=reach is not None and reach.wrote_tensors)
            if changed or reached:
                torch.ops.pudica.note_layer_state()
            if drew_numpys and not stopped and self.numpys_random is None:
                drawn = "numpy's random"
            if drawn and not failed:
                raise Deviates(f"it draws from {drawn}")
            if written and not failed:
                raise Deviates(f"it writes its tensor {written} in place, which is no buffer")
            if lost and not failed:
                raise Deviates(f"it changes {lost[0]}, which cannot be put back")


def is_stop(error: BaseException) -> bool:
    return str(error).startswith(_STOP)


def _is_plain(tensor: torch.Tensor) -> bool:
    """It has memory of its own that can be asked for."""
    return type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout == torch.strided


def _found_in_context() -> Sequence[tuple[contextvars.ContextVar[Any], Any]]:
    """Plain values of context variables, and weak references to others, which may come to hold what
    the layer gives, which holds the call. What cannot be referred to weakly is left out."""
    context = contextvars.copy_context()
    if not context:
        return ()
    found: list[tuple[contextvars.ContextVar[Any], Any]] = []
    for var, value in context.items():
        with contextlib.suppress(TypeError):
            found.append((var, value if type(value) in VALUES else weakref.ref(value)))
    return found


def _nothing_reached() -> tuple[list[str], list[str]]:
    return [], []
