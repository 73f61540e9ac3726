"""Arguments that are no tensors and change what a step needs."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from budgets import Course, Stack, Training
from torch import nn

import pudica

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


class Many(Switched):
    def forward(self, words: torch.Tensor, **switches: Any) -> Any:
        return super().forward(words, switches.get("large", False))


# That say nothing of what a step needs: each kind of call learns anew, and there is room for few.
def test_many_switches_leave_nothing_unplanned() -> None:
    def step(model: nn.Module, k: int) -> None:
        drawn = random.Random(7 * k)
        switches = {name: drawn.random() < 0.5 for name in "abcde"}
        model(words_of(k), **switches).square().mean().backward()

    course = Training(Many, step, STEPS).held(0.5)
    assert course.stats["unplanned_steps"] == 0
    assert course.stats["learning_steps"] <= 24


@pytest.mark.parametrize("first", [False, True])
def test_a_saved_state_is_of_the_calls_that_it_was_saved_behind(first: bool) -> None:
    def run(handle: Any, large: bool, steps: int) -> Any:
        """Of the last but one: a step ends as the next one begins."""
        for k in range(steps):
            model(words_of(k), large=large).square().mean().backward()
        return handle.stats()["last_step"]

    torch.manual_seed(0)
    model = Switched()
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        run(handle, True, 12)
        run(handle, False, 12)
        state = handle.state_dict()
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        handle.load_state_dict(state)
        if first:
            assert run(handle, True, 2)["reason"].startswith("learning"), "it is of other calls"
        told = run(handle, False, 2)
        assert told["predicted_peak_bytes"] == pytest.approx(told["peak_bytes"], rel=0.01)
