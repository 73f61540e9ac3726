"""Two losses that go back through one graph, one after the other."""

from __future__ import annotations

import random

import pytest
import torch
from budgets import Stack, Training
from torch import nn

_STEPS = 60


def twice_back(model: nn.Module, step: int) -> None:
    length = 8 * random.Random(step).randint(4, 40)
    out = model(torch.full((6, length), step % 100))
    out.square().mean().backward(retain_graph=True)
    out.abs().mean().backward()


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_two_losses_on_one_retained_graph(share: float) -> None:
    # They are not planned (see docs/python.md); they are held to the budget all the same.
    training = Training(Stack, twice_back, _STEPS)
    floor, keep_all, bits = training.ends()
    budget = int(floor + share * (keep_all - floor))
    course = training.run(budget)
    assert course.bits == bits and course.stats["failures"] == 0
    assert course.stats["overruns"] == 0, course.over(budget)
    assert course.stats["learning_steps"] <= 8
    assert "more than once" in course.steps[20]["reason"]
