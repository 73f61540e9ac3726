"""A stack of small layers of any kind, and its loss."""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(size, size), nn.Tanh())
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.inner(x))


class Normed(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.norm(x))


class Stack(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return x.pow(2).mean()


def stack(kind: type[nn.Module] = Layer, count: int = 3) -> Stack:
    torch.manual_seed(0)
    return Stack(*[kind() for _ in range(count)]).train()


def inputs(rows: int = 5) -> torch.Tensor:
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(1))


def run(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(inputs())
    return loss
