"""Two losses that go back through one graph, one after the other; backwards inside another one."""

from __future__ import annotations

import contextlib
import logging
import random
import statistics
from typing import Any

import pytest
import torch
from budgets import Stack, Training
from torch import nn
from torch.utils.checkpoint import checkpoint

import pudica

_STEPS = 60


def twice_back(model: nn.Module, step: int) -> None:
    length = 8 * random.Random(step).randint(4, 40)
    out = model(torch.full((6, length), step % 100))
    out.square().mean().backward(retain_graph=True)
    out.abs().mean().backward()


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_two_losses_on_one_retained_graph(
    share: float, caplog: pytest.LogCaptureFixture
) -> None:
    # They are not planned (see docs/python.md); they are held to the budget all the same.
    course = Training(Stack, twice_back, _STEPS).held(share)
    assert course.stats["learning_steps"] <= 8
    assert "more than once" in course.steps[20]["reason"]
    assert "not planned: the backward goes through the layers more than once" in caplog.text


def pair_of_views(model: nn.Module, step: int) -> None:
    """Batches of two lengths, one loss between them: the longer one first every other time."""
    drawn = random.Random(step)
    short, long = sorted(8 * drawn.randint(4, 40) for _ in range(2))
    lengths = (long, short) if step % 2 else (short, long)
    one, other = (model(torch.full((6, length), step % 100)).mean(1) for length in lengths)
    nn.functional.cross_entropy(one @ other.T, torch.arange(6)).backward()


@pytest.mark.parametrize("share", [0.05, 0.5, 2.0])
def test_forwards_that_share_a_backward_have_predicted_peaks(share: float) -> None:
    told, steps = Training(Stack, pair_of_views, _STEPS).held(share).told(24)
    assert len(told) > 0.6 * steps
    assert abs(statistics.median(told)) < 0.001
    assert min(told) > -0.005 and max(told) < 0.05


def gradient_cache(model: nn.Module, step: int) -> None:
    """GradCache: outputs of all parts without gradients first, and a loss of them. The hook on its
    gradient runs each part again, with gradients, and goes back through it."""
    drawn = random.Random(step)
    parts = [torch.full((2, 8 * drawn.randint(4, 40)), step % 100) for _ in range(3)]
    seeds = [10 * step + k for k in range(3)]

    def run(part: torch.Tensor, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        out: torch.Tensor = model(part).mean(1)
        return out

    with torch.no_grad():
        outputs = [run(part, seed) for part, seed in zip(parts, seeds, strict=True)]
    for output in outputs:
        output.requires_grad_(True)
    together = torch.cat(outputs)
    (together @ together.T).softmax(-1).diagonal().sum().backward()

    def again(_: torch.Tensor) -> None:
        with torch.enable_grad():
            for part, seed, output in zip(parts, seeds, outputs, strict=True):
                out = run(part, seed)  # lives until the next one takes its name
                (out * output.grad).sum().backward()

    loss = torch.zeros((), requires_grad=True)
    loss.register_hook(again)
    loss.backward()


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_forwards_in_a_hook_of_a_backward_are_steps(share: float) -> None:
    course = Training(Stack, gradient_cache, _STEPS).held(share)
    assert course.stats["steps"] == 3 * _STEPS and course.stats["unplanned_steps"] == 0
    assert course.stats["learning_steps"] <= 8 and course.stats["recomputed_calls"] > 0
    off = [step["peak_bytes"] / step["predicted_peak_bytes"] - 1
           for step in course.ended[30:] if step["predicted_peak_bytes"]]
    assert len(off) >= 135 and max(map(abs, off)) <= 5e-3, off


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_around_the_model_is_no_step_of_its_own(
    reentrant: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def step(model: nn.Module, k: int) -> None:
        x = torch.zeros((), requires_grad=True)  # reentrant ones go back only where an input asks

        def run(x: torch.Tensor) -> Any:
            return model(torch.full((6, 64), k % 100)) + x

        checkpoint(run, x, use_reentrant=reentrant).square().mean().backward()

    training = Training(Stack, step, 6)
    with caplog.at_level(logging.WARNING, logger="pudica"):
        course = training.run("1TiB")
    assert course.bits == training.plain() and course.stats["failures"] == 0
    assert course.stats["layer_calls"] == 0
    assert "runs layers again inside the backward" in caplog.text


def given_again(model: Any, step: int) -> None:
    """As losses at several sizes of an embedding do it: what the model gave for three batches is
    given again, by its own forward in another's place, and all go into one loss."""
    rows, drawn = 4, random.Random(step)
    batches = [torch.full((rows, 8 * drawn.randint(4, 20)), step % 100) for _ in range(3)]
    given: list[torch.Tensor] = []
    loss = torch.zeros(())
    forward = model.forward
    for size in (32, 16, 8):
        if size < 32:
            of_before = iter(given)
            model.forward = lambda words, again=of_before: next(again)
        outputs = [model(words) for words in batches]
        given = given or outputs
        one, two, three = (output.mean(1)[:, :size] for output in outputs)
        loss = loss + (one @ (two + three).T).softmax(-1).diagonal().sum()
    model.forward = forward
    loss.backward()


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_forwards_that_give_what_was_made_before_are_no_steps(share: float) -> None:
    course = Training(Stack, given_again, _STEPS).held(share)
    assert course.stats["state"] == "planning"
    assert sum(step["reason"].startswith("learning") for step in course.steps) <= 6
    assert course.stats["unplanned_steps"] <= 6, "those of the first step, which nobody could know"
    assert course.stats["steps"] <= 3 * _STEPS + 6


def test_one_forward_that_others_look_into_is_none_without_layers() -> None:
    """What a hook of the program's own packs is not planned; the layers ran all the same."""

    def step(model: nn.Module, k: int) -> None:
        context = torch.autograd.graph.save_on_cpu() if k == 3 else contextlib.nullcontext()
        with context:
            model(torch.full((6, 64), k % 100)).square().mean().backward()

    training = Training(Stack, step, 8)
    torch.manual_seed(0)
    model = Stack()
    with pudica.attach(model, "1TiB", daemon=False) as handle:
        for k in range(8):
            step(model, k)
        assert not handle._without_layers
    assert training.run("1TiB").bits == training.plain()


def in_its_own_backward(model: nn.Module, step: int) -> None:
    """A hook on what the model gave runs it again, while its own backward is still to come."""
    length = 8 * random.Random(step).randint(4, 40)
    out = model(torch.full((6, length), step % 100))

    def again(_: torch.Tensor) -> None:
        with torch.enable_grad():
            model(torch.full((2, 32), step % 100)).square().mean().backward()

    out.register_hook(again)
    out.square().mean().backward()


def test_a_forward_in_the_backward_that_an_open_step_waits_for_is_none() -> None:
    course = Training(Stack, in_its_own_backward, _STEPS).held(0.5)
    assert course.stats["steps"] == _STEPS and course.stats["state"] == "planning"
