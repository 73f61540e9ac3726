"""Layers that differ in what does not matter are of one class, and keep their own bits."""

from __future__ import annotations

import enum
from typing import Any

import pytest
import torch
from budgets import Training
from stacks import Layer, Stack
from torch import nn

from pudica._classes import LayerClasses


class Sort(enum.IntEnum):
    A = 0
    B = 1
    C = 2
    D = 3


class Scaled(Layer):
    """Knows which it is, and computes with it."""

    def __init__(self, number: int, **settings: Any) -> None:
        super().__init__()
        self.number = number
        self.dropout = nn.Dropout(0.1 + 0.01 * number)
        vars(self).update(settings)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(torch.tanh(self.inner(x)) / (1 + self.number))


def classes(layers: list[nn.Module]) -> int:
    known = LayerClasses(layers)
    return len({known.id_of(layer) for layer in layers})


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (lambda k: {}, 1),
        (lambda k: {"label": f"encoder.block {k + 7}"}, 1),
        (lambda k: {"label": f"block {k} of 4", "last": f"{k}"}, 1),
        (lambda k: {"drop_path": 0.1 + k / 9}, 1),
        (lambda k: {"drop_path": k / 3}, 3),  # 0, some, some, 1
        (lambda k: {"scale_factor": 0.1 + k / 9}, 4),
        (lambda k: {"mask": 10**5000 + k}, 4),
        (lambda k: {"sort": Sort(k)}, 4),
        (lambda k: {"width": 2**k}, 4),
        (lambda k: {"sort": "ab"[k % 2]}, 2),
        (lambda k: {"gated": k == 3}, 2),
        (lambda k: {"label": "9" * 5000 + f"{k}"}, 4),
    ],
)
def test_numbers_tell_no_layers_apart(settings: Any, found: int) -> None:
    assert classes([Scaled(k, **settings(k)) for k in range(4)]) == found


def test_layers_are_counted_among_others() -> None:
    assert classes([Scaled(k) if k % 2 else Layer() for k in range(8)]) == 2


def test_of_two_layers_a_setting_may_be_anything() -> None:
    assert classes([Scaled(k) for k in range(2)]) == 2


def test_layers_of_one_class_compute_with_their_own_numbers() -> None:
    def make() -> nn.Module:
        return Stack(*[Scaled(k) for k in range(6)])

    def step(model: nn.Module, k: int) -> None:
        torch.manual_seed(k)
        rows = torch.randn(16 + 64 * (k % 7), 8, generator=torch.Generator().manual_seed(k))
        model(rows).backward()

    training = Training(make, step, 30)
    floor, keep_all, bits = training.ends()
    course = training.run(int(floor + 0.3 * (keep_all - floor)))
    assert course.bits == bits == training.plain()
    assert any("recomputed in part" in one["reason"] for one in course.steps)
    learning = [one for one in course.steps if one["reason"].startswith("learning")]
    assert len(learning) <= 5
