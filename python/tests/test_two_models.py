"""Two attached models in one program, whose steps follow one another or overlap."""

from __future__ import annotations

import contextlib
import logging
import random
import statistics
from typing import Any

import pytest
import torch
import training_support as support
from budgets import Stack, every_step
from torch import nn

import pudica

_STEPS = 40


def words(step: int) -> torch.Tensor:
    return torch.full((6, 8 * random.Random(step).randint(4, 40)), step % 100)


def one_after_the_other(one: nn.Module, other: nn.Module, step: int) -> None:
    """Two losses with a backward each; then both optimizers step."""
    one(words(step)).square().mean().backward()
    other(words(step)).abs().mean().backward()


def together(one: nn.Module, other: nn.Module, step: int) -> None:
    """As a generator and what judges it: one loss goes back through both."""
    (one(words(step)) - other(words(step))).square().mean().backward()


def course(loop: Any, budget: int | None) -> tuple[list[str], list[Any], list[list[Any]]]:
    """Bits of both models; their stats and ended steps, with a budget of each."""
    torch.manual_seed(0)
    models = [Stack(6), Stack(5)]
    optimizers = [torch.optim.AdamW(model.parameters(), 1e-3) for model in models]
    with contextlib.ExitStack() as stack:
        handles = [] if budget is None else [
            stack.enter_context(pudica.attach(model, budget, daemon=False)) for model in models]
        ended = [stack.enter_context(every_step(handle)) for handle in handles]
        for step in range(_STEPS):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loop(*models, step)
            for optimizer in optimizers:
                optimizer.step()
        stats = [handle.stats() for handle in handles]
    return [support.digest(model) for model in models], stats, ended


def mostly_together(one: nn.Module, other: nn.Module, step: int) -> None:
    """Each by itself in every tenth step."""
    (one_after_the_other if step % 10 == 9 else together)(one, other, step)


@pytest.fixture(name="bits", scope="module")
def bits_fixture() -> Any:
    """Of a loop, without pudica."""
    return {loop: course(loop, None)[0] for loop in (one_after_the_other, together)}


def test_two_losses_and_then_both_optimizers_are_steps_of_each(bits: Any) -> None:
    _, _, roomy = course(one_after_the_other, 1 << 40)
    most = max(step["peak_bytes"] for steps in roomy for step in steps)
    least = max(step["base_bytes"] for steps in roomy for step in steps)
    seen, stats, ended = course(one_after_the_other, (least + most) // 2)
    assert seen == bits[one_after_the_other]
    for of_one, steps in zip(stats, ended, strict=True):
        assert of_one["state"] == "planning" and of_one["steps"] == _STEPS
        assert of_one["overruns"] == of_one["failures"] == 0
        assert of_one["learning_steps"] <= 6 and of_one["recomputed_calls"] > 0
        off = [step["predicted_peak_bytes"] / step["peak_bytes"] - 1 for step in steps[16:]
               if step["predicted_peak_bytes"] and step["revocations"] == 0]  # fmt: skip
        assert len(off) > 12 and abs(statistics.median(off)) < 0.001 and min(off) > -0.005, off


def test_one_loss_of_both_is_said_not_to_be_planned(
    bits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="pudica"):
        seen, stats, _ = course(together, 1 << 40)
    assert seen == bits[together]
    assert [of_one["failures"] for of_one in stats] == [0, 0]
    said = [record.getMessage() for record in caplog.records]
    assert sum("the forward of another attached model began" in line for line in said) == 1, said
    assert sum("steps of one kind are not planned: " in line for line in said) == 1, said


def test_steps_that_are_cut_short_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="pudica"):
        course(mostly_together, 1 << 40)
    assert caplog.text.count("the forward of another attached model began") == 1, caplog.text
