"""Training goes on after what goes wrong or changes on the way, every bit the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import small
import torch
from torch import nn
from training import assert_equal, attached, gradients

import pudica

BUDGET = 6_000_000  # between floor and keep-all
Body = Callable[[nn.Module, torch.optim.Optimizer, int, int], None]


def _loss(model: nn.Module, step: int, length: int) -> torch.Tensor:
    torch.manual_seed(100 + step)
    ids = small.batch(step, length)
    return nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, length: int) -> None:
    _loss(model, step, length).backward()
    optimizer.step()
    optimizer.zero_grad()


def _run(model: nn.Module, body: Body, steps: int = 9) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, length in enumerate(small.lengths(steps)):
        body(model, optimizer, step, length)


def _same(body: Body) -> dict[str, Any]:
    plain, model = small.make(), small.make()
    _run(plain, body)
    with pudica.attach(model, BUDGET, daemon=False) as handle:
        _run(model, body)
        stats = handle.stats()
    assert small.same(plain, model)
    assert stats["failures"] == 0
    return stats


class Boom(Exception):
    pass


class _FailsBackward(torch.autograd.Function):
    kind: type[BaseException] = Boom

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise _FailsBackward.kind("in the backward")


@pytest.mark.parametrize("kind", [Boom, KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("block", [0, 2])
def test_after_an_exception_in_the_backward(kind: type[BaseException], block: int) -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, length: int) -> None:
        if step % 3 == 1:
            _FailsBackward.kind = kind
            hook = model.blocks[block].register_forward_hook(
                lambda module, args, output: _FailsBackward.apply(output))
            loss = _loss(model, step, length)
            hook.remove()
            with pytest.raises(kind, match="in the backward"):
                loss.backward()
            optimizer.zero_grad()
        _train(model, optimizer, step, length)

    assert _same(body)["recomputed_layers"] > 0


@pytest.mark.parametrize("kind", [Boom, KeyboardInterrupt, torch.OutOfMemoryError])
def test_after_an_exception_in_the_forward(kind: type[BaseException]) -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, length: int) -> None:
        if step % 3 == 1:
            def fail(module: nn.Module, args: Any) -> None:
                raise kind("in the forward")

            hook = model.blocks[2].up.register_forward_pre_hook(fail)
            with pytest.raises(kind, match="in the forward"):
                _loss(model, step, length)
            hook.remove()
        _train(model, optimizer, step, length)

    assert _same(body)["recomputed_layers"] > 0


def test_an_interrupt_in_a_recompute_reaches_the_user(capfd: pytest.CaptureFixture[str]) -> None:
    model = small.make()
    ids = small.batch(0, 64)

    def loss(model: nn.Module) -> torch.Tensor:
        return model(ids).pow(2).mean()

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    expected = gradients(model, loss)
    with attached(model) as handle:
        for _ in range(2):
            gradients(model, loss)
        value = loss(model)
        for block in model.blocks:
            block.forward = interrupted
        with pytest.raises(KeyboardInterrupt):
            value.backward()
        for block in model.blocks:
            del block.forward
        assert_equal(gradients(model, loss), expected)
        assert handle.stats()["recomputed_layers"] > 0
    assert capfd.readouterr() == ("", "")


def _without_gradients(
    model: nn.Module, optimizer: torch.optim.Optimizer, step: int, length: int
) -> None:
    with torch.no_grad():
        _loss(model, step, length)


def test_training_without_gradients_is_no_step() -> None:
    assert _same(_without_gradients)["steps"] == 0


def test_forwards_that_nobody_goes_back_through() -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, length: int) -> None:
        _loss(model, step, length)
        _train(model, optimizer, step, length)

    assert _same(body)["steps"] == 18


def test_a_backward_in_another_thread() -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, length: int) -> None:
        thread = threading.Thread(target=_loss(model, step, length).backward)
        thread.start()
        thread.join()
        optimizer.step()
        optimizer.zero_grad()

    assert _same(body)["recomputed_layers"] > 0


def _changes() -> Iterator[Any]:
    def layers(model: nn.Module, step: int) -> None:
        if step == 4:
            model.blocks = model.blocks[:3]

    def frozen(model: nn.Module, step: int) -> None:
        if step == 3:
            model.embedding.requires_grad_(False)
            model.blocks[0].requires_grad_(False)
        if step == 6:
            model.requires_grad_(True)

    def mode(model: nn.Module, step: int) -> None:
        model.train(step % 3 != 1)

    yield from (layers, frozen, mode)


@pytest.mark.parametrize("change", list(_changes()))
def test_a_model_that_changes_on_the_way(change: Any) -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, length: int) -> None:
        change(model, step)
        _train(model, optimizer, step, length)

    assert _same(body)["steps"] == 9
