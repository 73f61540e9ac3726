"""Trainings under budgets between the floor and keep-all, step by step, for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import training_support as support
from torch import nn

import pudica


class Block(nn.Module):
    """A residual layer over a width of `size`, with `dropout`."""

    def __init__(self, size: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.inner = nn.Sequential(
            nn.Linear(size, 4 * size), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * size, size)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(self.norm(x))


class Stack(nn.Module):
    """Embedded words through `layers` blocks of one kind, as `make` makes them."""

    def __init__(
        self, layers: int = 8, make: Callable[[], nn.Module] = lambda: Block(dropout=0.1)
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.layers = nn.ModuleList(make() for _ in range(layers))

    def forward(self, words: torch.Tensor) -> Any:
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        return x


class Course(NamedTuple):
    stats: Any
    steps: list[Any]  # stats()["last_step"] of each
    bits: str
    plans: Any = ()  # handle.plans() at the end, of a policy that was named
    ended: Any = ()  # every step that ended, where several do in a call of `step`

    def over(self, budget: int) -> list[tuple[int, float]]:
        """Steps beyond the budget, and by how much."""
        return [(n, step["peak_bytes"] / budget) for n, step in enumerate(self.steps)
                if step["peak_bytes"] > budget]

    def told(self, first: int) -> tuple[list[float], int]:
        """By what share the predicted peak of each step from `first` on was off, of those that have
        one; and of how many steps. Those that gave something back are none."""
        steps = [one for one in self.ended[first:] if one["revocations"] == 0]
        told = [one["predicted_peak_bytes"] / one["peak_bytes"] - 1 for one in steps
                if one["predicted_peak_bytes"]]  # fmt: skip
        return told, len(steps)


@contextlib.contextmanager
def every_step(handle: Any) -> Iterator[list[dict[str, Any]]]:
    """A list that fills with what `stats()["last_step"]` is as each step ends."""
    ended: list[dict[str, Any]] = []
    note = handle._note

    def noting(outcome: int) -> None:
        note(outcome)
        if outcome:
            ended.append(handle.stats()["last_step"])

    handle._note = noting
    try:
        yield ended
    finally:
        del handle._note  # a circle: what it holds would be there in later runs


class Training:
    """`make` makes a model, `step(model, k)` computes the loss of its k-th batch and goes back."""

    def __init__(
        self, make: Callable[[], nn.Module], step: Callable[[nn.Module, int], None], steps: int
    ) -> None:
        self._make, self._step, self._steps = make, step, steps

    def run(self, budget: int | str, policy: str | None = None) -> Course:
        torch.manual_seed(0)
        model = self._make()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        steps = []
        attached = pudica.attach(model, budget, daemon=False, policy=policy)
        with attached as handle, every_step(handle) as ended:
            for k in range(self._steps):
                optimizer.zero_grad()
                self._step(model, k)
                optimizer.step()
                steps.append(handle.stats()["last_step"])
            plans = handle.plans() if policy is not None else ()
            return Course(handle.stats(), steps, support.digest(model), plans, ended)

    def plain(self) -> str:
        """The bits of the same without pudica."""
        torch.manual_seed(0)
        model = self._make()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        for k in range(self._steps):
            optimizer.zero_grad()
            self._step(model, k)
            optimizer.step()
        return support.digest(model)

    def held(self, share: float) -> Course:
        """At `share` of the way from the floor to keep-all: held, with the same bits."""
        floor, keep_all, bits = self.ends()
        budget = int(floor + share * (keep_all - floor))
        course = self.run(budget)
        assert course.bits == bits and course.stats["failures"] == 0
        assert course.stats["overruns"] == 0, course.over(budget)
        return course

    def ends(self) -> tuple[int, int, str]:
        """The least peak when every layer is recomputed, that of keeping all, and the bits."""
        kept = self.run("1TiB", "none")
        full = self.run("1TiB", "full")
        # The first step of all keeps its layers, to try whether they can be run again.
        floor = max(step["peak_bytes"] for step in full.ended[1:])
        return floor, max(step["peak_bytes"] for step in kept.ended), kept.bits


def check(course: Course, of: Training) -> dict[str, Any]:
    """Its stats, if nothing went wrong and it has the bits of a plain one."""
    assert course.bits == of.plain()
    assert course.stats["failures"] == course.stats["overruns"] == 0
    return course.stats  # type: ignore[no-any-return]
