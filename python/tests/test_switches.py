"""Arguments that are no tensors and change what a step needs."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from budgets import Course, Stack, Training
from torch import nn

STEPS = 60


class Switched(Stack):
    """Its head is larger where it is asked to be; what it is called is of no matter."""

    def __init__(self) -> None:
        super().__init__(6)
        self.head = nn.Linear(32, 400)

    def forward(self, words: torch.Tensor, large: Any = False, name: str = "") -> Any:
        out = self.head(super().forward(words))
        return out.repeat(1, 6, 1) if large in (True, "large") else out


def words_of(k: int) -> torch.Tensor:
    drawn = random.Random(k)
    return torch.full((drawn.randint(2, 6), drawn.randint(16, 96)), k % 100)


def low(course: Course) -> float:
    told, _ = course.told(12)
    assert len(told) >= 30
    return min(told)


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("values", [(False, True), ("small", "large"), (None, True)])
def test_a_switch_tells_kinds_of_calls_apart(values: tuple[Any, Any], share: float) -> None:
    def step(model: nn.Module, k: int) -> None:
        model(words_of(k), large=values[k % 5 == 2]).square().mean().backward()

    course = Training(Switched, step, STEPS).held(share)
    assert course.stats["learning_steps"] <= 12
    assert low(course) >= -0.005


def test_a_switch_may_be_passed_by_its_place() -> None:
    def step(model: nn.Module, k: int) -> None:
        model(words_of(k), k % 5 == 2).square().mean().backward()

    assert low(Training(Switched, step, STEPS).held(0.5)) >= -0.005


# As many kinds of calls as texts would leave none planned.
def test_a_text_is_no_switch() -> None:
    def step(model: nn.Module, k: int) -> None:
        model(words_of(k), name=f"sample {k}").square().mean().backward()

    course = Training(Switched, step, STEPS).held(0.5)
    assert course.stats["unplanned_steps"] <= 4
    assert course.stats["learning_steps"] <= 12
    assert low(course) >= -0.005


def test_a_long_text_is_none_from_the_start() -> None:
    def step(model: nn.Module, k: int) -> None:
        text = " ".join(["a long prompt that nobody would compare"] * (1 + k % 2))
        model(words_of(k), name=text).square().mean().backward()

    course = Training(Switched, step, STEPS).held(0.5)
    assert course.stats["learning_steps"] <= 8
