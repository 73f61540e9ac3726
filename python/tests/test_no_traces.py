"""A layer is run again to see whether it can be, and in the backward: whatever it can reach finds
it as if it had run once, and finds what the forward found."""

from __future__ import annotations

import itertools
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from layer_states import STATES, Count, Layer
from stacks import Stack, inputs
from torch import nn
from training import assert_equal, attached

from pudica._reach import Reach

STEPS = 8
POLICIES = ("none", "full")


class OnItself(Layer):
    def __init__(self, make: Callable[[], Any], use: Callable[[Any], float]) -> None:
        super().__init__(use)
        self.state = make()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(x, self.state)


class AsArgument(Layer):
    def forward(self, x: torch.Tensor, state: Any) -> torch.Tensor:
        return self.scaled(x, state)


_of_this_file: list[Any] = [None]


class InItsFile(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(x, _of_this_file[0])


class GivesStates(Stack):
    def __init__(self, make: Callable[[], Any], *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.make = make

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self.make()
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x, state)
        return x.pow(2).mean()


def train(
    model: nn.Module, around: Callable[[nn.Module, int], torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for step in range(STEPS):
        torch.manual_seed(step)
        loss = around(model, step) if around is not None else model(inputs(3 + step % 4))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def check(
    make: Callable[[], nn.Module],
    policy: str,
    around: Callable[[nn.Module, int], torch.Tensor] | None = None,
) -> dict[str, Any]:
    def made() -> nn.Module:
        torch.manual_seed(0)
        random.seed(0)
        numpy.random.seed(0)
        return make().train()

    expected = train(made(), around)
    assert_equal(train(made(), around), expected)
    model = made()
    with attached(model, policy) as handle:
        assert_equal(train(model, around), expected)
        return handle.stats()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", STATES)
def test_what_a_layer_keeps_on_itself_is_changed_once(kind: str, policy: str) -> None:
    make, use = STATES[kind]
    check(lambda: Stack(*(OnItself(make, use) for _ in range(3))), policy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", STATES)
def test_what_layers_are_passed_is_changed_once(kind: str, policy: str) -> None:
    make, use = STATES[kind]
    check(lambda: GivesStates(make, *(AsArgument(use) for _ in range(3))), policy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", STATES)
def test_what_layers_find_in_their_file_is_changed_once(kind: str, policy: str) -> None:
    make, use = STATES[kind]

    def made() -> nn.Module:
        _of_this_file[0] = make()
        return Stack(*(InItsFile(use) for _ in range(3)))

    check(made, policy)


def test_layers_that_draw_from_their_own_run_again_with_what_they_drew() -> None:
    for kind in ("numpy generator", "numpy state", "Random", "generator"):
        make, use = STATES[kind]

        def made(make: Any = make, use: Any = use) -> nn.Module:
            return Stack(*(OnItself(make, use) for _ in range(3)))

        assert check(made, "full")["recomputed_layers"] > 0, kind


_losses: list[torch.Tensor] = []


def keep_loss(loss: torch.Tensor) -> None:
    _losses.append(loss)


class LeavesLoss(nn.Module):
    """Its own result does not hang on what it leaves in its file, as routers' losses."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        keep_loss(y.pow(2).mean())
        return x + y


@pytest.mark.parametrize("policy", POLICIES)
def test_losses_that_layers_leave_in_a_list_are_there_once(policy: str) -> None:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        _losses.clear()
        return torch.as_tensor(model(inputs(3 + step % 4)) + sum(_losses))

    stats = check(lambda: Stack(*(LeavesLoss() for _ in range(3))), policy, loss)
    assert stats["failures"] == 0
    assert policy == "none" or stats["recomputed_layers"] > 0
    _losses.clear()


class WritesParameter(nn.Module):
    """A moving average, as a parameter that no gradient is for."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.mean = nn.Parameter(torch.zeros(16), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.data.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x + self.inner(x) - self.mean.clone()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_parameter_that_is_written_where_no_version_tells_is_written_once(policy: str) -> None:
    check(lambda: Stack(*(WritesParameter() for _ in range(3))), policy)


# -- what is none of the layer's -------------------------------------------------------------------


class Kinds(type):
    """Classes of it have members that are another object each time they are read."""


class Marked(metaclass=Kinds):
    pass


class Numbered(nn.Module):
    """Has iterators that its forward does not use."""

    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.number = next(Numbered.numbers)
        self.spent = (n for n in ())
        self.ahead = (n for n in range(3))
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (0 if isinstance(x, Marked) else self.inner(x).tanh())


def test_layers_that_reach_what_they_do_not_change_run_again() -> None:
    stats = check(lambda: Stack(*(Numbered() for _ in range(3))), "full")
    assert stats["recomputed_layers"] > 3 * STEPS / 2


def test_what_is_looked_at_is_bounded_and_the_largest_is_put_back() -> None:
    layer = nn.Linear(2, 2)
    layer.table = {n: [n] for n in range(20000)}
    layer.many = [[n] for n in range(20000)]
    reach = Reach([layer], [])
    assert len(reach._seen) <= 2048
    first = layer.table[0]
    layer.table[0] = [0]
    del layer.table[7]
    layer.table["new"] = 1
    layer.many.pop()
    changed, lost = reach.restore()
    assert sorted(changed) == ["many", "table"] and lost == []
    assert list(layer.table) == list(range(20000)) and layer.table[0] is first
    assert len(layer.many) == 20000


progress = 0
_marks: list[int] = []


class ReadsProgress(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _marks.append(progress)
        return x + self.inner(x).tanh()


def test_what_another_thread_counts_meanwhile_goes_on() -> None:
    """As if it did so while a layer is run again: in a hook inside it."""
    model = Stack(*(ReadsProgress() for _ in range(3))).train()

    def count(*_: Any) -> None:
        global progress
        progress += 1

    for layer in model.layers:
        layer.inner.register_forward_pre_hook(count)
        original = layer.inner.forward

        def forward(x: torch.Tensor, original: Any = original) -> torch.Tensor:
            count()
            return original(x)

        layer.inner.forward = forward
    seen = []
    with attached(model):
        for _ in range(4):
            model(inputs()).backward()
            seen.append(progress)
    assert seen == sorted(seen)
    assert len(_marks) == 4 * 3, "once a layer of a forward"
    _marks.clear()


class GoneInside:
    """Holds a weak proxy of what is gone."""

    def __init__(self, x: torch.Tensor) -> None:
        gone = Count()
        self.proxy = weakref.proxy(gone)
        self.x = x


class GivesGone(OnItself):
    def forward(self, x: torch.Tensor) -> Any:
        return GoneInside(self.scaled(x, self.state))


class TakesGone(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x).x
        return x.pow(2).mean()


def test_an_output_with_a_proxy_of_what_is_gone_is_no_failure() -> None:
    stats = check(lambda: TakesGone(*(GivesGone(int, float) for _ in range(3))), "full")
    assert stats["failures"] == 0


def test_a_layer_with_a_proxy_of_what_is_gone_is_planned() -> None:
    def made() -> nn.Module:
        layers = [Numbered() for _ in range(3)]
        for layer in layers:
            gone = Count()
            layer.model = weakref.proxy(gone)
        return Stack(*layers)

    assert check(made, "full")["recomputed_layers"] > 0


# -- layers that take and give objects -------------------------------------------------------------


class Graph:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class OnGraphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, graph: Graph) -> Graph:
        graph.x = graph.x + self.inner(graph.x).tanh()
        return graph


class Graphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(OnGraphs() for _ in range(3))
        self.embed = nn.Linear(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        graph = Graph(self.embed(x))
        for layer in self.layers:
            graph = layer(graph)
        return graph.x.pow(2).mean()


def test_layers_that_take_and_give_an_object_are_planned() -> None:
    assert check(Graphs, "full")["recomputed_layers"] > 0


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    _of_this_file[0] = None
    _losses.clear()
