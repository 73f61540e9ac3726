"""Layers that change what others of their class do not: seen as they first run, and told as a class
of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from layer_states import STATES, Count, Layer
from stacks import Stack, inputs
from test_no_traces import check
from torch import nn
from training import attached

from pudica._held import HeldTensors
from pudica._tensor_state import hash_of, read_tensor

POLICIES = ("none", "full")


class Sometimes(Layer):
    """Only the layer of that index does it."""

    def __init__(self, index: int, make: Callable[[], Any], use: Callable[[Any], float]) -> None:
        super().__init__(use)
        self.index = index
        self.state = make()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(x, self.state) if self.index == 2 else x + self.inner(x)


def stack_of(make: Callable[[], Any], use: Callable[[Any], float]) -> Stack:
    return Stack(*[Sometimes(k, make, use) for k in range(4)])


# What cannot be put back where a layer is recomputed before it was known.
AT_ONCE = {("large data", "full")}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", STATES)
def test_what_one_layer_alone_changes_is_changed_once(kind: str, policy: str) -> None:
    make, use = STATES[kind]

    def train() -> None:
        assert check(lambda: stack_of(make, use), policy)["failures"] == 0

    if (kind, policy) in AT_ONCE:  # plans of the first step do not wait for what it shows
        with pytest.raises(RuntimeError, match="a large tensor.*outside the layer's forward"):
            train()
    else:
        train()


class CountsUnread(nn.Module):
    """Its output does not hang on the count."""

    def __init__(self, index: int, counts: Count) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.index = index
        self.counts = counts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.index == 2:
            self.counts()
        return x + self.inner(x)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_count_that_one_layer_keeps_goes_up_once_a_step(policy: str) -> None:
    counts = Count()
    model = Stack(*[CountsUnread(k, counts) for k in range(4)])
    with attached(model, policy):
        for _ in range(6):
            model(inputs()).backward()
            model.zero_grad()
    assert counts.n == 6


class WritesParameter(nn.Module):
    def __init__(self, index: int, size: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, size), nn.GELU(), nn.Linear(size, 16))
        self.index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.inner(x)
        if self.index == 1:
            self.inner[0].weight.data.mul_(0.9)
        return y


@pytest.mark.parametrize("policy", POLICIES)
def test_a_parameter_that_one_layer_writes_is_written_once(policy: str) -> None:
    check(lambda: Stack(*[WritesParameter(k, 32) for k in range(3)]), policy)


def test_layers_that_change_nothing_or_the_same_are_of_one_class() -> None:
    make, use = STATES["object"]

    def classes(model: nn.Module) -> int:
        with attached(model, "pudica") as handle:
            for _ in range(4):
                model(inputs()).backward()
            return len(handle.snapshot()["structure"]["classes"])

    assert classes(Stack(*[Sometimes(2, make, use) for _ in range(4)])) == 1
    assert classes(Stack(*[Sometimes(0, make, use) for _ in range(4)])) == 1
    assert classes(stack_of(make, use)) == 2


@pytest.mark.parametrize("size", [16, 1 << 12])
def test_what_has_no_memory_has_no_values(size: int) -> None:
    """As parameters have none between calls in fully sharded training."""
    weight = nn.Parameter(torch.ones(16, size))
    assert read_tensor(weight, copies=True).values
    assert hash_of(weight) != 0
    weight.untyped_storage().resize_(0)
    assert read_tensor(weight, copies=True).values is None
    assert hash_of(weight) == 0
    HeldTensors({"weight": weight}, "weight")


class ScalesItsBias(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.tanh(self.inner(x)) + x
        if self.index == 2:
            self.inner.bias.data.mul_(0.9)
        return y


def shortened(bias: nn.Parameter) -> None:
    bias.data = torch.zeros(1)


def halved(bias: nn.Parameter) -> None:
    bias.data = bias.data.half()


def freed(bias: nn.Parameter) -> None:
    bias.untyped_storage().resize_(0)


@pytest.mark.parametrize("change", [shortened, halved, freed])
def test_what_has_other_memory_by_now_is_not_written(change: Callable[[Any], None]) -> None:
    model = Stack(*[ScalesItsBias(k) for k in range(4)])
    with attached(model, "full"):
        loss = model(inputs())
        change(model.layers[2].inner.bias)
        with pytest.raises(RuntimeError, match="cannot be put back .a parameter"):
            loss.backward()


def test_a_look_that_was_broken_off_holds_nothing() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)
            self.breaks = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.breaks:
                raise KeyboardInterrupt
            y: torch.Tensor = self.inner(x)
            return y

    model = Stack(*[Breaks() for _ in range(3)])
    model.layers[1].breaks = True
    with attached(model, "none") as handle:
        with pytest.raises(KeyboardInterrupt):
            model(inputs())
        model.layers[1].breaks = False
        model(inputs()).backward()
        assert not handle._words._open
        assert sorted(handle._words._looks.values()) == [1, 1, 2], "broken off ones are not done"
