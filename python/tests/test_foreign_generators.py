"""Layers that draw from generators that are not torch's default one."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable

import numpy
import pytest
import torch
from stacks import Layer, inputs, stack
from torch import nn
from training import attached, check_batches, gradients

POLICIES = ["full", "reactive", "random:seed=1"]


def run_of(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(inputs(6))
    return loss


class Draws(Layer):
    since = 0

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > self.since:
            x = x * (1 + random.random())
        return super().forward(x)


class DrawsLater(Draws):
    since = 3


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", [Draws, DrawsLater])
def test_layers_that_draw_from_pythons_generator_are_run_again(
    kind: type[nn.Module], policy: str
) -> None:
    stats = check_batches(kind, policy)
    state = random.getstate()
    check_batches(kind, policy)
    assert stats["recomputed_layers"] > 0 or policy != "full"
    assert random.getstate() == state, "as training plainly leaves it"


class DrawsFromItsOwn(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 3:
            x = x * torch.rand(16, generator=self.generator)
        return super().forward(x)


def test_a_layer_that_begins_to_draw_from_its_own_draws_the_same_again() -> None:
    assert check_batches(DrawsFromItsOwn, "full")["recomputed_layers"] > 0


@pytest.mark.parametrize("draw", [random.random, numpy.random.random])
def test_another_thread_that_draws_meanwhile_is_left_alone(draw: Callable[[], float]) -> None:
    """A prefetching thread, say: no layer draws, so no generator is set."""
    random.seed(7)
    numpy.random.seed(7)
    plain = [draw() for _ in range(20000)]
    random.seed(7)
    numpy.random.seed(7)
    drawn: list[float] = []
    over = threading.Event()

    def prefetch() -> None:
        while not over.is_set() and len(drawn) < len(plain):
            drawn.append(draw())

    model = stack(Layer, 4)
    with attached(model):
        gradients(model, run_of)  # the trial puts back what was drawn meanwhile
        random.seed(7)
        numpy.random.seed(7)
        thread = threading.Thread(target=prefetch)
        thread.start()
        for _ in range(20):
            gradients(model, run_of)
        over.set()
        thread.join()
    if draw is random.random:
        assert drawn == plain[: len(drawn)]


class DrawsMeanwhile(Layer):
    """As if another thread drew from numpy's generator while the layer runs again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch._C._current_graph_task_id() >= 0:
            numpy.random.random()
        return super().forward(x)


def test_what_another_thread_draws_from_numpy_in_a_backward_is_no_error() -> None:
    assert check_batches(DrawsMeanwhile, "full")["recomputed_layers"] > 0


@pytest.mark.parametrize("readable", [True, False])
def test_pythons_state_tells_every_draw_and_goes_back(
    readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pudica import _python_random

    assert _python_random._read is not None, "CPython's generator lies where it always has"
    if not readable:
        monkeypatch.setattr(_python_random, "_read", None)
    random.seed(11)
    changes: list[Callable[[], object]] = [
        random.random, lambda: random.gauss(0, 1), lambda: random.gauss(0, 1),  # one of a pair
        lambda: random.getrandbits(1), lambda: random.seed(4), lambda: random.shuffle([1, 2, 3]),
        lambda: [random.random() for _ in range(700)],
    ]
    for change in changes:
        before, documented = _python_random.state(), random.getstate()
        assert _python_random.state() == before
        change()
        assert _python_random.state() != before
        _python_random.restore(before)
        assert _python_random.state() == before and random.getstate() == documented
        change()


def test_another_generator_behind_random_is_read_and_put_back(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    from pudica import _python_random

    own = random.Random(5)
    for name in ("random", "gauss", "getstate", "setstate", "seed"):
        monkeypatch.setattr(random, name, getattr(own, name))
    default = random._inst.getstate()  # type: ignore[attr-defined,unused-ignore]
    before, drawn = _python_random.state(), own.getstate()
    random.random()
    assert _python_random.state() != before
    _python_random.restore(before)
    assert own.getstate() == drawn
    assert random._inst.getstate() == default  # type: ignore[attr-defined,unused-ignore]


def test_calls_that_nothing_runs_again_are_not_remembered() -> None:
    from pudica import _rerun

    live = []

    class Looks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            live.append(len(_rerun._calls))
            return super().forward(x)

    model = stack(Looks)
    with attached(model, "none"):
        _rerun.forget_dead()
        before = len(_rerun._calls)
        for _ in range(4):
            gradients(model, run_of)
    assert live[-3:] == [before] * 3


def test_a_class_goes_with_its_model() -> None:
    def trained() -> weakref.ref[type]:
        class Own(Layer):
            pass

        model = stack(Own)
        with attached(model, "full"):
            for _ in range(3):
                gradients(model, run_of)
        return weakref.ref(Own)

    gone = trained()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("readable", [True, False])
def test_numpys_state_tells_every_draw_and_goes_back(
    readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pudica import _numpy_random

    numpy.random.seed(3)
    assert _numpy_random._global()[1] is not None, "numpy's generator lies where it always has"
    if not readable:
        monkeypatch.setattr(_numpy_random, "_find", lambda _: None)
        monkeypatch.setattr(_numpy_random, "_latest", (None, None))
    draws: list[Callable[[], Any]] = [
        numpy.random.random,
        numpy.random.randn,  # a pair: half of it waits
        numpy.random.randn,  # and is taken, with no word drawn
        lambda: numpy.random.permutation(700),
        lambda: numpy.random.seed(5),
        lambda: numpy.random.set_bit_generator(numpy.random.MT19937(1)),
    ]
    for draw in draws:
        before, documented = _numpy_random.state(), numpy.random.get_state()
        assert isinstance(before, tuple) is readable
        assert not _numpy_random.restore(before)
        draw()
        drawn = numpy.random.get_state()
        assert _numpy_random.restore(before)
        for then, now in zip(documented, numpy.random.get_state(), strict=True):
            assert numpy.array_equal(then, now)
        numpy.random.set_state(drawn)


def test_another_generator_behind_numpys_is_read_the_documented_way() -> None:
    from pudica import _numpy_random

    own = numpy.random.get_bit_generator()
    numpy.random.set_bit_generator(numpy.random.PCG64(1))
    try:
        before = _numpy_random.state()
        then = numpy.random.random()
        assert _numpy_random.restore(before)
        assert numpy.random.random() == then
    finally:
        numpy.random.set_bit_generator(own)
