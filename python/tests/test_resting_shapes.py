"""Which shapes rest when, and how far the backward of a step that rests is known to be."""

from __future__ import annotations

from typing import Any

import budgets
import torch
from budgets import Training, check
from training import AMPLE

import pudica


def test_below_a_shape_that_is_known_one_look_is_enough() -> None:
    """Every shorter length comes twice."""

    def step(model: Any, k: int) -> None:
        torch.manual_seed(k)
        words = torch.randint(0, 100, (4, 128 if k < 16 else 128 - k // 2))
        model(words).pow(2).mean().backward()

    of = Training(budgets.Stack, step, 56)
    stats = check(of.run(AMPLE), of)
    longest = Training(budgets.Stack, step, 16).run(AMPLE).stats
    shorter = stats["resting_steps"] - longest["resting_steps"]
    assert 12 <= shorter <= 20, "but for those that are looked at all the same, or recorded first"


class Unreadable(dict):  # type: ignore[type-arg]
    def values(self) -> Any:
        raise ValueError("not for you")


class Giving(budgets.Block):
    """A layer that may give what nobody can look at."""

    unreadable = False

    def forward(self, x: Any) -> Any:
        out = super().forward(x["x"] if isinstance(x, dict) else x)
        return Unreadable(x=out) if self.unreadable else out


def test_a_layers_output_that_cannot_be_looked_at_is_no_error_of_a_step_that_rests() -> None:
    torch.manual_seed(0)
    model = budgets.Stack(make=Giving)
    words = torch.zeros(4, 64, dtype=torch.long)
    with pudica.attach(model, AMPLE, daemon=False) as handle:
        for _ in range(12):
            model(words).sum().backward()
        before = handle.stats()["resting_steps"]
        model.layers[0].unreadable = True
        for _ in range(4):
            model(words).sum().backward()
        assert before > 0


def test_a_forward_in_the_backward_of_one_that_rests_is_none() -> None:
    """A hook on what the model gave, in front of all of its layers' backward."""

    def step(model: Any, k: int) -> None:
        torch.manual_seed(k)
        out = model(torch.randint(0, 100, (4, 64)))

        def again(_: torch.Tensor) -> None:
            with torch.enable_grad():
                model(torch.full((2, 32), k % 100)).square().mean().backward()

        out.register_hook(again)
        out.pow(2).mean().backward()

    of = Training(budgets.Stack, step, 40)
    stats = check(of.run(AMPLE), of)
    assert stats["resting_steps"] > 10
    assert stats["steps"] == 40
