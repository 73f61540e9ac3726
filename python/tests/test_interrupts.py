"""Ctrl-C stays a KeyboardInterrupt wherever it strikes, and harms nothing that comes after it."""

from __future__ import annotations

import _thread
import collections
import copy
import functools
import gc
import inspect
import pathlib
import pickle
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from stacks import Layer, inputs, run, stack
from torch import nn
from training import assert_equal, attached, gradients

import pudica
from pudica import _undoing

PACKAGE = pathlib.Path(pudica.__file__).parent
# Of these files each line is struck, of the others each call.
LINES = ("_rerun.py", "_undoing.py", "_hooks.py", "_handle.py", "_messages.py")


def interrupting_hook() -> Callable[[torch.Tensor], None]:
    """A hook for a tensor, without a line of Python in it: the signal has come while the backward
    runs native code, and strikes in the first Python that comes after."""
    signals = iter(functools.partial(_thread.interrupt_main, signal.SIGINT), 0)
    return functools.partial(next, signals)


class Collecting(Layer):
    """Has hooks inside and a state that a rerun is to put back."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(1)
        return super().forward(x)


def collecting() -> nn.Module:
    model = stack(Collecting, 2)
    for layer in model.layers:
        layer.inner[0].register_forward_hook(lambda *_: None)
    return model


def hooks_of(model: nn.Module) -> list[Any]:
    return [(list(m._forward_hooks), list(m._forward_pre_hooks), m.training, sorted(vars(m)))
            for m in model.modules()]


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert capfd.readouterr() == ("", "")


def test_a_signal_while_the_backward_runs_native_code() -> None:
    model = stack()
    expected = gradients(model, run)
    with attached(model) as handle:
        for _ in range(3):
            gradients(model, run)
        for _ in range(5):
            loss = run(model)
            loss.register_hook(interrupting_hook())
            with pytest.raises(KeyboardInterrupt):
                loss.backward()
            assert_equal(gradients(model, run), expected)
        assert handle.stats()["recomputed_layers"] > 0


@pytest.mark.parametrize("error", [KeyboardInterrupt("why"), SystemExit(3), GeneratorExit()])
def test_what_stops_a_program_in_a_recompute_is_what_it_was(error: BaseException) -> None:
    def stopped(*arguments: Any) -> Any:
        raise error

    model = stack()
    expected = gradients(model, run)
    with attached(model) as handle:
        for _ in range(2):
            gradients(model, run)
        loss = run(model)
        for layer in model.layers:
            layer.forward = stopped
        with pytest.raises(type(error)) as seen:
            loss.backward()
        assert seen.value is error
        for layer in model.layers:
            del layer.forward
        assert_equal(gradients(model, run), expected)
        assert handle.stats()["recomputed_layers"] > 0


def test_a_trial_that_is_struck_is_tried_again() -> None:
    struck = [True]

    class Struck(Layer):
        runs = 0  # put back after a trial

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            calls.append(1)
            if struck[0] and len(calls) == 2:
                raise KeyboardInterrupt
            return y

    calls: list[int] = []
    model = stack(Struck)
    with attached(model) as handle:
        with pytest.raises(KeyboardInterrupt):
            run(model)
        struck[0] = False
        expected = gradients(model, run)
        for _ in range(2):
            assert_equal(gradients(model, run), expected)
        assert handle.stats()["recomputed_layers"] > 0, "it has not failed"


class _Strikes:
    """A trace function that throws at the k-th place of pudica's Python; counts them."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.seen = 0
        self.where = ""

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        path = pathlib.Path(frame.f_code.co_filename)
        # A generator that is let go is closed where nothing can be thrown.
        if path.parent != PACKAGE or frame.f_code.co_flags & inspect.CO_GENERATOR:
            return None
        if event == "call" or (event == "line" and path.name in LINES):
            self.seen += 1
            if self.seen == self.at:
                self.where = f"{event} {path.name}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def _struck(strikes: _Strikes, body: Callable[[], Any]) -> bool:
    before = sys.gettrace()
    try:
        sys.settrace(strikes)
        body()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(3)
    run(model).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("policy", ["full", "reactive"])
@pytest.mark.parametrize("first", [True, False])
def test_an_interrupt_at_any_place_of_pudicas_own(policy: str, first: bool, every: int) -> None:
    """First steps have trials; those after them recomputes. Each takes other places."""
    model, other = collecting(), stack()
    expected, others = gradients(model, run), gradients(other, run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    options = {"budget": 1} if policy == "reactive" else {}
    places: collections.Counter[str] = collections.Counter()
    at = 2 * first + 4 * (policy == "full")
    while True:
        at += every
        strikes = _Strikes(at)
        with attached(model, policy, **options) as handle:
            if not first:
                for _ in range(3):  # the first two have trials
                    _step(model, optimizer)
            before = hooks_of(model)
            struck = _struck(strikes, lambda: _step(model, optimizer))
            assert struck == (strikes.where != ""), strikes.where
            model.zero_grad()
            assert_equal(gradients(other, run), others)
            assert_equal(gradients(model, run), expected)
            assert hooks_of(model) == before, strikes.where
            assert not _undoing.mark(), strikes.where
            if not first:
                assert handle.stats()["recomputed_layers"] > 0
        if not struck:
            break
        places[strikes.where] += 1
    files = {place.split()[1].split(":")[0] for place in places}
    assert files >= {"_rerun.py", "_undoing.py", "_hooks.py", "_handle.py"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("inside", [True, False])
def test_a_model_whose_forward_was_struck_can_be_copied_and_trained(
    error: type[BaseException], inside: bool
) -> None:
    model = stack()
    expected = gradients(model, run)

    def strike(*unused: Any) -> None:
        raise error

    with attached(model):
        for _ in range(2):
            gradients(model, run)
        part = model.layers[1].dropout if inside else model.layers[0].inner[0]
        if not inside:  # between two layers
            model.layers.register_module("1", _Between(model.layers[1], strike))
            part = None
        hook = part.register_forward_pre_hook(strike) if part is not None else None
        with pytest.raises(error):
            run(model)
        if hook is not None:
            hook.remove()
        else:
            model.layers.register_module("1", model.layers[1].layer)
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert_equal(gradients(copied, run), expected)
            assert_equal(gradients(copy.deepcopy(copied), run), expected)
        assert_equal(gradients(model, run), expected)
        assert not any("_call_impl" in vars(m) for m in model.modules())


class _Between(nn.Module):
    """Strikes, and would then call the layer."""

    def __init__(self, layer: nn.Module, strike: Callable[[], None]) -> None:
        super().__init__()
        self.layer = layer
        self.strike = strike

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.strike()
        return self.layer(x)


def test_a_handle_goes_with_its_last_user() -> None:
    model = stack()
    gc.disable()
    try:
        with attached(model) as handle:
            gradients(model, run)
            gone = weakref.ref(handle)
        del handle
        assert gone() is None, "its parameters would live on"
    finally:
        gc.enable()


def test_an_exception_of_the_layers_own_is_no_interrupt() -> None:
    model = stack()
    with attached(model):
        for _ in range(2):
            gradients(model, run)
        loss = run(model)
        model.layers[2].forward = lambda x: int("none")
        with pytest.raises(RuntimeError, match="ValueError: invalid literal"):
            loss.backward()
        del model.layers[2].forward
        gradients(model, run)


def test_the_users_mode_stays_what_it_is_when_layers_run_again() -> None:
    model = stack()
    model(inputs())
    with attached(model) as handle:
        for _ in range(3):
            gradients(model, run)
        loss = run(model)
        model.eval()
        loss.backward()
        assert not any(module.training for module in model.modules())
        assert handle.stats()["recomputed_layers"] > 0
