"""Layers that begin to need more in mid-training, and neither arguments nor parameters tell it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import budgets
import pytest
import torch
from budgets import Training
from torch import nn

LENGTHS = (64, 96, 128)
AT = 24  # of so many steps
STEPS = 36

_copies = 1  # what the layers of `everywhere` read


class Block(budgets.Block):
    """Over `copies` copies of its input."""

    copies = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        copies = self.copies * _copies
        y = self.norm(x)
        if copies > 1:
            y = y.repeat(1, copies, 1)
        y = self.inner(y)
        return x + y[:, : x.shape[1]]


def stack() -> nn.Module:
    return budgets.Stack(make=Block)


class Wide(Block):
    """A layer of another class."""

    copies = 8


class Branching(budgets.Stack):
    """Common layers, and behind them those of one of two tasks."""

    heavy = False

    def __init__(self) -> None:
        super().__init__(6, Block)
        self.light = nn.ModuleList(budgets.Block() for _ in range(2))
        self.wide = nn.ModuleList(Wide() for _ in range(2))

    def forward(self, words: torch.Tensor) -> Any:
        x = super().forward(words)
        for layer in self.wide if self.heavy else self.light:
            x = layer(x)
        return x


def everywhere(_: Any, begun: bool) -> None:
    global _copies
    _copies = 4 if begun else 1


def in_the_upper_half(model: Any, begun: bool) -> None:
    for layer in model.layers[4:]:
        layer.copies = 4 if begun else 1


def in_one_layer(model: Any, begun: bool) -> None:
    model.layers[5].copies = 8 if begun else 1


def by_dropout(model: Any, begun: bool) -> None:
    for layer in model.layers:
        layer.inner[2].p = 0.3 if begun else 0.0


def training(change: Callable[[Any, bool], None], begins: int, steps: int) -> Training:
    def step(model: Any, k: int) -> None:
        change(model, k >= begins)
        torch.manual_seed(k)
        words = torch.randint(0, 100, (4, LENGTHS[k % 3]))
        model(words).pow(2).mean().backward()

    return Training(stack, step, steps)


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("change", [everywhere, in_the_upper_half, in_one_layer, by_dropout])
def test_the_budget_holds(change: Callable[[Any, bool], None], share: float) -> None:
    floor, most, _ = training(change, 0, 6).ends()
    budget = int(floor + share * (most - floor))
    of = training(change, AT, STEPS)
    course = of.run(budget)
    assert course.over(budget) == []
    assert course.bits == of.plain()
    assert course.stats["failures"] == 0
    assert course.stats["revocations"] > 0, "it took something to hold"


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_steps_of_one_shape_that_end_in_other_layers_do_not_run_free(share: float) -> None:
    """Which ones come nothing tells before they are there, and the common layers may be kept."""

    def often(heavy: Callable[[int], bool], steps: int) -> Training:
        def step(model: Any, k: int) -> None:
            model.heavy = heavy(k)
            torch.manual_seed(k)
            model(torch.randint(0, 100, (4, 128))).pow(2).mean().backward()

        return Training(Branching, step, steps)

    floor, most, _ = often(lambda _: True, 6).ends()
    budget = int(floor + share * (most - floor))
    of = often(lambda k: k % 7 == 3, 120)
    course = of.run(budget)
    assert course.bits == of.plain()
    over = [number for number, _ in course.over(budget)]
    assert len(over) <= 1, "from the second on it is known that either may come"
