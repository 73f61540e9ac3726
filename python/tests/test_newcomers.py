"""Layers that are put into a model after attach()."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from budgets import Block, Stack, Training
from torch import nn

import pudica

GROWS_AT = 12
STEPS = 48


def loss_of(model: nn.Module, k: int) -> torch.Tensor:
    words = torch.full((3 + k % 3, 24 + 8 * (k % 5)), k % 100)
    return model(words).square().mean()  # type: ignore[no-any-return]


def grow(model: Any) -> None:
    torch.manual_seed(2)
    model.layers.extend(Block(dropout=0.1) for _ in range(6))


def swap(model: Any) -> None:
    model.layers[1] = copy.deepcopy(model.layers[2])


def insert(model: Any) -> None:
    torch.manual_seed(2)
    model.layers.insert(1, Block(dropout=0.1))


@pytest.mark.parametrize("change", [grow, swap, insert])
def test_they_are_planned_like_the_others(change: Callable[[Any], None]) -> None:
    def step(model: nn.Module, k: int) -> None:
        if k == GROWS_AT:
            change(model)
        loss_of(model, k).backward()

    training = Training(lambda: Stack(6), step, STEPS)
    course = training.held(0.1)
    calls = {grow: 12, swap: 6, insert: 7}[change]
    assert course.steps[-1]["layer_calls"] == calls
    full = training.run("1TiB", "full").steps[-1]
    assert full["recomputed_layers"] == calls


def test_a_layer_that_was_taken_out_is_let_go() -> None:
    model: Any = Stack(6)
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        for k in range(6):
            loss_of(model, k).backward()
        gone = weakref.ref(model.layers[5])
        del model.layers[5]
        grow(model)
        for k in range(6):
            loss_of(model, k).backward()
        gc.collect()
        assert gone() is None
        assert len(handle.layers) == 11
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.layers)


def test_what_is_no_layer_is_let_be() -> None:
    model: Any = Stack(4)
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        loss_of(model, 0).backward()
        model.layers.append(nn.Dropout(0.1))
        loss_of(model, 1).backward()
        assert len(handle.layers) == 4 and handle.stats()["last_step"]["layer_calls"] == 4


# Those are what was asked for.
def test_layers_that_were_named_one_by_one_stay_what_they_are() -> None:
    model: Any = Stack(4)
    with pudica.attach(model, "1GiB", list(model.layers), daemon=False) as handle:
        loss_of(model, 0).backward()
        grow(model)
        loss_of(model, 1).backward()
        assert len(handle.layers) == 4


def test_another_handles_layer_stays_its_own() -> None:
    model: Any = Stack(4)
    other: Any = Stack(4)
    with pudica.attach(other, "1GiB", daemon=False) as its, pudica.attach(
        model, "1GiB", daemon=False
    ) as handle:
        loss_of(model, 0).backward()
        model.layers.append(other.layers[0])
        loss_of(model, 1).backward()
        assert len(handle.layers) == 4 and len(its.layers) == 4


def test_copies_of_layers_carry_no_more_hooks_each_time() -> None:
    model: Any = Stack(4)
    with pudica.attach(model, "1GiB", daemon=False) as handle:
        for k in range(12):
            loss_of(model, k).backward()
            model.layers[1] = copy.deepcopy(model.layers[1])
        loss_of(model, 0).backward()
        assert len(model.layers[1]._forward_hooks) == 1
        assert len(model.layers[1]._forward_pre_hooks) == 1
        assert len(handle.layers) == 4
    layer = model.layers[1]
    assert not layer._forward_hooks and not layer._forward_hooks_always_called
    assert not layer._forward_pre_hooks_with_kwargs and not layer._forward_hooks_with_kwargs


class Lazy(Block):
    def __init__(self) -> None:
        super().__init__()
        self.inner[0] = nn.LazyLinear(128)


@pytest.mark.parametrize("make", [lambda inner: Lazy(), lambda inner: nn.Sequential(inner)])
def test_what_attach_would_refuse_is_no_newcomer(make: Callable[[nn.Module], nn.Module]) -> None:
    model: Any = Stack(4, lambda: Block())
    model.layers.append(nn.Sequential(Block()))
    model.layers.append(Lazy())
    loss_of(model, 0)  # it knows its parameters now
    with pudica.attach(model, "1GiB", "Block", daemon=False) as handle:
        loss_of(model, 0).backward()
        known = len(handle.layers)
        model.layers[2] = make(model.layers[2])
        loss_of(model, 1).backward()
        assert handle.stats()["failures"] == 0 and len(handle.layers) <= known
