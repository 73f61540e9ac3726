"""Layers that catch exceptions of their operators: the one that ends a recompute is among them."""

from __future__ import annotations

import pytest
import torch
from stacks import Layer, run, stack
from torch import nn
from training import assert_equal, attached, gradients


class GoesOn(Layer):
    """Its second way saves tensors too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return super().forward(x)
        except Exception:
            return x + self.inner(x)


class TriesAgain(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            try:
                return super().forward(x)
            except RuntimeError:
                continue
        raise ValueError("three times in vain")


class GivesUp(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return super().forward(x)
        except:  # noqa: E722
            return x


class Wraps(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return super().forward(x)
        except RuntimeError as error:
            raise ValueError("the layer failed") from error


POLICIES = ["full", "reactive", "random:seed=1"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", [GivesUp, Wraps, GoesOn, TriesAgain])
def test_a_layer_that_catches_is_recomputed(
    kind: type[nn.Module], policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = stack(kind)
    expected = gradients(model, run)
    with attached(model, policy, budget=1 if policy == "reactive" else "1TiB") as handle:
        for _ in range(4):
            assert_equal(gradients(model, run), expected)
        assert handle.stats()["recomputed_layers"] > 0
    assert "failed" not in caplog.text
