"""Layers whose forwards do not reproduce themselves, or leave something behind."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from stacks import Layer, run, stack
from torch import nn
from training import assert_equal, attached, check, gradients


class DrawsFromPython(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y * 2 if random.random() < 0.5 else y


@pytest.mark.parametrize("budget", ["1TiB", 1])
@pytest.mark.parametrize("policy", ["full", "reactive", "random:seed=1"])
@pytest.mark.parametrize("seed", range(3))
def test_layers_that_draw_from_pythons_random_find_it_as_it_was(
    seed: int, policy: str, budget: Any
) -> None:
    model = stack(DrawsFromPython, 4)

    def loss(model: nn.Module) -> torch.Tensor:
        random.seed(seed)
        return run(model)

    expected = gradients(model, loss)
    with attached(model, policy, budget=budget) as handle:
        for _ in range(4):
            assert_equal(gradients(model, loss), expected)
        assert handle.stats()["recomputed_layers"] > 0 or (policy, budget) == ("reactive", "1TiB")


class Counts(Layer):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Counts.calls += 1
        return super().forward(x) * Counts.calls


def _counted_loss(model: nn.Module) -> torch.Tensor:
    Counts.calls = 0
    return run(model)


@pytest.mark.parametrize("policy", ["full", "reactive", "random:seed=1"])
def test_layers_that_count_their_calls_on_their_class_are_kept(policy: str) -> None:
    model = stack(Counts)
    assert check(model, _counted_loss, policy)["recomputed_layers"] == 0


class Logs(Layer):
    """State on a base class, a list and a dict among it, that no output depends on."""

    _calls = 0
    rows: list[int] = []  # noqa: RUF012
    seen: dict[str, int] = {}  # noqa: RUF012

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Logs._calls += 1
        self.rows.append(len(x))
        self.seen["rows"] = self.seen.get("rows", 0) + len(x)
        return super().forward(x)


class LogsToo(Logs):
    pass


def test_what_layers_keep_on_their_classes_is_kept_once() -> None:
    rows, seen = Logs.rows, Logs.seen
    model = stack(LogsToo)

    def loss(model: nn.Module) -> torch.Tensor:
        Logs._calls = 0
        Logs.rows.clear()
        Logs.seen.clear()
        return run(model)

    assert check(model, loss)["recomputed_layers"] > 0
    assert Logs._calls == 3 and Logs.rows == [5, 5, 5] and Logs.seen == {"rows": 15}
    assert Logs.rows is rows and Logs.seen is seen


_calls = [0]


class CountsInItsFile(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _calls[0] += 1
        return super().forward(x) * _calls[0]


def test_layers_that_count_their_calls_in_their_file_are_kept() -> None:
    model = stack(CountsInItsFile)

    def loss(model: nn.Module) -> torch.Tensor:
        _calls[0] = 0
        return run(model)

    assert check(model, loss)["recomputed_layers"] == 0


# -- what a forward collects ---------------------------------------------------------------------


def test_hooks_inside_layers_run_once() -> None:
    """Features that hooks collect and the loss uses, as in distillation."""
    model = stack(count=4)
    features: list[torch.Tensor] = []
    for layer in model.layers:
        layer.inner[0].register_forward_hook(lambda module, args, output: features.append(output))

    def loss(model: nn.Module) -> torch.Tensor:
        features.clear()
        value = run(model)
        assert len(features) == 4
        return value + sum(feature.pow(2).mean() for feature in features)

    for policy in ("full", "random:seed=1", "reactive"):
        assert check(model, loss, policy)["recomputed_layers"] > 0 or policy == "reactive"
        assert len(features) == 4


class Collects(Layer):
    """Keeps an auxiliary loss on itself."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[torch.Tensor] = []
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = super().forward(x)
        self.losses.append(y.pow(4).mean())
        return y


def test_losses_that_layers_keep_on_themselves_are_there_once() -> None:
    model = stack(Collects, 4)

    def loss(model: nn.Module) -> torch.Tensor:
        for layer in model.layers:
            layer.losses.clear()
        value = run(model)
        return value + torch.stack([loss for layer in model.layers for loss in layer.losses]).sum()

    for policy in ("full", "random:seed=1", "reactive"):
        check(model, loss, policy)
        assert all(len(layer.losses) == 1 for layer in model.layers)
    assert len({layer.calls for layer in model.layers}) == 1
