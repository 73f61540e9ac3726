"""A layer that is run again finds what its forward found, also what it began to read or to change
after its class was tried."""

from __future__ import annotations

import contextvars
import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from layer_states import drawn, seeded
from stacks import Stack, inputs
from test_no_traces import STEPS, check
from torch import nn
from training import attached


class BeginsLate(nn.Module):
    """From its sixth call on."""

    def __init__(self, late: Callable[[Any, torch.Tensor], float], size: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.late = late
        self.calls = 0
        self.rng = numpy.random.default_rng(5)
        self.generator = seeded()
        self.history = [0.0]
        self.table = torch.ones(size, 16)
        self.register_buffer("code", torch.ones(size, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        scale = torch.ones(())
        if self.calls > 5:
            scale = self.table.clone().mean() + self.code.clone().mean()
            scale = scale + self.late(self, x.detach())
        return x + self.inner(x * scale)


def late_history(layer: Any, x: torch.Tensor) -> float:
    layer.history.append(float(x.mean()))
    return sum(layer.history[-3:])


def late_table(layer: Any, x: torch.Tensor) -> float:
    layer.table = layer.table * 0.9 + 0.1 * x.mean(0)
    return 0


def late_code(layer: Any, x: torch.Tensor) -> float:
    layer.code = layer.code * 0.9 + 0.1 * x.mean(0)
    return 0


def late_writing(layer: Any, x: torch.Tensor) -> float:
    layer.table.mul_(0.9).add_(0.1 * x.mean(0))
    return 0


LATE: dict[str, Callable[[Any, torch.Tensor], float]] = {
    "numpy": lambda layer, x: 0.1 * numpy.random.rand(),
    "random": lambda layer, x: 0.1 * random.random(),
    "own numpy": lambda layer, x: 0.1 * layer.rng.random(),
    "own generator": lambda layer, x: 0.1 * drawn(layer.generator),
    "history": late_history,
    "table": late_table,
    "code": late_code,
    "small table written": late_writing,
}


@pytest.mark.parametrize("size", [4, 1 << 12])
@pytest.mark.parametrize("kind", LATE)
def test_what_begins_after_the_class_was_tried_is_found_again(kind: str, size: int) -> None:
    if kind == "small table written" and size > 4:
        return
    stats = check(lambda: Stack(*(BeginsLate(LATE[kind], size) for _ in range(3))), "full")
    assert stats["recomputed_layers"] > 3 * 5 and stats["failures"] == 0


def test_a_large_tensor_that_a_layer_begins_to_write_fails_and_gives_no_other_bits() -> None:
    with pytest.raises(RuntimeError, match="a tensor in attribute table of a layer"):
        check(lambda: Stack(*(BeginsLate(late_writing, 1 << 12) for _ in range(3))), "full")


# -- what is there for the forward alone -----------------------------------------------------------

_scale: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=1.0)


class ReadsContext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(16) / 8.0  # of the default type
        return x + self.inner(x * _scale.get() + places.to(x.dtype))


def test_a_context_variable_of_the_forward_is_there_again() -> None:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        token = _scale.set(0.5 + 0.1 * step)
        try:
            return torch.as_tensor(model(inputs()))
        finally:
            _scale.reset(token)

    stats = check(lambda: Stack(*(ReadsContext() for _ in range(3))), "full", loss)
    assert stats["recomputed_layers"] > 0


@pytest.mark.parametrize("policy", ["full", "random:seed=1"])
def test_the_default_type_of_the_forward_is_there_again(policy: str) -> None:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        try:
            return torch.as_tensor(model(inputs().float()))
        finally:
            torch.set_default_dtype(torch.float32)

    check(lambda: Stack(*(ReadsContext() for _ in range(3))), policy, loss)


class CountsInContext(nn.Module):
    """In each run from where the forward found it, whatever an earlier run set."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _scale.set(_scale.get() + 0.1)
        return x + self.inner(x * _scale.get()).tanh()


def test_two_backwards_find_a_context_variable_alike() -> None:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        _scale.set(1.0)
        loss = torch.as_tensor(model(inputs()))
        loss.backward(retain_graph=True)
        return loss

    assert check(lambda: Stack(*(CountsInContext() for _ in range(3))), "full", loss)[
        "recomputed_layers"
    ] > 0


_seen: contextvars.ContextVar[Any] = contextvars.ContextVar("seen", default=None)


class ShowsOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.inner(x).tanh()
        _seen.set(y)
        return y


def test_a_context_variable_that_holds_an_output_keeps_no_step_alive() -> None:
    model = Stack(*(ShowsOutput() for _ in range(3))).train()
    with attached(model):
        for _ in range(3):
            model(inputs()).backward()
        outputs = []
        for _ in range(4):  # without a backward
            model(inputs())
            outputs.append(weakref.ref(_seen.get()))
        _seen.set(None)
        model(inputs()).backward()
        _seen.set(None)
        gc.collect()
        assert [ref() for ref in outputs] == [None] * 4


class TakesCalls(nn.Module):
    """Does what was left for it to do, once."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.calls: list[Callable[[], None]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.inner(x).tanh()
        while self.calls:
            self.calls.pop()()
        return y


def test_calls_that_a_layer_takes_from_a_list_are_done_once() -> None:
    done: list[int] = []

    def loss(model: nn.Module, step: int) -> torch.Tensor:
        for layer in model.layers:  # type: ignore[union-attr]
            layer.calls.append(lambda: done.append(step))
        return torch.as_tensor(model(inputs()))

    stats = check(lambda: Stack(*(TakesCalls() for _ in range(3))), "full", loss)
    assert stats["recomputed_layers"] > 0
    assert len(done) == 3 * 3 * STEPS
