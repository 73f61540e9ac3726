"""What users ask a handle, and how what was learned is saved and read again."""

from __future__ import annotations

import json
import logging
import operator
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Union

import torch
from torch import nn

from ._answers import Answer, Explanation
from ._between import Between
from ._budget import Budget, format_bytes, resolve
from ._errors import NotLearnedError, ShapeError, StateError, from_native
from ._shape import ShapeReader

_log = logging.getLogger("pudica")
_STATE_SCHEMA = "pudica.python-state/1"

Shape = Union[Sequence[int], dict[str, int], str]


class Questions:
    """The part of Handle that answers, saves and loads."""

    _native: Any
    _device: torch.device
    _shapes: ShapeReader
    _state_file: str
    _failures: int

    @property
    def layers(self) -> list[nn.Module]:
        """The modules that plans are made of."""
        raise NotImplementedError

    @property
    def budget(self) -> int:
        """Bytes that may be in use on the device at once."""
        return int(self._native.budget())

    def stats(self) -> dict[str, Any]:
        """Counts since attach() and the last step: steps, those that taught and those without a
        plan among them, recomputed_layers of layer_calls run again as a whole, recomputed_calls
        with those in part, recompute_seconds of step_seconds, revocations, overruns,
        highest_peak_bytes, host_peak_bytes (of offloaded layers), reserved_peak_bytes (from a
        CUDA device by torch's allocator; 0 on CPU), budget_bytes, policy, state, last_step, daemon.
        Of a budget of between() also budget_fraction, and budget_range: floor_bytes and
        keep_all_bytes of the longest batches, None until they are learned.

        Of the last step on a CUDA device also active_peak_bytes and reserved_peak_bytes, as
        torch's allocator counts them, and gap_bytes: what it had reserved beyond the bytes in use
        and could not have given back. Budgets are on what is reserved."""
        stats: dict[str, Any] = json.loads(self._native.stats())
        stats["failures"] += self._failures
        stats["layers"] = len(self.layers)
        return stats

    def plans(self) -> list[dict[str, Any]]:
        """The plans in the cache: key region, modes by layer, predicted bytes, reason, policy. Of
        a policy that keeps no plans: the latest one of each shape."""
        policy = self.stats()["policy"]
        if policy.split(":")[0] == "pudica":
            plans: list[dict[str, Any]] = self.snapshot()["plans"]
        else:
            plans = json.loads(self._native.taken_plans())
        return [{**plan, "policy": policy} for plan in plans]

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
            "switches": self._shapes.switches(),
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
            switches = list(state.get("switches", ()))  # those of older states are not told
            learned = str(state["learned"])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"state: damaged: {error!r}") from None
        self._ask(StateError, self._native.restore, learned)
        self._shapes.preset(groups, switches)

    @staticmethod
    def _ask(kind: Any, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except RuntimeError as error:
            raise from_native(error, kind) from None

    def _answer(self, call: Any, shape: Shape, budget: Budget | None) -> dict[str, Any]:
        limit = -1 if budget is None else self._bytes_of(budget)
        answer: dict[str, Any] = json.loads(self._ask(ShapeError, call, _shape_text(shape), limit))
        return answer

    def _bytes_of(self, budget: Budget) -> int:
        limits = resolve(budget, self._device)
        if limits.fraction is None:
            return limits.bytes
        known = int(self._native.range_bytes(limits.fraction))
        if known < 0:
            raise NotLearnedError(
                f"budget {Between(limits.fraction)}: what the longest batches need is not learned "
                "yet; run training steps first"
            )
        return known

    def _budget_words(self) -> str:
        """"20.0 GiB", "20.0 GiB (between(0.4))"."""
        stats = self.stats()
        if (fraction := stats["budget_fraction"]) is None:
            return format_bytes(self.budget)
        if stats["budget_range"] is None:
            return f"{Between(fraction)}, to be learned"
        return f"{format_bytes(self.budget)} ({Between(fraction)})"

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
