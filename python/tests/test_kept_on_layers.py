"""What layers keep on themselves, and what is changed about them while pudica is attached."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stacks import Layer, Normed, inputs, stack
from torch import nn
from training import assert_equal, attached, gradients

STEPS = 5
POLICIES = ("none", "full", "random:seed=1")


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, (int, torch.Tensor)) and not key.startswith("_is"):
                kept[f"{name}.{key}"] = torch.as_tensor(value).detach().clone()
    return kept


def train(model: nn.Module, change: Any = None) -> dict[str, torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        if change is not None:
            change(model, step)
        torch.manual_seed(step)
        model(inputs(3 + step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return state(model)


def check(kind: type[nn.Module], policy: str, change: Any = None) -> dict[str, Any]:
    expected = train(stack(kind), change)
    model = stack(kind)
    with attached(model, policy) as handle:
        seen = train(model, change)
        stats = handle.stats()
    assert seen.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(seen[name], expected[name])] == []
    return stats


# -- what layers keep on themselves ----------------------------------------------------------------


class ReplacesBuffer(Layer):
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return super().forward(x)


class UsesReplacedBuffer(ReplacesBuffer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) - self.mean


class ReplacesAttribute(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.average = torch.zeros(16)
        self._calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        self.average = 0.9 * self.average + x.detach().mean(0)
        return super().forward(x)


class WritesAttribute(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.average = torch.zeros(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average.add_(x.detach().mean(0))
        return super().forward(x)


class UsesReplacedLarge(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1 << 12, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return super().forward(x) - self.mean[0]


class WritesLarge(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.average = torch.zeros(1 << 12, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.average.add_(x.detach().mean(0))
        return super().forward(x)


class HasGenerator(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * torch.rand(16, generator=self.generator)


class HasGenerators(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.generators = {"of": torch.Generator().manual_seed(3)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * torch.rand(16, generator=self.generators["of"])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "kind",
    [ReplacesBuffer, ReplacesAttribute, UsesReplacedBuffer, WritesAttribute, HasGenerator],
)
def test_what_a_layer_replaces_on_itself_is_replaced_once(
    kind: type[nn.Module], policy: str
) -> None:
    assert (check(kind, policy)["recomputed_layers"] > 0) == (policy != "none")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (UsesReplacedLarge, "output 0 has other values"),
        (WritesLarge, "a tensor in attribute average of a layer"),
        (HasGenerators, "output 0 has other values"),
    ],
)
def test_layers_that_cannot_be_run_again_are_kept_and_run_once(
    kind: type[nn.Module], words: str, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert check(kind, policy)["recomputed_layers"] == 0
    assert caplog.text.count(words) == 1


# -- what is changed about them --------------------------------------------------------------------


def test_buffers_replaced_after_attach_are_put_back() -> None:
    def change(model: nn.Module, step: int) -> None:
        if step == 1:  # as a cast or a move of the model does
            for layer in model.layers:
                layer.norm.running_mean = layer.norm.running_mean.clone()

    assert check(Normed, "full", change)["recomputed_layers"] > 0


def test_a_module_put_into_a_layer_after_attach_is_put_back() -> None:
    def change(model: nn.Module, step: int) -> None:
        if step == 2:
            for layer in model.layers:
                layer.inner.append(nn.BatchNorm1d(16))

    assert check(Layer, "full", change)["recomputed_layers"] > 0


def test_layers_that_are_frozen_are_of_another_class() -> None:
    model = stack(count=4)
    with attached(model) as handle:
        model(inputs()).backward()
        assert len(handle._words.known()) == 1
        model.layers[2].requires_grad_(False)
        model(inputs()).backward()
        assert len(handle._words.known()) == 2
        model.eval()
        model(inputs()).backward()
        assert len(handle._words.known()) == 2, "eval() of all is said apart"


def test_layers_that_are_called_with_nested_tensors_run_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="pudica")

    def loss(model: nn.Module) -> torch.Tensor:
        rows = [inputs(rows) for rows in (3, 5)]
        nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
        x = model.embed(nested)  # type: ignore[operator]
        for layer in model.layers:  # type: ignore[union-attr]
            x = layer(x)
        return x.values().pow(2).mean()

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tanh(self.inner(x))

    model = stack(Plain)
    model.forward = lambda: loss(model)  # type: ignore[method-assign]
    expected = gradients(model, lambda m: m())
    with attached(model) as handle:
        for _ in range(3):
            assert_equal(gradients(model, lambda m: m()), expected)
        assert handle.stats()["failures"] == 0
    assert caplog.text.count("called with nested tensors") == 1
