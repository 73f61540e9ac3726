"""Layers whose weights a hook makes anew before each forward."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from budgets import Block, Stack, Training
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune

import pudica

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.nn.utils import spectral_norm, weight_norm


def pruned(linear: nn.Linear) -> nn.Module:
    torch.manual_seed(1)
    prune.random_unstructured(linear, "weight", 0.3)
    return linear


def made_of(change: Callable[[nn.Linear], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return Stack(6, lambda: changed(Block(dropout=0.1)))

    def changed(block: Any) -> nn.Module:
        block.inner[0] = change(block.inner[0])
        return block  # type: ignore[no-any-return]

    return make


def step(model: nn.Module, k: int) -> None:
    words = torch.full((3 + k % 3, 24 + 8 * (k % 5)), k % 100)
    model(words).square().mean().backward()


@pytest.mark.parametrize("change", [weight_norm, spectral_norm, pruned])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_layers_with_such_weights_are_recomputed(
    change: Callable[[nn.Linear], nn.Module], share: float
) -> None:
    training = Training(made_of(change), step, 24)
    assert training.run("1TiB", "full").stats["recomputed_layers"] > 6 * 20
    training.held(share)


@pytest.mark.parametrize("change", [weight_norm, spectral_norm, pruned])
def test_what_the_forward_left_on_a_module_stays(change: Callable[[nn.Linear], nn.Module]) -> None:
    torch.manual_seed(0)
    model: Any = made_of(change)()
    with pudica.attach(model, "1GiB", policy="full", daemon=False) as handle:
        for k in range(4):
            words = torch.full((3, 24 + 8 * k), k)
            out = model(words)
            weights = [layer.inner[0].weight for layer in model.layers]
            out.square().mean().backward()
            now = [layer.inner[0].weight for layer in model.layers]
            assert all(a is b for a, b in zip(weights, now))
        assert handle.stats()["recomputed_layers"] > 12


class Counting:
    """Looks at what goes into a module, leaves it there, and counts and draws beside it."""

    def __init__(self) -> None:
        self.calls = 0
        self.drawn = torch.Generator().manual_seed(1)

    def __call__(self, module: Any, args: Any) -> None:
        self.calls += 1
        torch.rand(2, generator=self.drawn)
        module.seen = args[0].detach()
        module.weight_of_it = (args[0] ** 2).mean()  # for a loss beside


# Else they would count twice.
@pytest.mark.parametrize("policy", ["full", "pudica"])
def test_hooks_that_leave_other_tensors_on_a_module_run_once(policy: str) -> None:
    hook = Counting()

    def make() -> nn.Module:
        model: Any = Stack(6)
        for layer in model.layers:
            layer.inner[0].register_forward_pre_hook(hook)
        return model

    def run(attached: bool) -> tuple[int, Any, str]:
        hook.calls, hook.drawn = 0, torch.Generator().manual_seed(1)
        training = Training(make, step, 8)
        bits = training.run("1GiB", policy).bits if attached else training.plain()
        return hook.calls, hook.drawn.get_state().tolist(), bits

    assert run(attached=True) == run(attached=False)


class Remade(nn.Module):
    """Makes its weight anew in a hook, and lets the old one go first: it may lie where that did."""

    def __init__(self) -> None:
        super().__init__()
        self.weight_v = nn.Parameter(torch.randn(32, 32) / 8)
        self.weight: torch.Tensor | None = None
        self.register_forward_pre_hook(self.remake)

    @staticmethod
    def remake(module: Any, args: Any) -> None:
        module.weight = None
        module.weight = module.weight_v * 2

    def forward(self, x: torch.Tensor) -> Any:
        return functional.linear(x, self.weight)  # type: ignore[arg-type]


def remade(_linear: nn.Linear) -> nn.Module:
    return nn.Sequential(Remade(), nn.Linear(32, 128))


def test_a_weight_that_lies_where_the_last_one_did_is_another() -> None:
    training = Training(made_of(remade), step, 12)
    course = training.run("1TiB", "full")
    assert course.bits == training.plain()
    assert course.stats["recomputed_layers"] > 6 * 8


class Noised(nn.Linear):
    """Reads what a hook leaves on it."""

    noise: Any = None

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x if self.noise is None else x * self.noise)


def noised(linear: nn.Linear) -> nn.Module:
    drawn = torch.Generator().manual_seed(linear.in_features)

    def draw(module: Any, args: Any) -> None:
        module.noise = torch.rand(args[0].shape[-1], generator=drawn)

    out = Noised(linear.in_features, linear.out_features)
    out.register_forward_pre_hook(draw)
    return out


def counted(linear: nn.Linear) -> nn.Module:
    def count(module: Any, args: Any) -> None:
        module.calls = getattr(module, "calls", 0) + 1
        module.noise = 1 / module.calls

    out = Noised(linear.in_features, linear.out_features)
    out.register_forward_pre_hook(count)
    return out


def large(linear: nn.Linear) -> nn.Module:
    def draw(module: Any, args: Any) -> None:
        module.noise = torch.rand(1 << 15)[:1] + torch.ones_like(args[0])

    out = Noised(linear.in_features, linear.out_features)
    out.register_forward_pre_hook(draw)
    return out


def followed(linear: nn.Linear) -> nn.Module:
    """A running mean of what goes in, written in place, which nobody reads."""

    def follow(module: Any, args: Any) -> None:
        if not hasattr(module, "mean"):
            module.mean = torch.zeros(200, 200)
        module.mean.mul_(0.9).add_(args[0].detach().mean() * 0.1)

    linear.register_forward_pre_hook(follow)
    return linear


# The hook is not run again: it would draw and count twice.
@pytest.mark.parametrize(
    ("change", "recomputed"), [(noised, True), (counted, True), (large, False), (followed, True)]
)
def test_what_hooks_leave_is_found_again(
    change: Callable[[nn.Linear], nn.Module], recomputed: bool
) -> None:
    training = Training(made_of(change), step, 12)
    course = training.run("1TiB", "full")
    assert course.bits == training.plain()
    assert course.stats["failures"] == 0
    assert (course.stats["recomputed_layers"] > 6 * 8) is recomputed


@pytest.mark.parametrize("policy", ["full", "pudica"])
def test_hooks_on_all_modules_run_once(policy: str) -> None:
    calls: dict[str, int] = {}

    def count(module: Any, args: Any, output: Any = None) -> None:
        name = f"{type(module).__name__} {output is None}"
        calls[name] = calls.get(name, 0) + 1

    def run(attached: bool) -> tuple[dict[str, int], str]:
        calls.clear()
        training = Training(lambda: Stack(6), step, 8)
        bits = training.run("1GiB", policy).bits if attached else training.plain()
        return dict(calls), bits

    handles = [torch.nn.modules.module.register_module_forward_pre_hook(count),
               torch.nn.modules.module.register_module_forward_hook(count)]  # fmt: skip
    try:
        assert run(attached=True) == run(attached=False)
        assert calls
    finally:
        for handle in handles:
            handle.remove()
