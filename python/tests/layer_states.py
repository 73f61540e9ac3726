"""What layers may keep and change beside tensors that they make: how each is made, and what a layer
does with it."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn


class Count:
    def __init__(self) -> None:
        self.n = 0

    def __call__(self) -> int:
        self.n += 1
        return self.n


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


@dataclasses.dataclass
class Data:
    n: int = 0


class Marks(nn.Module):
    n = 0


def added(value: Any) -> float:
    value.n += 1
    return float(value.n)


def added_at(value: Any, key: Any) -> float:
    value[key] += 1
    return float(value[key])


def appended(value: Any) -> float:
    value.append(value[-1] + 1)
    return float(value[-1])


def written(value: torch.Tensor) -> float:
    value.data.add_(1)
    return value.sum().item()


def drawn(value: torch.Generator) -> float:
    return torch.rand((), generator=value).item()


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


Kind = tuple[Callable[[], Any], Callable[[Any], float]]
# How each is made, and what a layer does with it.
STATES: dict[str, Kind] = {
    "numpy generator": (lambda: numpy.random.default_rng(3), lambda v: v.random()),
    "numpy state": (lambda: numpy.random.RandomState(3), lambda v: v.rand()),
    "Random": (lambda: random.Random(3), lambda v: v.random()),
    "generator": (seeded, drawn),
    "generator in a dict": (lambda: {"g": seeded()}, lambda v: drawn(v["g"])),
    "deque": (lambda: collections.deque([0], 4), appended),
    "defaultdict": (lambda: collections.defaultdict(int), lambda v: added_at(v, "n")),
    "OrderedDict": (lambda: collections.OrderedDict(a=0, n=0), lambda v: added_at(v, "n")),
    "Counter": (collections.Counter, lambda v: added_at(v, "n")),
    "nested dict": (lambda: {"of": {"n": 0}}, lambda v: added_at(v["of"], "n")),
    "bytearray": (lambda: [bytearray(b"0")], lambda v: added_at(v[0], 0)),
    "array": (lambda: numpy.zeros(1), lambda v: added_at(v, 0)),
    "object": (Count, lambda v: v()),
    "slots": (Slotted, added),
    "dataclass": (Data, added),
    "object in a list": (lambda: [Data()], lambda v: added(v[0])),
    "module in a list": (lambda: [Marks()], lambda v: added(v[0])),
    "tensor in a list": (lambda: [torch.zeros(2)], lambda v: v[0].add_(1).sum().item()),
    "data": (lambda: torch.zeros(2), written),
    "large data": (lambda: torch.zeros(1 << 15), lambda v: written(v) * 1e-5),
    "iterator": (lambda: iter(range(1, 10000)), lambda v: float(next(v))),
    "count": (lambda: itertools.count(1), lambda v: float(next(v))),
}


class Layer(nn.Module):
    """Its output hangs on how often it was run."""

    def __init__(self, use: Callable[[Any], float]) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.use = use

    def scaled(self, x: torch.Tensor, state: Any) -> torch.Tensor:
        return x + self.inner(x * (1 + 0.01 * self.use(state)))
