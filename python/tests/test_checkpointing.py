"""Checkpointing of the user's is taken over wherever its switch is, and given back."""

from __future__ import annotations

import copy
import logging
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pudica

checkpointed: list[str] = []


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
        self.gradient_checkpointing = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gradient_checkpointing:
            checkpointed.append("layer")
            return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]
        return self.inner(x)  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """The older way: the switch is on what runs the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.gradient_checkpointing = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.gradient_checkpointing:
                checkpointed.append("encoder")
                x = checkpoint(layer, x, use_reentrant=False)  # type: ignore[assignment]
            else:
                x = layer(x)
        return x


def gradients(model: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(2)
    model.zero_grad()
    model(torch.ones(3, 8)).sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def switches(model: Any) -> list[bool]:
    return [model.gradient_checkpointing, *(la.gradient_checkpointing for la in model.layers)]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("on", [[0], [1, 2, 3], [2], [0, 1, 2, 3]])
def test_taken_over_said_once_and_given_back(
    on: list[int], late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(1)
    model = Encoder()
    expected = gradients(model)
    modules = [model, *model.layers]

    def switch_on() -> None:
        for index in on:
            modules[index].gradient_checkpointing = True

    checkpointed.clear()
    with caplog.at_level(logging.WARNING, logger="pudica"):
        if not late:
            switch_on()
        handle = pudica.attach(model, "1GiB", daemon=False)
        if late:
            gradients(model)
            switch_on()
        for _ in range(3):
            assert all(map(torch.equal, gradients(model), expected))
        assert not checkpointed and not any(switches(model))
        handle.detach()
    assert sum("pudica takes over" in record.message for record in caplog.records) == 1
    assert switches(model) == [index in on for index in range(4)]


class Runner(Layer):
    """As Transformers' layers: another runs it where the switch is on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gradient_checkpointing:
            return self._gradient_checkpointing_func(self.inner, x, use_reentrant=False)
        return self.inner(x)


def counting(function: Any, *args: Any, **kwargs: Any) -> Any:
    checkpointed.append("runner")
    return checkpoint(function, *args, **kwargs)


def with_runners(kind: type[Layer]) -> Any:
    torch.manual_seed(1)
    model = Encoder()
    model.layers = nn.ModuleList(kind() for _ in range(3))
    for layer in model.layers:
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = counting
    return model


def test_what_runs_a_layer_is_replaced_and_its_switch_stays() -> None:
    model = with_runners(Runner)
    expected = gradients(model)
    with pudica.attach(model, "1GiB", daemon=False):
        checkpointed.clear()
        assert all(map(torch.equal, gradients(model), expected))
        assert not checkpointed and switches(model)[1:] == [True] * 3
        copied, stored = copy.deepcopy(model), pickle.loads(pickle.dumps(model.layers[0]))
        model.layers[1]._gradient_checkpointing_func = counting  # enabled once more
        gradients(model)
        assert not checkpointed
    for layer in (*model.layers, *copied.layers, stored):
        assert layer._gradient_checkpointing_func is counting


def test_a_layer_that_calls_checkpoint_itself_is_switched_off() -> None:
    """Though it was given something to run it by, as everything with a switch is."""
    model = with_runners(Layer)
    expected = gradients(model)
    with pudica.attach(model, "1GiB", daemon=False):
        checkpointed.clear()
        assert all(map(torch.equal, gradients(model), expected))
        assert not checkpointed and not any(switches(model))
    assert switches(model) == [False, True, True, True]
