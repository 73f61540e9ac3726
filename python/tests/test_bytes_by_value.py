"""What a step needs hangs on a value in the batch, which its shape does not tell. The layers' own
inputs do, in the step itself, before what they need is there."""

from __future__ import annotations

import random

import pytest
import torch
from budgets import Block, Training
from torch import nn

_STEPS = 80


class Latent(nn.Module):
    """Its layers run over as many positions as the first value of the batch says."""

    def __init__(self, layers: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.layers = nn.ModuleList(Block(64) for _ in range(layers))

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


@pytest.mark.parametrize("kind", ["any", "late", "rare"])
def test_the_budget_holds_where_the_key_does_not_tell_what_is_needed(kind: str) -> None:
    data = batches(kind)
    training = Training(Latent, lambda model, k: model(data[k]).backward(), _STEPS)
    floor, keep_all, bits = training.ends()
    for share in (0.05, 0.3, 0.6):
        budget = int(floor + share * (keep_all - floor))
        course = training.run(budget)
        assert not course.over(budget) and course.stats["overruns"] == 0
        assert course.stats["failures"] == 0 and course.bits == bits
