"""Layers whose weights a hook makes anew before each forward."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from budgets import Block, Stack, Training
from torch import nn
from torch.nn.utils import prune

import pudica

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.nn.utils import spectral_norm, weight_norm


def pruned(linear: nn.Linear) -> nn.Module:
    torch.manual_seed(1)
    prune.random_unstructured(linear, "weight", 0.3)
    return linear


def made_of(change: Callable[[nn.Linear], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return Stack(6, lambda: changed(Block(dropout=0.1)))

    def changed(block: Any) -> nn.Module:
        block.inner[0] = change(block.inner[0])
        return block  # type: ignore[no-any-return]

    return make


def step(model: nn.Module, k: int) -> None:
    words = torch.full((3 + k % 3, 24 + 8 * (k % 5)), k % 100)
    model(words).square().mean().backward()


@pytest.mark.parametrize("change", [weight_norm, spectral_norm, pruned])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_layers_with_such_weights_are_recomputed(
    change: Callable[[nn.Linear], nn.Module], share: float
) -> None:
    training = Training(made_of(change), step, 24)
    assert training.run("1TiB", "full").stats["recomputed_layers"] > 6 * 20
    training.held(share)


@pytest.mark.parametrize("change", [weight_norm, spectral_norm, pruned])
def test_what_the_forward_left_on_a_module_stays(change: Callable[[nn.Linear], nn.Module]) -> None:
    torch.manual_seed(0)
    model: Any = made_of(change)()
    with pudica.attach(model, "1GiB", policy="full", daemon=False) as handle:
        for k in range(4):
            words = torch.full((3, 24 + 8 * k), k)
            out = model(words)
            weights = [layer.inner[0].weight for layer in model.layers]
            out.square().mean().backward()
            now = [layer.inner[0].weight for layer in model.layers]
            assert all(a is b for a, b in zip(weights, now))
        assert handle.stats()["recomputed_layers"] > 12
