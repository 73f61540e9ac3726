"""What a layer does may change while it trains: hooks inside it, its state.

Layers that are run again give the bits of the forward all the same, or are kept.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from stacks import Layer, inputs, stack
from torch import nn
from torch.nn.utils import prune
from training import assert_equal, attached, check_batches, gradients

warnings.filterwarnings("ignore", module="torch.ao")
POLICIES = ["full", "reactive", "random:seed=1"]


# -- hooks inside layers -----------------------------------------------------------------------


def _add(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output + 0.5


def _clamp(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output.clamp(-0.5, 0.5)


def _scale(module: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (args[0] * 1.5,)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("at_step", [0, 2])
@pytest.mark.parametrize("which", [[2], [0, 1, 2, 3]])
@pytest.mark.parametrize("hook", [_add, _clamp, _scale])
def test_hooks_inside_layers_that_change_values(
    hook: Any, which: list[int], at_step: int, policy: str
) -> None:
    def change(model: nn.Module, step: int) -> None:
        if step == at_step:
            for index in which:
                linear = model.layers[index].inner[0]
                if hook is _scale:
                    linear.register_forward_pre_hook(hook)
                else:
                    linear.register_forward_hook(hook)

    stats = check_batches(Layer, policy, change)
    if len(which) == 1 and policy == "full":
        assert stats["recomputed_layers"] > 0, "the others are as they were"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("hook", [_add, _clamp])
def test_a_hook_on_all_layers_that_acts_on_one_and_begins_later(hook: Any, policy: str) -> None:
    """As steering is done: one function, a target, a switch."""
    acts: dict[str, Any] = {}

    def steer(module: nn.Module, args: Any, output: torch.Tensor) -> Any:
        return hook(module, args, output) if module in acts.get("on", ()) else None

    def change(model: nn.Module, step: int) -> None:
        if step == 0:
            for layer in model.layers:
                layer.inner[0].register_forward_hook(steer)
        acts["on"] = [model.layers[k].inner[0] for k in ((2,) if step < 3 else (1, 2))]

    assert check_batches(Layer, policy, change)["recomputed_layers"] > 0 or policy != "full"


def test_hooks_that_are_made_anew_in_each_step_are_of_one_class() -> None:
    seen: list[Any] = []
    handles: list[Any] = []

    def change(model: nn.Module, step: int) -> None:
        while handles:
            handles.pop().remove()
        seen.clear()
        for index, layer in enumerate(model.layers):
            handles.append(layer.inner[0].register_forward_hook(
                lambda module, args, output, index=index: seen.append(index)))

    assert check_batches(Layer, "full", change)["recomputed_layers"] >= 16
    assert seen == [0, 1, 2, 3], "each once"


def test_a_hook_on_all_layers_makes_no_class_of_each() -> None:
    def change(model: nn.Module, step: int) -> None:
        if step == 0:
            for layer in model.layers:
                layer.inner[0].register_forward_hook(_add)

    model = stack(Layer, 4)
    change(model, 0)
    with attached(model) as handle:
        model(inputs()).backward()
        assert len(handle._words.known()) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_layers_that_are_pruned_in_between(policy: str) -> None:
    def change(model: nn.Module, step: int) -> None:
        if step in (2, 4):
            for layer in model.layers:
                prune.l1_unstructured(layer.inner[0], "weight", 0.3)

    check_batches(Layer, policy, change)


# -- state -------------------------------------------------------------------------------------


class Quantized(Layer):
    def __init__(self) -> None:
        super().__init__()
        quantization = torch.ao.quantization
        self.quantize = quantization.FakeQuantize(
            observer=quantization.MovingAverageMinMaxObserver,
            quant_min=0, quant_max=255, dtype=torch.quint8,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.quantize(x))


class Normalizes(Layer):
    """By a mean that begins with the first batch's."""

    size = 1

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((self.size,), float("nan")))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            now = x.abs().mean()
            later = self.mean + 0.1 * (now - self.mean)
            self.mean.copy_(torch.where(self.mean.isnan(), now, later))
        return super().forward(x / self.mean[0])


class NormalizesByMuch(Normalizes):
    size = 1 << 16  # more than is copied in each forward


class InADict(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        now = x.detach().abs().mean()
        then = self.kept.get("mean", now)
        self.kept["mean"] = then + 0.1 * (now - then)
        return super().forward(x / self.kept["mean"])


class InAnAttribute(Layer):
    mean: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        now = x.detach().abs().mean()
        then = now if self.mean is None else self.mean
        self.mean = then + 0.1 * (now - then)
        return super().forward(x / self.mean)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "kind", [Quantized, Normalizes, NormalizesByMuch, InADict, InAnAttribute]
)
def test_state_that_begins_with_the_first_batch(kind: type[nn.Module], policy: str) -> None:
    stats = check_batches(kind, policy)
    assert policy != "full" or stats["recomputed_layers"] > 4


class BesideMuch(Layer):
    """A small buffer that it reads, and a large one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(1 << 15))
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("same", torch.zeros(1, 4).expand(4, 4))
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.norm(x) + self.mean)


def test_buffers_that_the_loop_writes_before_the_backward() -> None:
    def run(model: nn.Module) -> list[torch.Tensor]:
        found = []
        for step in range(4):
            model.zero_grad()
            loss = model(inputs(6) * (1 + step))
            for layer in model.layers:  # type: ignore[union-attr]
                layer.mean.add_(0.1)
            loss.backward()
            found += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return [*found, *(buffer.clone() for buffer in model.buffers())]

    expected = run(stack(BesideMuch, 4))
    model = stack(BesideMuch, 4)
    with attached(model) as handle:
        seen = run(model)
        assert handle.stats()["recomputed_layers"] > 0
    assert all(map(torch.equal, seen, expected))


def test_a_joint_segment_of_layers_that_keep_much_and_none() -> None:
    def mixed() -> nn.Module:
        torch.manual_seed(0)
        model = stack(Layer, 6)
        for k in (1, 3, 5):
            model.layers[k] = NormalizesByMuch()  # type: ignore[index,operator]
        return model.train()

    def run(model: nn.Module) -> list[dict[str, torch.Tensor]]:
        return [gradients(model, lambda m, k=k: m(inputs(6) * (1 + k)))  # type: ignore[misc]
                for k in range(6)]

    expected = run(mixed())
    model = mixed()
    with attached(model, "sqrt") as handle:
        for one, wanted in zip(run(model), expected, strict=True):
            assert_equal(one, wanted)
        assert handle.stats()["recomputed_layers"] > 0


def test_one_layer_that_is_called_several_times_and_keeps_state() -> None:
    def shared() -> nn.Module:
        model = stack(InAnAttribute, 3)
        model.layers[1] = model.layers[2] = model.layers[0]  # type: ignore[index,operator]
        return model

    expected = [gradients(m, run_of) for m in [shared()] for _ in range(4)]
    model = shared()
    with attached(model):
        for wanted in expected:
            assert_equal(gradients(model, run_of), wanted)


def run_of(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(inputs(6))
    return loss


@pytest.mark.parametrize("policy", POLICIES)
def test_observers_that_are_switched_on_in_between(policy: str) -> None:
    def change(model: nn.Module, step: int) -> None:
        for layer in model.layers:
            if step == 0:
                layer.quantize.disable_observer()
                layer.quantize.disable_fake_quant()
            if step == 3:
                layer.quantize.enable_observer()
                layer.quantize.enable_fake_quant()

    check_batches(Quantized, policy, change)


class Averages(Layer):
    """Writes a buffer in each call and multiplies by it from the fourth on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        y = super().forward(x)
        return y * self.mean if self.calls > 3 else y


@pytest.mark.parametrize("policy", POLICIES)
def test_a_buffer_that_is_written_and_saved_for_the_backward(policy: str) -> None:
    check_batches(Averages, policy)


class CountsInMuch(Layer):
    """A large buffer that it begins to write in its third call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("usage", torch.zeros(1 << 16))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 2:
            self.usage.add_(1)
        return super().forward(x + self.usage[:16])


def test_a_large_buffer_that_is_written_for_the_first_time_is_an_error_once() -> None:
    model = stack(CountsInMuch, 4)
    with attached(model) as handle:
        for _ in range(2):
            gradients(model, run_of)
        with pytest.raises(RuntimeError, match="its forward changed buffers, and had not"):
            gradients(model, run_of)
        for _ in range(2):
            gradients(model, run_of)
        assert handle.stats()["recomputed_layers"] > 0


class ReadsMuch(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(1 << 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + self.table[:16])


def test_a_large_buffer_that_the_loop_writes_before_the_backward_is_an_error() -> None:
    model = stack(ReadsMuch, 4)
    with attached(model):
        gradients(model, run_of)
        loss = run_of(model)
        model.layers[2].table.add_(1)  # type: ignore[index,operator,union-attr]
        with pytest.raises(RuntimeError, match="its buffer 0 was written after its forward"):
            loss.backward()


class LaterInAnAttribute(InAnAttribute):
    begun = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if self.begun else Layer.forward(self, x)


def test_state_that_begins_after_the_trial_is_found_out() -> None:
    def run(model: nn.Module) -> list[dict[str, torch.Tensor]]:
        found = []
        for k in range(8):
            LaterInAnAttribute.begun = k >= 3
            batch = inputs(6) * (1 + k)
            found.append(gradients(model, lambda m, batch=batch: m(batch)))  # type: ignore[misc]
        return found

    expected = run(stack(LaterInAnAttribute, 4))
    model = stack(LaterInAnAttribute, 4)
    with attached(model):
        seen = run(model)
    for one, wanted in zip(seen[5:], expected[5:], strict=True):
        assert_equal(one, wanted)
