"""Handle: one attached model."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import _native, _optimizers, _rerun, _turns, _undoing
from ._arguments import Template, take_apart, tensors_in
from ._budget import Budget, resolve
from ._checkpointing import in_checkpoint, runs_again
from ._errors import AttachError, BudgetError, from_native
from ._inert import InertHandle
from ._installed import Installed
from ._layer_words import LayerWords
from ._newcomers import Newcomers
from ._parts import parts_of
from ._resting import Rest
from ._shape import ShapeReader

_UNPLANNED = -1  # kind of a step whose shape says too little for a plan


class Handle(Installed):
    """One attached model. Made by attach().

    A context manager: leaving it detaches. Methods are for the thread that trains. None of them
    waits, but for detach() with a daemon: up to a second, as attach() does, for its answer. A
    failure inside pudica never reaches the training loop: it goes on without a plan, and
    `stats()["failures"]` and one line of the log `pudica` say so.
    """

    _automatic = False  # made by `pudica run`: gives way to the program's own attach()

    def __init__(
        self,
        model: nn.Module,
        layers: list[nn.Module],
        settings: dict[str, Any],
        newcomers: Newcomers | None = None,
    ) -> None:
        super().__init__()
        self._device = torch.device(settings["device"])
        self._fingerprint: str = settings["fingerprint"]
        self._words = LayerWords(layers)
        self._shapes = ShapeReader()
        self._states = _optimizers.StateWatch()
        self._opener: weakref.ref[nn.Module] | None = None
        self._thread = 0  # of the forward
        self._rest = Rest(model)
        # Once a forward was through without a layer (it gave what an earlier one had made), one
        # that begins while another waits for its backward begins its step at its first layer.
        self._without_layers = False
        self._late: tuple[int, list[str], list[int]] | None = None  # of such a step
        self._came_to_a_layer = False
        # Modules whose native layer is open: id, token of the call, and how far what its forward
        # changes is to be undone.
        self._open_layers: list[tuple[int, int, int]] = []
        self._latest = 0  # token of the layer call that began last
        self._forwards = _rerun.Forwards()
        self._called: set[int] = set()
        self._state_file = ""
        self._attached = True
        parameters = [*model.parameters(), *model.buffers()]
        try:
            self._native = _native.Attachment(json.dumps(settings), parameters)
        except RuntimeError as error:
            raise from_native(error, AttachError) from None
        self._install(model, layers, newcomers)
        _optimizers.watch(self)

    # -- what users call ---------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        return self._attached

    @property
    def layers(self) -> list[nn.Module]:
        """The modules that plans are made of."""
        return [layer for on in self._on_layers if (layer := on.layer()) is not None]

    def set_budget(self, budget: Budget) -> None:
        """A new budget, from the next step on. As attach()'s; raises BudgetError."""
        limits = resolve(budget, self._device)
        fraction = -1.0 if limits.fraction is None else limits.fraction
        self._ask(BudgetError, self._native.set_budget, limits.bytes, fraction)

    def detach(self) -> None:
        """Leaves no hook, no cap and no changed setting. Idempotent. Backwards of forwards that
        have run already still work."""
        if not self._attached:
            return
        self._attached = False
        _optimizers.forget(self)
        self._uninstall()
        self._save_state_file()
        self._native.detach()
        _rerun.forget_dead()  # their modules may go
        self._drain_log()

    def __enter__(self) -> Handle:
        if not self._attached:
            raise AttachError("this handle is detached; expected one that is attached: attach()")
        return self

    def __exit__(self, *unused: object) -> None:
        self.detach()

    def __reduce__(self) -> Any:  # for copies as well, which are of the model's copies
        return InertHandle, ("a copy, which is not attached",)

    def __repr__(self) -> str:
        if not self._attached:
            return "<pudica.Handle, detached>"
        words = f"{len(self.layers)} layers, budget {self._budget_words()}"
        policy = self.stats()["policy"]
        return f"<pudica.Handle: {words}{'' if policy == 'pudica' else f', policy {policy}'}>"

    # -- hooks -------------------------------------------------------------------------------

    def _forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        opener = self._opener() if self._opener is not None else None
        if opener is not None and opener is not module:
            if id(module) not in self._outer.get(id(opener), ()):
                return  # inside the forward that is open
        self._open_layers.clear()
        if torch._C._current_graph_task_id() >= 0 and (runs_again() or self._native.waits()):
            self._say_once(
                "reentrant",
                "a checkpoint or another autograd.Function of the user's runs layers again inside "
                "the backward, or a hook on what an open step made does; pudica leaves those calls "
                "alone (a checkpoint's it can plan with use_reentrant=False)",
            )
            return
        try:
            _rerun.undo_left()
            self._welcome_newcomers()
            kind, names, values = self._read_shape(module, args, kwargs)
            self._forwards.begins(self._latest)
            self._words.forward_begins()
            self._hold_places()
            self._take_over_checkpointing()
            self._came_to_a_layer = False
            self._late = (kind, names, values)
            if not (self._without_layers and self._native.waits()):
                self._begin_step(at_layer=False)
            self._opener = weakref.ref(module)
            self._thread = threading.get_ident()
            self._put_guards()
        except Exception as error:  # noqa: BLE001  (the guest rule: training goes on)
            self._failed("the start of a forward", error)

    def _begin_step(self, *, at_layer: bool) -> None:
        """`at_layer`: of a forward that waited with it until it came to a layer."""
        assert self._late is not None
        kind, names, values = self._late
        self._late = None
        _turns.take(self, self._device)
        self._note(self._native.end_step())
        step = self._native.begin_step(kind, names or ["elements"], values or [1], at_layer)
        if not step & _native.PLANNED:
            self._say_unplanned(names)
        self._begin_rest(bool(step & _native.MAY_REST), (kind, *values))

    def gives_way(self) -> None:
        """To another model's step, as to its own next: two losses, then both optimizers."""
        others = self._thread != threading.get_ident()
        if others or not self._attached or self._opener is not None:
            return
        try:
            if torch._C._current_graph_task_id() < 0 and self._native.went_back():
                self._note(self._native.end_step())
        except Exception as error:  # noqa: BLE001
            self._failed("the end of a step", error)

    def _comes_to_a_layer(self) -> None:
        if threading.get_ident() != self._thread:
            return  # layers of other threads just run
        try:
            self._begin_step(at_layer=True)
        except Exception as error:  # noqa: BLE001
            self._failed("the start of a step", error)

    def _begin_rest(self, may_rest: bool, step: tuple[int, ...]) -> None:
        try:
            self._rest.begin(self._native, may_rest, step)
        except Exception as error:  # noqa: BLE001
            self._rest.give_up()
            self._failed("the rest of a step", error)

    def _at_rest(self, told: Callable[[Any], bool | None], output: Any) -> bool | None:
        """Of the rest's own, told what a layer or the model gave."""
        try:
            return told(output)
        except Exception as error:  # noqa: BLE001
            self._failed("the rest of a step", error)
            return True

    def _read_shape(
        self, module: nn.Module, args: Any, kwargs: Any
    ) -> tuple[int, list[str], list[int]]:
        try:
            kind, names, values = self._shapes.read(module, args, kwargs)
        except Exception as error:  # noqa: BLE001
            self._failed("reading the shapes of the arguments", error)
            self._said.add("shapeless")
            kind, names, values = None, [], []
        # The budget holds all the same.
        return _UNPLANNED if kind is None else kind, names, values

    def _forward_ends(self, module: nn.Module, output: Any) -> None:
        if self._opener is None or self._opener() is not module:
            return
        self._opener = None
        self._take_guards()
        if self._late is not None:
            self._late = None  # no layer, no step
            return
        self._without_layers |= output is not None and not self._came_to_a_layer
        if self._at_rest(self._rest.end, output):
            self._say_compiled()
            return
        if self._open_layers:
            self._open_layers.clear()
            _rerun.undo_left()
            self._native.abandon()
        self._say_compiled()
        if not self._called and not self._compiled:
            self._say_once(
                "uncalled",
                f"none of the {len(self.layers)} layers was called through its hooks in a "
                "training forward (layer.forward(x) passes them by); nothing can be planned",
            )

    def _layer_begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        open_layers = len(self._open_layers)
        self._enter(module, args, kwargs)
        self._rest.looks_at(module, args, kwargs, entered=len(self._open_layers) > open_layers)

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        try:
            self._called.add(id(module))
            if in_checkpoint():
                self._words.passed_by(module)
                return
            template, tensors, telling, word = take_apart(args, kwargs)
            if any(tensor.is_nested for tensor in tensors):
                self._say_once(
                    "nested",
                    f"a {type(module).__name__} was called with nested tensors: such calls are "
                    "kept as they are",
                )
                return
            token = _rerun.new_token()
            parts = parts_of(module, self._words.trees)
            if parts.strange:
                self._say_once(
                    parts.strange,
                    f"a {type(module).__name__} was called {parts.strange}: such calls are kept as "
                    "they are",
                )
                return
            held = parts.hold()
            is_inner = bool(self._open_layers)
            self._words.begins(token, module, template, parts, is_inner=is_inner)
            name = f"{self._words.of(module, parts)}{'t' if module.training else 'e'}({word})"
            entry = self._native.enter(
                token, name, tensors, parts.buffers, telling,
                not _rerun.finds_its_parameters(self._latest),
            )
            if entry == _native.NOT_ENTERED:
                self._words.lets_go(token)
                if not self._open_layers:
                    self._say_left_out(type(module).__name__, self._thread)
                return
            runs_again = entry == _native.MAY_RUN_AGAIN
            if runs_again:
                self._remember(token, module, template, parts, held)
            self._open_layers.append((id(module), token, _undoing.mark()))
            if runs_again:
                _rerun.forward_begins(token, parts)
            self._latest = token
        except Exception as error:  # noqa: BLE001
            self._failed("the start of a layer", error)

    def _remember(self, token: int, module: nn.Module, *parts: Any) -> None:
        try:
            _rerun.remember(token, module, *parts)
        except BaseException:  # a frame that cannot be run again must not be
            self._native.abandon()
            raise

    def _layer_ends(self, module: nn.Module, output: Any) -> None:
        if not self._open_layers or self._open_layers[-1][0] != id(module):
            return
        _, token, mark = self._open_layers.pop()
        try:
            _rerun.forward_ends(token, mark)
            tensors = tensors_in(output)
            if tensors:
                with _rerun.ending(token, tensors):
                    self._native.leave(tensors)
            else:
                self._native.abandon()
            self._words.ends(token)
        except Exception as error:  # noqa: BLE001
            self._failed("the end of a layer", error)

    def _layer_broken_off(self) -> None:
        """By what torch tells no hook of. What is open on this thread is closed before anybody
        else's tensors are saved there."""
        self._open_layers.clear()
        _rerun.undo_left()
        self._native.abandon()
        self._opener = self._late = None
        self._rest.rests = False
        self._take_guards()

    def _optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._say_compiled()
        try:
            if state := self._states.fresh(optimizer):
                self._native.count_residents(state)
            self._note(self._native.end_step())
        except Exception as error:  # noqa: BLE001
            self._failed("the end of a step", error)
