"""Layers of one kind over inputs of different sizes: each is priced by its own."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from budgets import Block, Training
from torch import nn

_STEPS = 60
_LEARNING_STEPS = 6


def halved(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(2, dim=1)


class Stack(nn.Module):
    """Blocks, with `scales[i]` before the i-th: the halving or doubling of the length, or nothing;
    `skips` adds what was there at the same length on the way down."""

    def __init__(self, scales: str, skips: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.scales = scales
        self.skips = skips
        self.layers = nn.ModuleList(Block() for _ in scales)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        held: list[torch.Tensor] = []
        for scale, layer in zip(self.scales, self.layers, strict=True):
            if scale == "v":
                held.append(x)
                x = halved(x)
            elif scale == "^":
                x = doubled(x)
                if self.skips:
                    x = x + held.pop()
            x = layer(x)
        return x.square().mean()


class Towers(nn.Module):
    """Queries and passages of their own lengths through the same blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.layers = nn.ModuleList(Block() for _ in range(5))

    def encode(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        return x.mean(1)

    def forward(self, query: torch.Tensor, passage: torch.Tensor) -> torch.Tensor:
        return (self.encode(query) @ self.encode(passage).T).square().mean()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "pyramid": lambda: Stack("--v-v-v-"),
    "hourglass": lambda: Stack("--v-v-^-^-"),
    "towers": Towers,
    "u-net": lambda: Stack("--v-v-^-^-", skips=True),
}


def batches(inputs: int) -> list[list[torch.Tensor]]:
    drawn = random.Random(3)
    made = torch.Generator().manual_seed(3)
    return [
        [torch.randint(0, 100, (6, 8 * drawn.randint(4, 40)), generator=made)
         for _ in range(inputs)]
        for _ in range(_STEPS)
    ]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_layers_of_one_kind_at_several_sizes_are_planned(name: str) -> None:
    data = batches(2 if name == "towers" else 1)
    training = Training(MODELS[name], lambda model, k: model(*data[k]).backward(), _STEPS)
    floor, keep_all, bits = training.ends()
    for share in (0.1, 0.5):
        budget = int(floor + share * (keep_all - floor))
        course = training.run(budget)
        stats, steps = course.stats, course.steps
        assert stats["failures"] == 0 and course.bits == bits
        assert stats["overruns"] == 0, share
        predicted = [
            (n, s["peak_bytes"] / s["predicted_peak_bytes"] - 1)
            for n, s in enumerate(steps) if n >= 10 and s["predicted_peak_bytes"]
        ]
        assert len(predicted) > 0.6 * (_STEPS - 10), stats  # in the others modes are tried
        off = sorted(abs(error) for _, error in predicted)
        assert off[len(off) // 2] < 0.001, (share, predicted)
        assert max(error for _, error in predicted) < 0.005, (share, predicted)
        assert stats["learning_steps"] <= _LEARNING_STEPS, (share, stats["learning_steps"])
