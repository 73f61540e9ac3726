"""What other code puts on a model's layers for their forwards to read, and changes before the
backward: conditioning, banks of references, which parameters train."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from training import assert_equal, attached

from pudica import _held, _rerun

LAYERS, WIDTH = 4, 16
POLICIES = ("none", "full", "random:seed=1")
WAYS = ("tensor", "of a graph", "list", "dictionary", "tuple", "object")


class Conditioned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.keys = nn.Linear(WIDTH, WIDTH)
        self.condition: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = self.condition
        if isinstance(given, types.SimpleNamespace):
            given = given.value
        elif isinstance(given, dict):
            given = given["value"]
        elif isinstance(given, (list, tuple)):
            given = given[0]
        return x + self.own(x) * torch.sigmoid(self.keys(given))


class Model(nn.Module):
    """`after`: what is done with the layers' conditions behind their forward."""

    def __init__(self, way: str, after: str) -> None:
        super().__init__()
        self.way, self.after = way, after
        self.sees = nn.Linear(3, WIDTH)
        self.layers = nn.ModuleList(Conditioned() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1)
        self.bank: list[torch.Tensor] = []
        self.words: dict[str, torch.Tensor] = {}

    def put(self, value: torch.Tensor) -> None:
        self.bank[:] = [value]
        self.words["value"] = value
        of_way = {
            "list": self.bank, "dictionary": self.words, "tuple": (value,),
            "object": types.SimpleNamespace(value=value),
        }
        for layer in self.layers:
            layer.condition = of_way.get(self.way, value)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        value = self.sees(seen)
        self.put(value if self.way == "of a graph" else value.detach().clone())
        for layer in self.layers:
            x = layer(x)
        if self.after == "cleared":
            self.bank.clear()
            self.words.clear()
            for layer in self.layers:
                layer.condition = None
        if self.after == "deleted":
            for layer in self.layers:
                del layer.condition
        return self.head(x).square().mean()


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Summed over all steps."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def model_of(way: str, after: str) -> Model:
    torch.manual_seed(0)
    return Model(way, after)


def check(
    make: Callable[[], Any], run: Callable[[Any], dict[str, torch.Tensor]], policy: str = "full"
) -> tuple[Any, dict[str, Any]]:
    """The model and the stats of a run that has the same gradients with pudica as without."""
    expected = run(make())
    model = make()
    with attached(model, policy) as handle:
        assert_equal(run(model), expected)
        stats = handle.stats()
    return model, stats


def stack_of(kind: Callable[[], nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(kind() for _ in range(LAYERS)))


def train(model: Model, forwards: int = 2) -> dict[str, torch.Tensor]:
    for step in range(4):
        random = torch.Generator().manual_seed(step)
        total = sum(
            model(
                torch.randn(2, 5 + step, WIDTH, generator=random),
                torch.randn(2, 1, 3, generator=random),
            )
            for _ in range(forwards)
        )
        assert isinstance(total, torch.Tensor)
        total.backward()
    return gradients(model)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("after", ["replaced", "cleared", "deleted"])
@pytest.mark.parametrize("way", WAYS)
def test_a_rerun_reads_what_the_forward_read(way: str, after: str, policy: str) -> None:
    model, stats = check(lambda: model_of(way, after), train, policy)
    if policy == "full":
        assert stats["recomputed_layers"] > 0
    present = [getattr(layer, "condition", None) for layer in model.layers]
    if after != "replaced":
        assert present == [None] * LAYERS, "as it was before the rerun"
        assert after != "deleted" or not hasattr(model.layers[0], "condition")
    if way == "list":
        assert len(model.bank) == (0 if after == "cleared" else 1)


def test_what_is_written_in_place_is_told() -> None:
    model = model_of("tensor", "replaced")
    with attached(model, "full"):
        train(model)
        loss = model(torch.randn(2, 600, WIDTH), torch.randn(2, 600, 3))  # which is not small
        with torch.no_grad():
            model.layers[1].condition.add_(1)
        with pytest.raises(RuntimeError, match="attribute condition of a layer"):
            loss.backward()


def test_a_small_tensor_that_a_hook_writes_is_as_it_was() -> None:
    """A norm, a count: whether the forward read it is not known."""

    def watch(layer: Any, _: Any, out: torch.Tensor) -> None:
        layer.norm.copy_(out.detach().norm())

    def run(model: Model) -> dict[str, torch.Tensor]:
        for layer in model.layers:
            layer.norm = torch.zeros(())
            layer.register_forward_hook(watch)
        return train(model)

    model, stats = check(lambda: model_of("tensor", "replaced"), run)
    assert stats["recomputed_layers"] > 0
    assert all(layer.norm > 0 for layer in model.layers), "what hooks wrote stays"


def test_odd_attributes_are_let_be() -> None:
    class Refuses(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> Any:
            raise NotImplementedError(function)

    def make() -> Model:
        model = model_of("tensor", "replaced")
        for layer in model.layers:
            vars(layer)["late"] = [nn.parameter.UninitializedParameter()]
            vars(layer)["odd"] = torch.zeros(2).as_subclass(Refuses)
            loop: list[Any] = [1]
            loop.append(loop)
            vars(layer)["itself"] = loop
        return model

    check(make, train)


class Gathers(nn.Module):
    """What its layers gave, in something that all of them name."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList(Conditioned() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gathered: list[torch.Tensor] = []
        given = {"a list": gathered, "a dictionary": {"v": gathered},
                 "an object": types.SimpleNamespace(v=gathered)}[self.kind]
        for layer in self.layers:
            layer.gathered, layer.condition = given, torch.ones(2, 1, WIDTH)
            x = layer(x)
            gathered.append(x)
        return x.square().mean()


@pytest.mark.parametrize("kind", ["a list", "a dictionary", "an object"])
def test_steps_without_a_backward_do_not_pile_up(kind: str) -> None:
    """The graph of what a layer gave holds the layer's call, which holds what that was put into."""
    model = Gathers(kind)
    with attached(model, "full"):
        for _ in range(3):
            model(torch.randn(2, 5, WIDTH)).backward()
        for _ in range(100):
            model(torch.randn(2, 5, WIDTH))
        assert _rerun.live_calls() < 40 * LAYERS


def forwards_before_a_backward(model: Model, many: int) -> None:
    losses = [model(torch.randn(2, 3, WIDTH), torch.randn(2, 1, 3)) for _ in range(many)]
    torch.stack(losses).sum().backward()


@pytest.mark.parametrize("way", ["list", "dictionary", "object"])
def test_what_was_let_go_is_told_where_it_is_another(way: str) -> None:
    """Not taken for the same since it lies where that lay."""
    model = model_of(way, "replaced")
    with attached(model, "full"):
        train(model)
        forwards_before_a_backward(model, 20)
        with pytest.raises(RuntimeError, match="held for 32 forwards only"):
            forwards_before_a_backward(model, 60)


def test_what_stays_may_be_read_after_any_number_of_forwards() -> None:
    def run(model: Model) -> dict[str, torch.Tensor]:
        for layer in model.layers:
            layer.config = types.SimpleNamespace(width=WIDTH)
            layer.sizes = [WIDTH, [1, 2], "wide"]
        train(model)
        forwards_before_a_backward(model, 60)
        return gradients(model)

    _, stats = check(lambda: model_of("tensor", "replaced"), run)
    assert stats["recomputed_layers"] > 0


def test_what_is_told_apart_weakly_is_not_taken_for_what_lies_there_now() -> None:
    class Own:
        pass

    one: Any = Own()
    is_it = _held._weakly(one)
    assert is_it(one)
    del one
    assert not any(is_it(other) for other in [Own() for _ in range(64)])


@pytest.mark.parametrize("way", ["tensor", "of a graph"])
def test_nothing_of_it_outlives_its_step(way: str) -> None:
    """Also where no backward comes: what a step read must not hold the graph of the one before."""
    model = model_of(way, "replaced")
    with attached(model, "full"):
        train(model)
        refs = []
        for _ in range(6):
            loss = model(torch.randn(2, 5, WIDTH), torch.randn(2, 1, 3))
            refs.append(weakref.ref(loss))
            for layer in model.layers:
                layer.latest = loss  # which other code keeps there
            del loss
        assert [ref() is None for ref in refs[:-2]] == [True] * 4


@pytest.mark.parametrize("wants", [False, True])
def test_a_layer_is_frozen_or_thawed_before_the_backward(wants: bool) -> None:
    def run(model: Model) -> dict[str, torch.Tensor]:
        for step in range(4):
            torch.manual_seed(step)
            model.layers[1].requires_grad_(not wants)
            loss = model(torch.randn(2, 5 + step, WIDTH), torch.randn(2, 1, 3))
            model.layers[1].requires_grad_(wants)
            loss.backward()
        assert all(p.requires_grad is wants for p in model.layers[1].parameters())
        return gradients(model)

    _, stats = check(lambda: model_of("tensor", "replaced"), run)
    assert stats["recomputed_layers"] > 0


class Initialised(nn.Module):
    """By its first batch, as ActNorm is."""

    def __init__(self) -> None:
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(WIDTH))
        self.inner = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(64, WIDTH))
        self.ready = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            with torch.no_grad():
                self.loc.copy_(x.mean((0, 1)))
            self.ready = True
        return x + self.inner(x - self.loc)


class Unsettled(Initialised):
    """In each of its forwards."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.ready = False
        return super().forward(x)


def test_a_layer_that_initialises_itself_is_recomputed_later() -> None:
    def run(model: nn.Module) -> dict[str, torch.Tensor]:
        for step in range(5):
            torch.manual_seed(step)
            model(torch.randn(2, 5 + step, WIDTH)).square().mean().backward()
        return gradients(model)

    for kind, is_recomputed in ((Initialised, True), (Unsettled, False)):
        _, stats = check(lambda kind=kind: stack_of(kind), run)
        assert (stats["recomputed_layers"] > 0) is is_recomputed


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, WIDTH))


def test_under_a_transform_a_layer_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Every second forward by vmap, the first among them: the others are planned."""

    def run(model: nn.Module) -> dict[str, torch.Tensor]:
        for step in range(8):
            torch.manual_seed(step)
            x = torch.randn(2, 5, WIDTH)
            out = model(x[0]) if step % 2 else torch.func.vmap(model)(x)
            out.square().mean().backward()
        return gradients(model)

    _, stats = check(lambda: stack_of(plain), run)
    assert stats["recomputed_layers"] > LAYERS
    assert caplog.text.count("inside a transform of torch.func") == 1, "said once"


def test_under_forward_mode_a_layer_runs_as_it_is() -> None:
    """Its tangents are not there any more in the backward; other calls are planned all the same."""
    forward_ad = torch.autograd.forward_ad

    def run(model: nn.Module) -> dict[str, torch.Tensor]:
        for step in range(6):
            torch.manual_seed(step)
            x = torch.randn(2, 5, WIDTH)
            if step % 2 == 0:
                model(x).square().mean().backward()
                continue
            with forward_ad.dual_level():
                out = model(forward_ad.make_dual(x, torch.ones_like(x)))
                tangent = forward_ad.unpack_dual(out).tangent
                (out.square().mean() + tangent.square().mean()).backward()
        return gradients(model)

    _, stats = check(lambda: stack_of(plain), run)
    assert stats["recomputed_layers"] > LAYERS, "also behind the first such call"


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("as_buffer", [False, True])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_sparse_matrix_beside_the_input(layout: torch.layout, as_buffer: bool) -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)
            dense = torch.eye(12).roll(1, 0) + torch.eye(12)
            self.register_buffer("edges", dense.to_sparse(layout=layout))

        def forward(self, x: torch.Tensor, edges: torch.Tensor | None = None) -> torch.Tensor:
            return torch.sparse.mm(self.edges if edges is None else edges, self.linear(x)).tanh()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Graph() for _ in range(LAYERS))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            edges = None if as_buffer else self.layers[0].edges
            for layer in self.layers:
                x = layer(x) if edges is None else layer(x, edges)
            return x.square().mean()

    def run(model: nn.Module) -> dict[str, torch.Tensor]:
        for step in range(4):
            torch.manual_seed(step)
            model(torch.randn(12, WIDTH)).backward()
        return gradients(model)

    def make() -> Net:
        torch.manual_seed(0)
        return Net()

    for policy in POLICIES:
        _, stats = check(make, run, policy)
        assert policy != "full" or stats["recomputed_layers"] > 0
