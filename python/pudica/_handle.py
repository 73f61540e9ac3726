"""Handle: one attached model."""

from __future__ import annotations

import hashlib
import json
import logging
import operator
import os
import pathlib
import weakref
from collections.abc import Hashable, Sequence
from typing import Any, Union

import torch
from torch import nn

from . import _native, _optimizers, _rerun
from ._answers import Answer, Explanation
from ._arguments import take_apart, tensors_in
from ._budget import Budget, format_apart, format_bytes, resolve
from ._checkpointing import Takeover
from ._errors import AttachError, ShapeError, StateError, from_native
from ._hooks import ForwardBegin, ForwardEnd, LayerBegin, LayerEnd, Place
from ._inert import InertHandle
from ._layers import class_word
from ._parts import Parts
from ._shape import ShapeReader

_log = logging.getLogger("pudica")
_STATE_SCHEMA = "pudica.python-state/1"
_LEVELS = {"w": logging.WARNING, "i": logging.INFO, "d": logging.DEBUG}
_MOST_WORDS = 1 << 14
_OVERRUN, _INFEASIBLE = 2, 4  # of what a step's end reports

# Modules that carry the hooks of a handle.
attached_modules: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Handle]]
attached_modules = weakref.WeakKeyDictionary()

Shape = Union[Sequence[int], dict[str, int], str]


class Handle:
    """One attached model. Made by attach().

    A context manager: leaving it detaches. Methods are for the thread that trains. None of them
    waits, but for detach() with a daemon: up to a second, as attach() does, for its answer. A
    failure inside pudica never reaches the training loop: it goes on without a plan, and
    `stats()["failures"]` and one line of the log `pudica` say so.
    """

    def __init__(
        self, model: nn.Module, layers: list[nn.Module], settings: dict[str, Any]
    ) -> None:
        self._layers = [weakref.ref(layer) for layer in layers]
        self._device = torch.device(settings["device"])
        self._fingerprint: str = settings["fingerprint"]
        # By layer and signature, each class_id() as it was first.
        self._words: dict[tuple[int, Hashable], str] = {}
        for layer in layers:
            self._word(layer, Parts(layer))
        self._shapes = ShapeReader()
        self._states = _optimizers.StateWatch()
        self._opener: weakref.ref[nn.Module] | None = None
        self._outer: dict[int, set[int]] = {}  # of each module with hooks: those it lies in
        # Modules whose native layer is open: id, and token of the call.
        self._open_layers: list[tuple[int, int]] = []
        self._called: set[int] = set()
        self._said: set[str] = set()
        self._compiled = ""  # class of a module whose hooks torch.compile traced
        self._hooks: list[Any] = []
        self._places: list[Place] = []  # of the layers' hooks
        self._state_file = ""
        self._attached = True
        parameters = [*model.parameters(), *model.buffers()]
        try:
            self._native = _native.Attachment(json.dumps(settings), parameters)
        except RuntimeError as error:
            raise from_native(error, AttachError) from None
        self._parameter_ids = {id(p) for p in model.parameters()}
        self._install(model, layers)
        _optimizers.watch(self)

    # -- what users call ---------------------------------------------------------------------

    @property
    def budget(self) -> int:
        """Bytes that may be in use on the device at once."""
        return int(self._native.budget())

    @property
    def attached(self) -> bool:
        return self._attached

    @property
    def layers(self) -> list[nn.Module]:
        """The modules that plans are made of."""
        return [layer for ref in self._layers if (layer := ref()) is not None]

    def set_budget(self, budget: Budget) -> None:
        """A new budget, from the next step on. As attach()'s; raises BudgetError."""
        self._native.set_budget(resolve(budget, self._device))

    def stats(self) -> dict[str, Any]:
        """Counts since attach() and the last step: steps, recomputed_layers of layer_calls,
        revocations, overruns, highest_peak_bytes, host_peak_bytes (of offloaded layers),
        budget_bytes, state, last_step, daemon."""
        stats: dict[str, Any] = json.loads(self._native.stats())
        stats["layers"] = len(self._layers)
        return stats

    def plans(self) -> list[dict[str, Any]]:
        """The plans in the cache: key region, modes by layer, predicted bytes, reason."""
        plans: list[dict[str, Any]] = self.snapshot()["plans"]
        return plans

    def snapshot(self) -> dict[str, Any]:
        """Everything that is known, as `pudica plans --json` documents it."""
        snapshot: dict[str, Any] = json.loads(self._ask(StateError, self._native.snapshot))
        return snapshot

    def explain(self, shape: Shape, budget: Budget | None = None) -> Explanation:
        """Layer by layer what a batch of this shape would run as, and why.

        `shape`: sizes in the order of the key's dimensions, (12, 384), or by name,
        {"batch": 12, "length": 384}, or as text. Raises NotLearnedError, ShapeError, BudgetError.
        """
        return Explanation(self._answer(self._native.explain, shape, budget))

    def estimate(self, shape: Shape, budget: Budget | None = None) -> Answer:
        """What a batch of this shape would need: fits, predicted, floor and keep-all peaks in
        bytes, extra seconds. Raises as explain()."""
        return Answer(self._answer(self._native.estimate, shape, budget))

    def frontier(self, shape: Shape) -> list[tuple[int, float]]:
        """(peak bytes, extra seconds) of the plans worth choosing, least time first."""
        points = self._answer(self._native.estimate, shape, None)["frontier"]
        return sorted(
            ((int(p["peak_bytes"]), float(p["extra_seconds"])) for p in points),
            key=lambda point: point[1],
        )

    def plot(self, shape: Shape, axes: Any = None) -> Any:
        """Draws frontier() with matplotlib, which must be installed; returns the axes."""
        from ._plot import plot_frontier

        return plot_frontier(self.frontier(shape), self.budget, axes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the learned model. Raises OSError, StateError."""
        text = json.dumps(self.state_dict())
        target = pathlib.Path(path)
        fresh = target.with_name(target.name + ".new")
        try:
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(target)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads what save() wrote for the same model. Raises OSError, StateError; the learned
        model stays as it was where that happens."""
        try:
            self.load_state_dict(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
        except StateError as error:
            raise StateError(f"{os.fspath(path)}: {error}") from None
        except ValueError as error:
            raise StateError(
                f"{os.fspath(path)}: no JSON ({error}); expected what save() wrote"
            ) from None

    def state_dict(self) -> dict[str, Any]:
        """The learned model as a small dict of plain values, for checkpoints."""
        return {
            "schema": _STATE_SCHEMA,
            "dimensions": [[list(axis) for axis in g] for g in self._shapes.dimensions()],
            "learned": self._ask(StateError, self._native.serialize),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What state_dict() gave. Raises StateError."""
        if not isinstance(state, dict):
            raise StateError(f"state is a {type(state).__name__}; expected a dict of state_dict()")
        if (seen := state.get("schema")) != _STATE_SCHEMA:
            raise StateError(f"state: schema is {seen!r}; expected {_STATE_SCHEMA!r}")
        try:
            groups = [[(str(p), int(a)) for p, a in group] for group in state["dimensions"]]
            learned = str(state["learned"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state: damaged: {error!r}") from None
        self._ask(StateError, self._native.restore, learned)
        self._shapes.preset(groups)

    def detach(self) -> None:
        """Leaves no hook, no cap and no changed setting. Idempotent. Backwards of forwards that
        have run already still work."""
        if not self._attached:
            return
        self._attached = False
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._places.clear()
        _optimizers.forget(self)
        for module in [m for m, ref in attached_modules.items() if ref() is self]:
            del attached_modules[module]
        self._takeover.give_back()
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
        return f"<pudica.Handle: {len(self._layers)} layers, budget {format_bytes(self.budget)}>"

    # -- hooks -------------------------------------------------------------------------------

    def _install(self, model: nn.Module, layers: list[nn.Module]) -> None:
        inner = {id(layer) for layer in layers}
        names = dict(model.named_modules(remove_duplicate=False))
        ancestors: dict[int, nn.Module] = {}
        for name, module in names.items():
            if id(module) not in inner:
                continue
            parts = name.split(".")
            above = [names[".".join(parts[:k])] for k in range(len(parts))]
            for depth, outer in enumerate(above):
                ancestors[id(outer)] = outer
                self._outer.setdefault(id(outer), set()).update(id(m) for m in above[:depth])
        for module in ancestors.values():
            if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
                continue
            self._hooks += [
                module.register_forward_pre_hook(
                    ForwardBegin(self), with_kwargs=True, prepend=True
                ),
                module.register_forward_hook(
                    ForwardEnd(self), with_kwargs=True, always_call=True
                ),
            ]
        for layer in layers:
            begin = layer.register_forward_pre_hook(LayerBegin(self), with_kwargs=True)
            end = layer.register_forward_hook(
                LayerEnd(self), with_kwargs=True, prepend=True, always_call=True
            )
            self._hooks += [begin, end]
            self._places += [Place(begin, last=True), Place(end, last=False)]
            attached_modules[layer] = weakref.ref(self)
        attached_modules[model] = weakref.ref(self)
        self._takeover = Takeover([*layers, *ancestors.values()])
        self._take_over_checkpointing()

    def _take_over_checkpointing(self) -> None:
        if self._takeover.take():
            self._say_once(
                "checkpointing",
                "gradient checkpointing was on; pudica takes over, and gives it back at detach()",
            )

    def _forward_begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        opener = self._opener() if self._opener is not None else None
        if opener is not None and opener is not module:
            if id(module) not in self._outer.get(id(opener), ()):
                return  # inside the forward that is open
        self._open_layers.clear()
        if torch._C._current_graph_task_id() >= 0:
            self._say_once(
                "reentrant",
                "a checkpoint of the user's runs layers again inside the backward; pudica leaves "
                "those calls alone (use_reentrant=False lets it plan them)",
            )
            return
        try:
            read = self._shapes.read(module, args, kwargs)
            if read is None:
                return
            _rerun.forget_dead()
            for place in self._places:
                place.take()
            self._take_over_checkpointing()
            self._note(self._native.end_step())
            self._native.begin_step(*read)
            self._opener = weakref.ref(module)
        except Exception as error:  # noqa: BLE001  (the guest rule: training goes on)
            self._failed("the start of a forward", error)

    def _forward_ends(self, module: nn.Module) -> None:
        if self._opener is None or self._opener() is not module:
            return
        self._opener = None
        if self._open_layers:
            self._open_layers.clear()
            self._native.abandon()
        self._say_compiled()
        if not self._called and not self._compiled:
            self._say_once(
                "uncalled",
                f"none of the {len(self._layers)} layers was called through its hooks in a "
                "training forward (layer.forward(x) passes them by); nothing can be planned",
            )

    def _layer_begins(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        try:
            self._called.add(id(module))
            if _in_checkpoint():
                return
            template, tensors, telling, word = take_apart(args, kwargs)
            token = _rerun.new_token()
            parts = Parts(module)
            if parts.lent:
                self._say_once(
                    "lent",
                    f"a {type(module).__name__} was called with tensors in place of its parameters "
                    "(torch.func.functional_call): such calls are kept as they are",
                )
                return
            name = f"{self._word(module, parts)}{'t' if module.training else 'e'}({word})"
            _rerun.remember(token, module, template, parts)  # first: a frame must find it
            entered = False
            try:
                entered = self._native.enter(token, name, tensors, parts.buffers, telling)
            finally:
                if not entered:
                    _rerun.forget(token)
            if entered:
                _rerun.note_attributes(token)
                self._open_layers.append((id(module), token))
        except Exception as error:  # noqa: BLE001
            self._failed("the start of a layer", error)

    def _word(self, layer: nn.Module, parts: Parts) -> str:
        key = id(layer), parts.signature()
        if (known := self._words.get(key)) is not None:
            return known
        if len(self._words) >= _MOST_WORDS:
            self._words.clear()
        word = self._words[key] = class_id(layer)
        return word

    def _layer_ends(self, module: nn.Module, output: Any) -> None:
        if not self._open_layers or self._open_layers[-1][0] != id(module):
            return
        _, token = self._open_layers.pop()
        try:
            tensors = tensors_in(output)
            if tensors:
                with _rerun.ending(token, tensors):
                    self._native.leave(tensors)
            else:
                self._native.abandon()
        except Exception as error:  # noqa: BLE001
            self._failed("the end of a layer", error)

    def _optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._say_compiled()
        try:
            if state := self._states.fresh(optimizer):
                self._native.count_residents(state)
            self._note(self._native.end_step())
        except Exception as error:  # noqa: BLE001
            self._failed("the end of a step", error)

    def _owns(self, optimizer: torch.optim.Optimizer) -> bool:
        return any(
            id(parameter) in self._parameter_ids
            for group in optimizer.param_groups
            for parameter in group["params"]
        )

    # -- messages ----------------------------------------------------------------------------

    def _note(self, outcome: int) -> None:
        if outcome & _OVERRUN:
            # Not where revoking made an infeasible plan fit: the least it foresees is an upper
            # bound while little is known.
            if outcome & _INFEASIBLE:
                self._say_infeasible()
            self._say_once(
                "overrun",
                "a step went over the budget with nothing left to give back; training goes on, "
                "stats()['overruns'] counts them",
            )
        self._drain_log()

    def _say_infeasible(self) -> None:
        if "infeasible" in self._said:
            return
        shape = self.stats()["last_step"]["shape"]
        try:
            floor = self.estimate(shape)["floor_peak_bytes"]
        except (LookupError, ValueError):
            return  # not known yet
        if floor <= self.budget:
            return
        needed, budget = format_apart(floor, self.budget)
        self._say_once(
            "infeasible",
            f"a batch of {shape} needs at least {needed}, the least that any plan of its layers "
            f"reaches, and the budget is {budget}; training goes on over it. A budget from there "
            "on, or a smaller batch, fits",
        )

    def _say_compiled(self) -> None:
        if self._compiled:
            self._say_once(
                "compiled",
                f"a {self._compiled} runs under torch.compile, which takes the layers' hooks away: "
                "no layer in it is planned. Train it uncompiled, or compile parts inside the "
                "layers",
            )

    def _say_once(self, what: str, message: str) -> None:
        if what not in self._said:
            self._said.add(what)
            _log.warning(message)

    def _failed(self, where: str, error: Exception) -> None:
        self._say_once(f"failed {where}", f"training goes on without a plan: {where}: {error!r}")

    def _drain_log(self) -> None:
        for line in _native.ops.log_lines():
            _log.log(_LEVELS.get(line[:1], logging.WARNING), line[1:])

    # -- questions ---------------------------------------------------------------------------

    @staticmethod
    def _ask(kind: Any, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except RuntimeError as error:
            raise from_native(error, kind) from None

    def _answer(self, call: Any, shape: Shape, budget: Budget | None) -> dict[str, Any]:
        limit = -1 if budget is None else resolve(budget, self._device)
        answer: dict[str, Any] = json.loads(self._ask(ShapeError, call, _shape_text(shape), limit))
        return answer

    def _load_state_file(self, path: str) -> None:
        self._state_file = path
        if path and pathlib.Path(path).exists():
            self.load(path)

    def _save_state_file(self) -> None:
        if not self._state_file:
            return
        try:
            self.save(self._state_file)
        except (OSError, StateError) as error:
            _log.warning("the learned model could not be written: %s", error)


def _in_checkpoint() -> bool:
    # A checkpoint of the user's around layers counts the tensors that are saved in it.
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return hooks is not None and getattr(hooks[0], "__module__", "") == "torch.utils.checkpoint"


def _shape_text(shape: Shape) -> str:
    if isinstance(shape, str):
        return shape
    try:
        if isinstance(shape, dict):
            return ",".join(f"{name}={operator.index(size)}" for name, size in shape.items())
        if not isinstance(shape, (bytes, bytearray)):
            return "x".join(str(operator.index(size)) for size in shape)
    except TypeError:
        pass
    raise ShapeError(
        f"shape is {shape!r}; expected whole sizes such as (12, 384), a dict by name or a text"
    )


def class_id(layer: nn.Module) -> str:
    digest = hashlib.sha256(class_word(layer).encode()).hexdigest()[:8]
    return f"{type(layer).__name__}#{digest}"
