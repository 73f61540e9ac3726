"""Steps of training for tests, and what they leave."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from stacks import inputs, stack
from torch import nn

import pudica
from pudica._forced import plans_of
from pudica.parity import loss_of

AMPLE = "1TiB"
Loss = Callable[[nn.Module], torch.Tensor]


def call(batch: dict[str, Any]) -> Loss:
    return lambda model: loss_of(model(**batch))


def gradients(model: nn.Module, loss: Loss, seed: int = 3) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    value = loss(model)
    value.backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return {"loss": value.detach(), **found}


def assert_equal(seen: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert seen.keys() == expected.keys()
    different = [name for name in expected if not torch.equal(seen[name], expected[name])]
    assert not different


def attach(model: nn.Module, policy: str = "full", **options: Any) -> pudica.Handle:
    """Attached with plans by `policy`, so that layers are recomputed whatever they need."""
    options.setdefault("budget", AMPLE)
    with plans_of(policy):
        return pudica.attach(model, daemon=False, **options)


@contextlib.contextmanager
def attached(model: nn.Module, policy: str = "full", **options: Any) -> Iterator[pudica.Handle]:
    with attach(model, policy, **options) as handle:
        yield handle
        assert handle.stats()["failures"] == 0


def check(model: nn.Module, loss: Loss, policy: str = "full", steps: int = 3) -> dict[str, Any]:
    """Steps with and without pudica are equal; gives the handle's stats."""
    gradients(model, loss)
    expected = gradients(model, loss)
    with attached(model, policy) as handle:
        for _ in range(steps):
            assert_equal(gradients(model, loss), expected)
        stats = handle.stats()
    assert_equal(gradients(model, loss), expected)
    return stats


def check_batches(
    kind: type[nn.Module],
    policy: str,
    change: Callable[[nn.Module, int], Any] | None = None,
    steps: int = 6,
) -> dict[str, Any]:
    """Steps over batches that differ, with and without pudica; `change` before each."""

    def run(model: nn.Module) -> list[dict[str, torch.Tensor]]:
        found = []
        random.seed(5)
        for step in range(steps):
            if change is not None:
                change(model, step)
            batch = inputs(rows=6) * (1 + step)
            found.append(gradients(model, lambda m, batch=batch: m(batch)))  # type: ignore[misc]
        return found

    expected = run(stack(kind, 4))
    again = run(stack(kind, 4))
    model = stack(kind, 4)
    with attached(model, policy) as handle:
        seen = run(model)
        stats = handle.stats()
    for one, other, wanted in zip(seen, again, expected, strict=True):
        assert_equal(other, wanted)
        assert_equal(one, wanted)
    return stats
