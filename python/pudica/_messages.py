"""What a handle says in the log `pudica`."""

from __future__ import annotations

import logging
import threading

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from . import _native
from ._between import Between
from ._budget import format_apart
from ._questions import Questions
from ._shape import MOST_KINDS

_log = logging.getLogger("pudica")
_LEVELS = {"w": logging.WARNING, "i": logging.INFO, "d": logging.DEBUG}
_OVERRUN, _INFEASIBLE = 2, 4  # of what a step's end reports


class Messages(Questions):
    """The part of Handle that tells the user what happens, each thing once."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._failures = 0
        self._compiled = ""  # class of a module whose hooks torch.compile traced

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
        if (fraction := self.stats()["budget_fraction"]) is not None:
            budget += f" ({Between(fraction)})"
        self._say_once(
            "infeasible",
            f"a batch of {shape} needs at least {needed}, the least that any plan of its layers "
            f"reaches, and the budget is {budget}; training goes on over it. A budget from there "
            "on, or a smaller batch, fits",
        )

    def _say_unplanned(self, names: list[str]) -> None:
        """Of a step that begins; its key has these dimensions."""
        held = "Layers are kept while there is room, and given back where the budget is short"
        if names:
            self._say_once(
                "kinds",
                f"the model was called in more than {MOST_KINDS} ways that differ in which tensors "
                "it is given, their types or their ranks; the calls of further ones are not "
                f"planned (stats()['unplanned_steps']). {held}. Batches of one form are planned: "
                "the same arguments in each, lists of any length among them",
            )
        else:
            self._say_once(
                "shapeless",
                "no tensor with dimensions was found in the arguments of a forward, so that its "
                "shape is not known and it is not planned (stats()['unplanned_steps']). "
                f"{held}. Tensors are found in lists, mappings, named tuples, dataclasses and "
                "attributes of objects: pass the batch as an argument",
            )

    def _say_alone(self, layer: str) -> None:
        """A layer was called in no forward."""
        if "alone" in self._said or torch._C._current_graph_task_id() >= 0:
            return  # a checkpoint of the user's
        if any(what.startswith("failed") for what in self._said):
            return  # the forward is not known for another reason
        self._say_once(
            "alone",
            f"a {layer} was called in no forward of the model or of a module that the layers lie "
            "in: such calls belong to no step and are not planned. Call the model",
        )

    def _say_left_out(self, layer: str, thread: int) -> None:
        """A layer in no other was not entered."""
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        if hooks is not None:
            reason = "saved_tensors_hooks of the program's own (save_on_cpu too)"
        elif _get_current_dispatch_mode() is not None:
            reason = f"a {type(_get_current_dispatch_mode()).__name__} (TorchDispatchMode)"
        elif threading.get_ident() != thread:
            reason = "another thread than the forward's"
        else:
            return
        self._say_once(
            "left out",
            f"a {layer} was called under {reason}, where what it saves is not pudica's to hold: "
            "such calls are not planned, nor given back where the budget is short. Call the model "
            "outside of it",
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
        self._failures += 1
        self._say_once(f"failed {where}", f"training goes on without a plan: {where}: {error!r}")

    def _drain_log(self) -> None:
        for line in _native.ops.log_lines():
            _log.log(_LEVELS.get(line[:1], logging.WARNING), line[1:])
