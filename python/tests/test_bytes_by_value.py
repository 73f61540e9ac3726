"""What a step needs hangs on a value in the batch, which its shape does not tell. The layers' own
inputs do, in the step itself, before what they need is there."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import training_support as support
from torch import nn

import pudica
from pudica._forced import plans_of

_STEPS = 80


class Wide(nn.Module):
    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.inner = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(self.norm(x))


class Latent(nn.Module):
    """Its layers run over as many positions as the first value of the batch says."""

    def __init__(self, layers: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.layers = nn.ModuleList(Wide() for _ in range(layers))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words[:, :1].expand(-1, int(words[0, 0])) % 100)
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def batches(kind: str) -> list[torch.Tensor]:
    drawn = random.Random(1)
    found = []
    for step in range(_STEPS):
        length = drawn.choice([8, 16, 24]) if kind == "rare" else 16
        value = {
            "any": drawn.choice([8, 16, 32, 64, 128, 256]),
            "late": 16 if step < _STEPS // 2 else 256,
            "rare": 256 if drawn.random() < 0.08 else 16,
        }[kind]
        found.append(torch.zeros(8, length, dtype=torch.long).index_fill(1, torch.tensor(0), value))
    return found


def run(kind: str, budget: int | str, policy: str | None) -> tuple[Any, list[Any], str]:
    """The handle's stats, each step, and all bits in the end."""
    torch.manual_seed(0)
    model = Latent()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    steps = []
    if policy is None:
        handle = pudica.attach(model, budget, daemon=False)
    else:
        with plans_of(policy):
            handle = pudica.attach(model, budget, daemon=False)
    with handle:
        for batch in batches(kind):
            optimizer.zero_grad()
            model(batch).backward()
            optimizer.step()
            steps.append(handle.stats()["last_step"])
        return handle.stats(), steps, support.digest(model)


@pytest.mark.parametrize("kind", ["any", "late", "rare"])
def test_the_budget_holds_where_the_key_does_not_tell_what_is_needed(kind: str) -> None:
    _, kept, bits = run(kind, "1TiB", "none")
    _, full, _ = run(kind, "1TiB", "full")
    keep_all = max(step["peak_bytes"] for step in kept)
    # The first step of all keeps its layers, to try whether they can be run again.
    floor = max(step["peak_bytes"] for step in full[1:])
    for share in (0.05, 0.3, 0.6):
        budget = int(floor + share * (keep_all - floor))
        stats, steps, found = run(kind, budget, None)
        over = [(n, s["peak_bytes"] / budget) for n, s in enumerate(steps)
                if s["peak_bytes"] > budget]
        assert not over and stats["overruns"] == 0
        assert stats["failures"] == 0 and found == bits
