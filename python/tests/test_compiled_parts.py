"""Parts of layers that torch.compile made: compiled anew in the middle of a layer, with sizes that
are symbols, and run again as any other operator."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from training import assert_equal, check

import pudica


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(32, 128)
        self.narrow = nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.dropout(nn.functional.gelu(self.wide(x)), 0.1, self.training)
        return self.narrow(h)  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.part = Part()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.part(self.norm(x))  # type: ignore[no-any-return]


def train(budget: int | None, **options: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """12 steps of five lengths; parameters, and the stats where there is a budget."""
    torch._dynamo.reset()
    torch.manual_seed(3)
    model = nn.Sequential(*(Layer() for _ in range(4)))
    for layer in model:
        layer.part.compile(**options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    lengths = random.Random(4)
    handle = pudica.attach(model, budget, daemon=False) if budget is not None else None
    for _ in range(12):
        batch = torch.randn(4, lengths.choice([30, 60, 90, 120, 180]), 32)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    stats = handle.stats() if handle is not None else {}
    if handle is not None:
        handle.detach()
    return {name: p.detach() for name, p in model.named_parameters()}, stats


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_they_are_planned_with_the_same_numbers(backend: str, dynamic: bool | None) -> None:
    plain, _ = train(None, backend=backend, dynamic=dynamic)
    kept, ample = train(1 << 34, backend=backend, dynamic=dynamic)
    assert_equal(kept, plain)
    tight, stats = train(int(0.6 * ample["highest_peak_bytes"]), backend=backend, dynamic=dynamic)
    assert_equal(tight, plain)
    for of in (ample, stats):
        assert of["failures"] == 0 and of["overruns"] == 0 and of["learning_steps"] <= 6
    assert stats["recomputed_layers"] > ample["recomputed_layers"]


def test_a_layer_may_reckon_with_meta_tensors() -> None:
    """They have sizes and no bytes."""

    class Reckons(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes = torch.empty(x.shape[1], 4, device="meta") @ torch.empty(4, 8, device="meta")
            return super().forward(x) * sizes.shape[1]

    torch.manual_seed(3)
    model = nn.Sequential(*(Reckons() for _ in range(4)))
    batch = torch.randn(4, 60, 32)
    check(model, lambda of: of(batch).square().mean())
