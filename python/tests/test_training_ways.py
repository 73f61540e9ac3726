"""Ways of training that people use, at a budget between floor and keep-all: every bit the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import small
import torch
from torch import nn

import pudica
from pudica._forced import plans_of

STEPS = 10
Loop = Callable[[nn.Module], None]


def _loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(out.flatten(0, 1), ids.flatten())


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)


# -- ways ------------------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A frozen linear layer and a low-rank addition that is trained."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        self.dropout = nn.Dropout(0.1)
        nn.init.normal_(self.up.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(self.dropout(x)))


def adapters() -> tuple[nn.Module, Loop]:
    model = small.make()
    model.requires_grad_(False)
    for block in model.blocks:
        block.up, block.down = Adapted(block.up), Adapted(block.down)

    def loop(model: nn.Module) -> None:
        small.train(model, STEPS, _optimizer(model))

    return model, loop


def adapters_with_frozen_embedding_that_requires_gradients() -> tuple[nn.Module, Loop]:
    """As enable_input_require_grads() does it, for checkpointing's sake."""
    model, loop = adapters()
    model.embedding.register_forward_hook(lambda m, a, output: output.requires_grad_(True))
    return model, loop


def accumulation() -> tuple[nn.Module, Loop]:
    def loop(model: nn.Module) -> None:
        optimizer = _optimizer(model)
        lengths = small.lengths(4 * STEPS)
        for step in range(STEPS):
            for part in range(4):
                number = 4 * step + part
                torch.manual_seed(100 + number)
                ids = small.batch(number, lengths[number])
                (_loss(model(ids), ids) / 4).backward()
            optimizer.step()
            optimizer.zero_grad()

    return small.make(), loop


def _pooled(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(ids)
    return nn.functional.normalize(out.mean(1), dim=-1)


def _contrastive(same_length: bool) -> tuple[nn.Module, Loop]:
    def loop(model: nn.Module) -> None:
        optimizer = _optimizer(model)
        lengths = small.lengths(2 * STEPS)
        for step in range(STEPS):
            torch.manual_seed(100 + step)
            first = small.batch(2 * step, lengths[2 * step])
            other = lengths[2 * step] if same_length else lengths[2 * step + 1]
            second = small.batch(2 * step + 1, other)
            scores = _pooled(model, first) @ _pooled(model, second).T
            nn.functional.cross_entropy(10 * scores, torch.arange(len(scores))).backward()
            optimizer.step()
            optimizer.zero_grad()

    return small.make(), loop


def contrastive() -> tuple[nn.Module, Loop]:
    return _contrastive(same_length=True)


def contrastive_of_two_lengths() -> tuple[nn.Module, Loop]:
    return _contrastive(same_length=False)


# -- checks ----------------------------------------------------------------------------------------


def _stats(made: tuple[nn.Module, Loop], budget: int, policy: str = "pudica") -> dict[str, Any]:
    model, loop = made
    with plans_of(policy), pudica.attach(model, budget, daemon=False) as handle:
        loop(model)
        return handle.stats()


@pytest.mark.parametrize(
    "way",
    [adapters, adapters_with_frozen_embedding_that_requires_gradients, accumulation, contrastive,
     contrastive_of_two_lengths],
)
def test_every_bit_is_the_same_at_a_tight_budget(way: Any) -> None:
    plain, loop = way()
    loop(plain)
    most = _stats(way(), 1 << 40, "none")["highest_peak_bytes"]
    least = _stats(way(), 1 << 40, "full")["highest_peak_bytes"]
    assert least < most
    budget = (least + most) // 2
    model, loop = way()
    with pudica.attach(model, budget, daemon=False) as handle:
        loop(model)
        stats = handle.stats()
    assert small.same(plain, model)
    assert stats["failures"] == 0
    assert stats["overruns"] == 0
    assert stats["highest_peak_bytes"] <= budget
    assert stats["recomputed_layers"] > 0


def adversarial() -> tuple[nn.Module, Loop]:
    """A discriminator that sees real and made-up batches before one backward, then its maker's."""

    def loop(model: nn.Module) -> None:
        optimizer = _optimizer(model)
        lengths = small.lengths(2 * STEPS)
        for step in range(STEPS):
            torch.manual_seed(100 + step)
            real = small.batch(2 * step, lengths[2 * step])
            made = small.batch(2 * step + 1, lengths[2 * step])
            told_apart = _pooled(model, real).sum(1) - _pooled(model, made).sum(1)
            nn.functional.softplus(-told_apart).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            _pooled(model, made).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return small.make(), loop


@pytest.mark.parametrize("way", [contrastive, contrastive_of_two_lengths, adversarial])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_forwards_that_share_a_backward_are_planned_together(
    way: Any, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    plain, loop = way()
    loop(plain)
    most = _stats(way(), 1 << 40, "none")["highest_peak_bytes"]
    least = _stats(way(), 1 << 40, "full")["highest_peak_bytes"]
    budget = int(least + share * (most - least))
    model, loop = way()
    with caplog.at_level("WARNING", "pudica"):
        with pudica.attach(model, budget, daemon=False) as handle:
            loop(model)
            stats = handle.stats()
    assert small.same(plain, model)
    assert stats["overruns"] == 0
    assert stats["learning_steps"] <= 0.65 * stats["steps"]
    assert stats["recomputed_layers"] < (1 - share / 2) * stats["layer_calls"]
    if share >= 0.5:
        assert not caplog.records, caplog.text
