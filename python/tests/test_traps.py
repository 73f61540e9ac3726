"""What goes wrong when layers are run again, each seen once on a real model."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from stacks import Layer, Normed, Stack, run, stack
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import assert_equal, attach, attached, call, check, gradients

import pudica
from pudica import _rerun

pytest.importorskip("transformers")
import zoo  # noqa: E402


# -- 1 nested layers ---------------------------------------------------------------------------


def test_layers_inside_each_other_are_refused() -> None:
    model = stack()
    with pytest.raises(pudica.AttachError, match="inside each other"):
        pudica.attach(model, "1GiB", layers=[Layer, nn.Sequential], daemon=False)


def test_a_layer_called_by_a_layer_runs_as_part_of_it() -> None:
    class Outer(Layer):
        other: nn.Module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.other(super().forward(x)) if hasattr(self, "other") else super().forward(x)

    model = stack(Outer)
    # Held by the first, found as layers of the model all the same.
    model.layers[0].__dict__["other"] = model.layers[2]
    assert check(model, run)["recomputed_layers"] > 0


# -- 2 parameters changed between forward and backward -------------------------------------------


@pytest.mark.parametrize("which", ["weight", "bias"])
def test_a_parameter_changed_before_the_backward_raises(which: str) -> None:
    model = stack()
    with attached(model):
        gradients(model, run)
        loss = run(model)
        with torch.no_grad():
            getattr(model.layers[1].inner[0], which).add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        gradients(model, run)


# -- 3 arguments changed in place ----------------------------------------------------------------


class InPlace(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(0.5)
        return super().forward(x)


def test_layers_that_change_their_arguments_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    model = stack(InPlace)
    stats = check(model, run)
    assert stats["recomputed_layers"] == 0
    assert "changes its arguments in place" in caplog.text


def test_layers_that_change_their_arguments_are_kept_at_a_binding_budget() -> None:
    model = stack(InPlace)
    expected = gradients(model, run)
    with attached(model, "reactive", budget=1):
        for _ in range(3):
            assert_equal(gradients(model, run), expected)


# -- 4 batch norm --------------------------------------------------------------------------------


def test_running_statistics_are_updated_once() -> None:
    plain, ours = stack(Normed), stack(Normed)
    with attached(ours) as handle:
        for _ in range(3):
            assert_equal(gradients(ours, run), gradients(plain, run))
        assert handle.stats()["recomputed_layers"] > 0
    for (name, left), right in zip(ours.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(left, right), name


# -- 5 exceptions and interrupts -----------------------------------------------------------------


class Fails(Layer):
    error: BaseException | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if Fails.error is not None:
            raise Fails.error
        return y


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit()])
@pytest.mark.parametrize("policy", ["full", "reactive", "random"])
def test_the_step_after_an_exception_in_a_layer_is_right(
    error: BaseException, policy: str
) -> None:
    model = stack(Fails)
    expected = gradients(model, run)
    with attached(model, policy) as handle:
        for _ in range(2):
            gradients(model, run)
            Fails.error = error
            try:
                with pytest.raises(type(error)):
                    run(model)
            finally:
                Fails.error = None
            assert_equal(gradients(model, run), expected)
        assert policy != "full" or handle.stats()["recomputed_layers"] > 0


def test_another_model_is_right_after_an_interrupt() -> None:
    model, other = stack(Fails), stack()
    expected = gradients(other, run)
    with attached(model):
        for _ in range(2):
            gradients(model, run)
        Fails.error = KeyboardInterrupt()
        try:
            with pytest.raises(KeyboardInterrupt):
                run(model)
        finally:
            Fails.error = None
        assert_equal(gradients(other, run), expected)


_calls_left = [-1]  # not on the class: what is there is put back after a recompute


class FailsInBackward(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _calls_left[0] -= 1
        if _calls_left[0] == 0:
            raise torch.OutOfMemoryError("no memory")
        return super().forward(x)


def test_out_of_memory_in_a_recompute_is_out_of_memory() -> None:
    model = stack(FailsInBackward)
    expected = gradients(model, run)
    with attached(model):
        for _ in range(2):
            gradients(model, run)
        _calls_left[0] = 5  # the second layer that is run again
        with pytest.raises(torch.OutOfMemoryError, match="no memory"):
            gradients(model, run)
        assert_equal(gradients(model, run), expected)


# -- 6 the user's own hooks ----------------------------------------------------------------------


def _doubles_argument(module: nn.Module, args: Any) -> Any:
    return (args[0] * 2, *args[1:])


def _halves_output(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output / 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("prepend", [False, True])
def test_hooks_that_change_arguments_and_outputs(when: str, prepend: bool) -> None:
    plain, model = stack(), stack()
    calls: list[str] = []

    def hook(target: Stack, counted: bool) -> None:
        layer = target.layers[1]
        layer.register_forward_pre_hook(_doubles_argument, prepend=prepend)
        layer.register_forward_hook(_halves_output, prepend=prepend)
        if counted:
            layer.register_forward_pre_hook(lambda *_: calls.append("pre"))
            layer.register_forward_hook(lambda *_: calls.append("post"))

    hook(plain, counted=False)
    if when == "before":
        hook(model, counted=True)
    with attached(model) as handle:
        if when == "after":
            hook(model, counted=True)
        expected = gradients(plain, run)
        for _ in range(4):
            assert_equal(gradients(model, run), expected)
        assert handle.stats()["recomputed_layers"] > 0
    assert calls == ["pre", "post"] * 4


def test_hooks_added_later_leave_no_layer_out() -> None:
    model = stack()
    with attached(model) as handle:
        for layer in model.layers:
            layer.register_forward_pre_hook(_doubles_argument)
            layer.register_forward_hook(_halves_output, prepend=True)
        gradients(model, run)
        gradients(model, run)
        assert handle.stats()["last_step"]["layer_calls"] == len(model.layers), "of the first"


# -- 7 the user's own checkpointing --------------------------------------------------------------


def test_gradient_checkpointing_is_taken_over_and_given_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, batch = zoo.build("bert")
    expected = gradients(model, call(batch))
    model.gradient_checkpointing_enable()
    layers = model.bert.encoder.layer
    with attached(model) as handle:
        assert not any(layer.gradient_checkpointing for layer in layers)
        for _ in range(3):
            assert_equal(gradients(model, call(batch)), expected)
        assert handle.stats()["recomputed_layers"] == 7, "3 and 4; the last step is not counted yet"
    assert all(layer.gradient_checkpointing for layer in layers)
    assert caplog.text.count("pudica takes over") == 1
    assert_equal(gradients(model, call(batch)), expected)


def test_gradient_checkpointing_switched_on_later_is_taken_over() -> None:
    model, batch = zoo.build("llama")
    expected = gradients(model, call(batch))
    with attached(model) as handle:
        gradients(model, call(batch))
        model.gradient_checkpointing_enable()
        before = handle.stats()["recomputed_layers"]
        for _ in range(3):
            assert_equal(gradients(model, call(batch)), expected)
        assert handle.stats()["recomputed_layers"] > before + 4, "not the first step's alone"


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_around_the_layers(reentrant: bool) -> None:
    class Around(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.embed(x)
            x = checkpoint(self._middle, x, use_reentrant=reentrant)
            return self.layers[2](x).pow(2).mean()

        def _middle(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers[1](self.layers[0](x))

    torch.manual_seed(0)
    model = Around(*[Layer() for _ in range(3)]).train()
    for policy in ("full", "reactive", "random:seed=2"):
        check(model, run, policy, steps=4)


def test_a_checkpoint_inside_the_layers() -> None:
    class Inside(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(super().forward, x, use_reentrant=False)

    for policy in ("full", "reactive", "random:seed=2"):
        check(stack(Inside), run, policy, steps=4)


# -- 8 frozen layers -----------------------------------------------------------------------------


def test_frozen_layers() -> None:
    model, batch = zoo.build("llama")
    for module in (model.model.embed_tokens, *model.model.layers[:2]):
        module.requires_grad_(False)
    stats = check(model, call(batch))
    assert stats["recomputed_layers"] == 2, "of two layers; steps count once the next begins"


def test_frozen_layers_between_trained_ones() -> None:
    model = stack(count=4)
    model.layers[1].requires_grad_(False)
    assert check(model, run)["recomputed_layers"] > 0


# -- layers that do not reproduce themselves -----------------------------------------------------


class DrawsFromPython(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y * 2 if random.random() < 0.5 else y


@pytest.mark.parametrize("budget", ["1TiB", 1])
@pytest.mark.parametrize("policy", ["full", "reactive", "random:seed=1"])
@pytest.mark.parametrize("seed", range(3))
def test_layers_that_draw_from_pythons_random_are_kept(
    seed: int, policy: str, budget: Any
) -> None:
    model = stack(DrawsFromPython, 4)

    def loss(model: nn.Module) -> torch.Tensor:
        random.seed(seed)
        return run(model)

    expected = gradients(model, loss)
    with attached(model, policy, budget=budget) as handle:
        for _ in range(4):
            assert_equal(gradients(model, loss), expected)
        assert handle.stats()["recomputed_layers"] == 0


class Counts(Layer):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Counts.calls += 1
        return super().forward(x) * Counts.calls


def _counted_loss(model: nn.Module) -> torch.Tensor:
    Counts.calls = 0
    return run(model)


@pytest.mark.parametrize("policy", ["full", "reactive", "random:seed=1"])
def test_layers_that_count_their_calls_on_their_class_are_kept(policy: str) -> None:
    model = stack(Counts)
    assert check(model, _counted_loss, policy)["recomputed_layers"] == 0


class Logs(Layer):
    """State on a base class, a list and a dict among it, that no output depends on."""

    _calls = 0
    rows: list[int] = []  # noqa: RUF012
    seen: dict[str, int] = {}  # noqa: RUF012

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Logs._calls += 1
        self.rows.append(len(x))
        self.seen["rows"] = self.seen.get("rows", 0) + len(x)
        return super().forward(x)


class LogsToo(Logs):
    pass


def test_what_layers_keep_on_their_classes_is_kept_once() -> None:
    rows, seen = Logs.rows, Logs.seen
    model = stack(LogsToo)

    def loss(model: nn.Module) -> torch.Tensor:
        Logs._calls = 0
        Logs.rows.clear()
        Logs.seen.clear()
        return run(model)

    assert check(model, loss)["recomputed_layers"] > 0
    assert Logs._calls == 3 and Logs.rows == [5, 5, 5] and Logs.seen == {"rows": 15}
    assert Logs.rows is rows and Logs.seen is seen


_calls = [0]


class CountsInItsFile(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _calls[0] += 1
        return super().forward(x) * _calls[0]


@pytest.mark.xfail(strict=True, reason="the trial counts too; globals are nobody's to put back")
def test_layers_that_count_their_calls_in_their_file_are_kept() -> None:
    model = stack(CountsInItsFile)

    def loss(model: nn.Module) -> torch.Tensor:
        _calls[0] = 0
        return run(model)

    assert check(model, loss)["recomputed_layers"] == 0


# -- what a forward collects ---------------------------------------------------------------------


def test_hooks_inside_layers_run_once() -> None:
    """Features that hooks collect and the loss uses, as in distillation."""
    model = stack(count=4)
    features: list[torch.Tensor] = []
    for layer in model.layers:
        layer.inner[0].register_forward_hook(lambda module, args, output: features.append(output))

    def loss(model: nn.Module) -> torch.Tensor:
        features.clear()
        value = run(model)
        assert len(features) == 4
        return value + sum(feature.pow(2).mean() for feature in features)

    for policy in ("full", "random:seed=1", "reactive"):
        assert check(model, loss, policy)["recomputed_layers"] > 0 or policy == "reactive"
        assert len(features) == 4


class Collects(Layer):
    """Keeps an auxiliary loss on itself."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[torch.Tensor] = []
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = super().forward(x)
        self.losses.append(y.pow(4).mean())
        return y


def test_losses_that_layers_keep_on_themselves_are_there_once() -> None:
    model = stack(Collects, 4)

    def loss(model: nn.Module) -> torch.Tensor:
        for layer in model.layers:
            layer.losses.clear()
        value = run(model)
        return value + torch.stack([loss for layer in model.layers for loss in layer.losses]).sum()

    for policy in ("full", "random:seed=1", "reactive"):
        check(model, loss, policy)
        assert all(len(layer.losses) == 1 for layer in model.layers)
    assert len({layer.calls for layer in model.layers}) == 1


# -- pudica's own failures -----------------------------------------------------------------------


@pytest.mark.parametrize("failing", [(1,), (7, 8)])
def test_a_call_that_cannot_be_remembered_is_no_frame(
    failing: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = stack()
    expected = gradients(model, run)
    remember, calls, before = _rerun.remember, 0, _rerun.live_calls()

    def faulty(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls in failing:
            raise MemoryError("no room for another call")
        remember(*arguments)

    monkeypatch.setattr(_rerun, "remember", faulty)
    with attach(model) as handle:
        for _ in range(5):
            assert_equal(gradients(model, run), expected)
        assert handle.stats()["recomputed_layers"] > 6
        assert handle.stats()["failures"] == len(failing)
    assert caplog.text.count("no room for another call") == 1
    assert _rerun.live_calls() == before


def test_a_call_that_is_not_entered_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    model = stack()
    expected = gradients(model, run)
    before = _rerun.live_calls()
    with attach(model) as handle:
        native = handle._native

        class Refuses:
            def __getattr__(self, name: str) -> Any:
                return getattr(native, name)

            def enter(self, *arguments: Any) -> bool:
                raise RuntimeError("no")

        handle._native = Refuses()
        assert_equal(gradients(model, run), expected)
        assert _rerun.live_calls() == before
        handle._native = native
        assert_equal(gradients(model, run), expected)
        assert handle.stats()["failures"] == 3
