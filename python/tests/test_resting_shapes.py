"""Which shapes rest when, and how far the backward of a step that rests is known to be."""

from __future__ import annotations

from typing import Any

import budgets
import torch
from budgets import Training, check
from training import AMPLE


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
