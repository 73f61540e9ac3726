"""Calls that fail: in the layer, by an interrupt, or in pudica itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stacks import Layer, run, stack
from training import assert_equal, attach, attached, gradients

from pudica import _rerun


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


class FailsInBackward(Layer):
    fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails and torch._C._current_graph_task_id() >= 0:
            raise torch.OutOfMemoryError("no memory")
        return super().forward(x)


def test_out_of_memory_in_a_recompute_is_out_of_memory() -> None:
    model = stack(FailsInBackward)
    expected = gradients(model, run)
    with attached(model):
        for _ in range(2):
            gradients(model, run)
        model.layers[1].fails = True  # the second one that is run again
        with pytest.raises(torch.OutOfMemoryError, match="no memory"):
            gradients(model, run)
        model.layers[1].fails = False
        assert_equal(gradients(model, run), expected)


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
