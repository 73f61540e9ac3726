"""What goes wrong when layers are run again, each seen once on a real model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stacks import Layer, Normed, Stack, run, stack
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import assert_equal, attached, call, check, gradients

import pudica

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


def test_a_parameter_replaced_before_the_backward() -> None:
    """What was saved is of the old one: so is what is run again."""
    model = stack()
    linear: Any = model.layers[1].inner[0]
    first = linear.weight

    def replaced(model: nn.Module) -> torch.Tensor:
        linear.weight = first
        loss = run(model)
        linear.weight = nn.Parameter(first.detach() + 1)
        return loss

    assert check(model, replaced)["recomputed_layers"] > 0
    assert linear.weight is not first


def test_a_parameter_freed_before_the_backward_raises() -> None:
    model = stack()
    linear: Any = model.layers[1].inner[0]
    with attached(model):
        gradients(model, run)
        loss = run(model)
        freed, linear.weight = linear.weight, nn.Parameter(linear.weight.detach() + 1)
        freed.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match="parameter weight was freed after its forward"):
            loss.backward()
        assert linear.weight is not freed, "put back"
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


# -- 5 the user's own hooks ----------------------------------------------------------------------


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


# -- 6 the user's own checkpointing --------------------------------------------------------------


def test_gradient_checkpointing_is_taken_over_and_given_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, batch = zoo.build("bert")
    expected = gradients(model, call(batch))
    model.gradient_checkpointing_enable()
    layers = model.bert.encoder.layer
    run = layers[0]._gradient_checkpointing_func
    with attached(model) as handle:
        assert not any(layer._gradient_checkpointing_func is run for layer in layers)
        for _ in range(3):
            assert_equal(gradients(model, call(batch)), expected)
        assert handle.stats()["recomputed_layers"] == 7, "3 and 4; the last step is not counted yet"
    assert all(layer._gradient_checkpointing_func is run for layer in layers)
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


def test_no_cache_is_made_where_checkpointing_made_none() -> None:
    """Keys and values of every layer, which no training reads, lay beside the layers' inputs."""
    model, batch = zoo.build("llama")

    def cached() -> int:
        cache = model(**batch).past_key_values
        return 0 if cache is None else int(cache.get_seq_length())

    with attached(model):
        assert cached() > 0, "the model's own way"
    model.gradient_checkpointing_enable()
    assert cached() == 0
    with attached(model):
        assert cached() == 0


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


# -- 7 frozen layers -----------------------------------------------------------------------------


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
