"""attach() for the length of one training run: what the callbacks of trainers share."""

from __future__ import annotations

import logging
import os
import pathlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Literal

from torch import nn

from . import attach
from ._budget import Budget
from ._errors import PudicaError, StateError
from ._layers import Selector

_log = logging.getLogger("pudica")
_MEBIBYTE = 1 << 20

# Runs that ended in an exception never came to end(): the next run on their model does it.
_running: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Session]] = weakref.WeakKeyDictionary()


class Session:
    """Holds the handle of a run, its learned model between runs, and the numbers for its log."""

    def __init__(
        self,
        budget: Budget | None,
        layers: Selector | Iterable[Selector] | None,
        config: str | os.PathLike[str] | None,
        enforce: Literal["soft", "hard"],
        daemon: bool | None,
        name: str | None,
        policy: str | None = None,
    ) -> None:
        self._budget = budget
        self._layers = layers
        self._options: dict[str, Any] = {
            "config": config, "enforce": enforce, "daemon": daemon, "name": name,
            "policy": policy,
        }
        self.handle: Any = None  # of the run that goes on, else of the last one
        self.learned: dict[str, Any] | None = None
        self._forget_counts()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["handle"] = None  # belongs to this process's model
        return state

    def begin(self, model: nn.Module, check: Callable[[], None] | None = None) -> None:
        """Attaches, where `check` raises nothing. Raises as attach() and `check` do."""
        if check is not None:
            check()
        self.end()
        left = _running.pop(model, None)
        if left is not None and (session := left()) is not None:
            session.end()
        self.handle = attach(model, self._budget, self._layers, **self._options)
        _running[model] = weakref.ref(self)
        self._forget_counts()
        if self.learned:
            self._restore(self.learned)

    def end(self) -> None:
        """Detaches; what was learned stays for the next begin()."""
        if self.handle is None or not self.handle.attached:
            return
        self.learned = self.state_dict() or self.learned
        self.handle.detach()

    def state_dict(self) -> dict[str, Any]:
        """The learned model; empty where nothing is learned."""
        if self.handle is None or not self.handle.attached:
            return self.learned or {}
        try:
            return dict(self.handle.state_dict())
        except StateError:  # a policy that learns nothing
            return {}

    def save(self, path: pathlib.Path) -> None:
        """Writes the learned model. A failure is logged: training goes on."""
        if self.handle is None or not self.state_dict():
            return
        try:
            self.handle.save(path)
        except (OSError, PudicaError) as error:
            _log.warning("the learned model could not be written: %s", error)

    def load(self, path: pathlib.Path) -> bool:
        """Reads it, where it is there; what is damaged or of another model is logged and left."""
        if self.handle is None or not path.is_file():
            return False
        try:
            self.handle.load(path)
        except (OSError, PudicaError) as error:
            _log.warning("the learned model of %s is not used: %s", path, error)
            return False
        return True

    def take(self, state: dict[str, Any]) -> None:
        """A checkpoint's learned model, now or at the next begin()."""
        self.learned = state
        if self.handle is not None and self.handle.attached:
            self._restore(state)

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            self.handle.load_state_dict(state)
        except PudicaError as error:
            _log.warning("the learned model is not used: %s", error)

    # -- numbers for the log -----------------------------------------------------------------

    def _forget_counts(self) -> None:
        self._seen: dict[str, Any] = {"steps": 0, "layer_calls": 0, "recomputed_calls": 0,
                                      "recompute_seconds": 0.0, "step_seconds": 0.0}
        self._logged = self._seen
        self._highest: dict[str, Any] | None = None  # the step with the highest peak since then

    def note_step(self) -> None:
        """Call at least once between two steps of the model."""
        if self.handle is None or not self.handle.attached:
            return
        stats = self.handle.stats()
        if stats["steps"] == self._seen["steps"]:
            return
        self._seen = stats
        last = stats["last_step"]
        if self._highest is None or last["peak_bytes"] > self._highest["peak_bytes"]:
            self._highest = last

    def numbers(self, *, forget: bool) -> dict[str, float]:
        """Since the last call with `forget`: the highest peak as a share of the budget, the shares
        of the steps' time in which layers ran again and of layer calls that did, and the MiB that
        recomputing recovered at that peak: what its batch needs with everything kept, less what
        it took."""
        if self._highest is None or not self._seen["budget_bytes"]:
            return {}
        peak = self._highest["peak_bytes"]
        since = {name: self._seen[name] - self._logged[name] for name in (
            "layer_calls", "recomputed_calls", "recompute_seconds", "step_seconds")}
        seconds = since["step_seconds"]
        time_share = since["recompute_seconds"] / seconds if seconds > 0 else 0.0
        calls_share = since["recomputed_calls"] / max(1, since["layer_calls"])
        numbers = {
            "pudica/memory_of_budget": round(peak / self._seen["budget_bytes"], 4),
            "pudica/recomputed": round(min(1.0, time_share), 4),
            "pudica/recomputed_calls": round(calls_share, 4),
            "pudica/headroom_mib": round(self._recovered(self._highest) / _MEBIBYTE, 2),
        }
        if forget:
            self._logged = self._seen
            self._highest = None
        return numbers

    def _recovered(self, step: dict[str, Any]) -> int:
        if not step["recomputed_calls"] or not self.handle.attached:
            return 0
        if "keep_all_peak_bytes" not in step:
            try:
                step["keep_all_peak_bytes"] = self.handle.estimate(step["shape"])[
                    "keep_all_peak_bytes"]
            except PudicaError:
                return 0  # not learned yet
        return max(0, int(step["keep_all_peak_bytes"]) - int(step["peak_bytes"]))
