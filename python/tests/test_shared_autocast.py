"""Forwards under one autocast: the first casts the weights, the others find them cast."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest
import torch
from budgets import Stack, Training
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils.checkpoint import checkpoint

import pudica

_STEPS = 36


def drawn(step: int, k: int = 0) -> torch.Tensor:
    return torch.full((6, 8 * random.Random(step + 1000 * k).randint(4, 24)), step % 100)


def pair(model: nn.Module, step: int) -> None:
    """Two views of a batch and their loss."""
    with torch.autocast("cpu", torch.bfloat16):
        one, other = (model(drawn(step)).mean(1) for _ in range(2))
        nn.functional.cross_entropy(one @ other.T, torch.arange(6)).backward()


def query_and_document(model: nn.Module, step: int) -> None:
    """A short text and a long one, which are not of one length; the backward outside."""
    with torch.autocast("cpu", torch.bfloat16):
        query, document = (model(drawn(step, k)[:, : 48 if k == 0 else None]) for k in range(2))
        loss = nn.functional.cross_entropy(query.mean(1) @ document.mean(1).T, torch.arange(6))
    loss.backward()


def triplet(model: nn.Module, step: int) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        anchor, same, other = (model(drawn(step, k)).mean(1) for k in range(3))
        loss = nn.functional.triplet_margin_loss(anchor, same, other)
    loss.backward()


def micro_batches(model: nn.Module, step: int) -> None:
    """Three forwards, each with its backward, and the casts outlive all of them."""
    with torch.autocast("cpu", torch.bfloat16):
        for k in range(3):
            model(drawn(step, k)).square().mean().backward()


def alone_or_two(model: nn.Module, step: int) -> None:
    pair(model, step) if step % 3 else one_each(model, step)


def one_each(model: nn.Module, step: int) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(drawn(step)).square().mean()
    loss.backward()


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("loop", [pair, query_and_document, triplet, micro_batches, alone_or_two])
def test_peaks_are_predicted(loop: Any, share: float) -> None:
    told, steps = Training(Stack, loop, _STEPS).held(share).told(20)
    assert len(told) > 0.6 * steps
    assert abs(statistics.median(told)) < 0.001
    if share >= 0.5:  # near the floor lie modes that any autocast tells low (decision 54, "Left")
        assert min(told) > -0.005 and max(told) < 0.05


class Looped(Stack):
    """Its layers several times over, as ALBERT has them."""

    def __init__(self, layers: int, times: int) -> None:
        super().__init__(layers)
        self.times = times

    def forward(self, words: torch.Tensor) -> Any:
        x = self.embed(words)
        for _ in range(self.times):
            for layer in self.layers:
                x = layer(x)
        return x


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize(("layers", "times"), [(1, 6), (2, 3)])
def test_peaks_of_layers_that_are_called_again(layers: int, times: int, share: float) -> None:
    course = Training(lambda: Looped(layers, times), one_each, _STEPS).held(share)
    assert course.stats["learning_steps"] <= 6
    told, steps = course.told(16)
    assert len(told) > 0.6 * steps
    assert abs(statistics.median(told)) < 0.001
    if share >= 0.5:
        assert min(told) > -0.005 and max(told) < 0.05


def test_casts_that_only_stand_for_weights() -> None:
    # What FakeTensorMode cast is in autocast's cache, and the next forward computes with it.
    def losses(model: nn.Module) -> list[torch.Tensor]:
        out = []
        for step in range(4):
            with torch.autocast("cpu", torch.bfloat16):
                if step == 0:
                    with FakeTensorMode(allow_non_fake_inputs=True):
                        model(drawn(step))
                loss = model(drawn(step)).square().mean()
            loss.backward()
            out.append(loss.detach())
        return out

    torch.manual_seed(0)
    plain = losses(Stack())
    torch.manual_seed(0)
    model = Stack()
    with pudica.attach(model, "1TiB", daemon=False) as handle:
        planned = losses(model)
        assert handle.stats()["failures"] == 0
    assert isinstance(plain[0], FakeTensor) and isinstance(planned[0], FakeTensor)
    assert [one.item() for one in planned[1:]] == [one.item() for one in plain[1:]]


@pytest.mark.parametrize("cached", [True, False, None])
def test_layers_that_find_casts_are_a_class_of_their_own(cached: bool | None) -> None:
    model = Looped(2, 3)
    with pudica.attach(model, "1TiB", daemon=False) as handle:
        for step in range(2):
            with torch.autocast(
                "cpu", torch.bfloat16, enabled=cached is not None, cache_enabled=bool(cached)
            ):
                model(drawn(step)).square().mean().backward()
        classes = {row["class_name"] for row in handle.snapshot()["learned"] if row["class_name"]}
    assert len(classes) == (2 if cached else 1), classes


def test_calls_that_were_passed_by_left_casts_too() -> None:
    """A step that rests wakes at a layer that is called in another way."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(32, 32)

        def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> Any:
            y = torch.relu(self.inner(x))
            return y if scale is None else y * scale

    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Scaled() for _ in range(2))
            self.scale: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> Any:
            for k in range(6):
                x = self.layers[k % 2](x, self.scale if k == 4 else None)
            return x

    torch.manual_seed(0)
    model = Repeated()
    called: list[str] = []
    with pudica.attach(model, "1TiB", daemon=False) as handle:
        of = handle._words.of
        for step in range(29):
            if step == 28:
                assert handle.stats()["resting_steps"] > 8
                model.scale = torch.ones(())
                handle._words.of = lambda *given: called.append(of(*given)) or called[-1]
            with torch.autocast("cpu", torch.bfloat16):
                model(torch.ones(4, 16, 32)).square().mean().backward()
        del handle._words.of
    assert called and all(word.endswith("+") for word in called), called


def test_calls_in_a_checkpoint_of_the_users_left_casts_too() -> None:
    class Checkpointed(Looped):
        def forward(self, words: torch.Tensor) -> Any:
            x = self.embed(words)
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            for layer in self.layers:
                x = layer(x)
            return x

    called: list[str] = []
    model = Checkpointed(2, 1)
    with pudica.attach(model, "1TiB", daemon=False) as handle:
        of = handle._words.of
        handle._words.of = lambda *given: called.append(of(*given)) or called[-1]
        one_each(model, 0)
        del handle._words.of
    assert len(called) == 2 and all(word.endswith("+") for word in called), called


def test_what_is_learned_tells_which_forwards_found_casts() -> None:
    torch.manual_seed(0)
    model = Stack()
    with pudica.attach(model, "1TiB", daemon=False) as handle:
        for step in range(8):
            pair(model, step)
        learned = {row["segment"] for row in handle.snapshot()["learned"]}
    assert "forward/0/keep" in learned and "forward/0/keep/casts-present" in learned
    assert not any("backward" in name and "casts" in name for name in learned)
