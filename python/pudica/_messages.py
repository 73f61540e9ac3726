"""What a handle says in the log `pudica`."""

from __future__ import annotations

import logging

from . import _native
from ._budget import format_apart
from ._questions import Questions

_log = logging.getLogger("pudica")
_LEVELS = {"w": logging.WARNING, "i": logging.INFO, "d": logging.DEBUG}
_OVERRUN, _INFEASIBLE = 2, 4  # of what a step's end reports


class Messages(Questions):
    """The part of Handle that tells the user what happens, each thing once."""

    def __init__(self) -> None:
        self._said: set[str] = set()
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
